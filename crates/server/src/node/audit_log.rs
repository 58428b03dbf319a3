//! The audit log of the node: its configuration file, and the thread that writes events.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use audit::{Recorder, Settings, Writer, WriterStep};
use bucket::Clock;
use parking_lot::Mutex;
use storage::names;

use super::random::random_uuid;
use crate::config::{StartError, access};

/// Name of the configuration file in the data directory; operators may write it.
const FILE: &str = "audit.json";
/// Default directory of events.
const DIRECTORY: &str = "audit";

/// The recorder of audit events, and its configuration.
pub(super) struct AuditLog {
    pub(super) recorder: Arc<Recorder>,
    /// `None` for a node that keeps nothing on disk.
    data_dir: Option<PathBuf>,
    /// Held during a change: one at a time.
    changing: Mutex<()>,
}

impl AuditLog {
    /// Reads the configuration file of a data directory. Without a file nothing is recorded.
    ///
    /// # Errors
    /// The file cannot be read or is not valid. The node must not start then, since it would record too little.
    pub(super) fn open(data_dir: Option<&Path>, unix_ns: u64) -> Result<Self, StartError> {
        let system = |error: io::Error| StartError::System(error.to_string());
        let data_dir = data_dir
            .map(std::path::absolute)
            .transpose()
            .map_err(system)?;
        let directory = data_dir.as_ref().map(|dir| dir.join(DIRECTORY));
        let off = Settings::new(directory.unwrap_or_default());
        let log = Self {
            recorder: Arc::new(Recorder::new(host(), off)),
            data_dir,
            changing: Mutex::default(),
        };
        if let Some(settings) = log.read()? {
            log.adopt(settings, unix_ns);
        }
        Ok(log)
    }

    /// Reads the configuration file again. Without a file nothing changes.
    ///
    /// # Errors
    /// The reason in one line; the configuration stays as it was.
    pub(super) fn reload(&self, unix_ns: u64) -> Result<(), String> {
        let _turn = self.changing.lock();
        if let Some(settings) = self.read().map_err(|error| error.to_string())? {
            self.check_directory(&settings)?;
            self.adopt(settings, unix_ns);
        }
        Ok(())
    }

    /// Reads the configuration file; `None` if there is no file.
    fn read(&self) -> Result<Option<Settings>, StartError> {
        let Some(data_dir) = &self.data_dir else {
            return Ok(None);
        };
        let path = data_dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(access(&path, &error)),
        };
        let settings = Settings::parse(&text).map_err(|why| {
            let path = path.display();
            let hint = "mend it, or remove it: then nothing is recorded";
            StartError::DataFormat(format!("{path}: {why}; {hint}"))
        })?;
        Ok(Some(settings))
    }

    /// Refuses a directory that does not exist. The default one is made by [`Self::adopt`].
    fn check_directory(&self, settings: &Settings) -> Result<(), String> {
        let directory = &settings.log_path;
        if directory.is_dir() || self.own_directory().is_some_and(|own| own == *directory) {
            return Ok(());
        }
        let directory = directory.display();
        Err(format!(
            "{FILE}: log_path: the directory {directory} does not exist"
        ))
    }

    /// The default directory of events.
    fn own_directory(&self) -> Option<PathBuf> {
        self.data_dir.as_ref().map(|dir| dir.join(DIRECTORY))
    }

    /// Changes the configuration, and keeps it over restarts.
    ///
    /// # Errors
    /// The configuration could not be written, and stays as it was.
    pub(super) fn change(&self, mut settings: Settings, unix_ns: u64) -> Result<(), String> {
        let _turn = self.changing.lock();
        settings.uuid = random_uuid();
        if let Some(data_dir) = &self.data_dir {
            let path = data_dir.join(FILE);
            let written = names::replace(&path, settings.to_file().as_bytes());
            written.map_err(|error| {
                tracing::error!(%error, "the configuration of the audit could not be written");
                format!("The configuration could not be written: {error}")
            })?;
        }
        self.adopt(settings, unix_ns);
        Ok(())
    }

    fn adopt(&self, settings: Settings, unix_ns: u64) {
        if settings.enabled
            && self
                .own_directory()
                .is_some_and(|own| own == settings.log_path)
            && let Err(error) = super::private::make_directory(&settings.log_path)
        {
            // The writer counts and logs events that it cannot write.
            tracing::debug!(%error, "the directory of the audit log is not made");
        }
        self.recorder.configure(settings, unix_ns);
    }

    /// Starts the thread that writes events.
    pub(super) fn start(&self, clock: &Arc<dyn Clock>) -> io::Result<AuditThread> {
        let (recorder, clock) = (Arc::clone(&self.recorder), Arc::clone(clock));
        let (own, time) = (Arc::clone(&recorder), Arc::clone(&clock));
        let thread = std::thread::Builder::new().name("audit".into());
        let thread = thread.spawn(move || {
            let mut writer = Writer::new(Arc::clone(&own));
            let mut wait = (None, Duration::ZERO);
            loop {
                own.wait(wait.0, wait.1);
                match writer.step(time.now().unix_ns) {
                    WriterStep::Wait(at_most, gather) => wait = (at_most, gather),
                    WriterStep::End => break,
                }
            }
        })?;
        Ok(AuditThread {
            recorder,
            clock,
            thread: Some(thread),
        })
    }
}

/// The thread that writes events. When it is dropped, it writes the remaining events and ends.
pub(super) struct AuditThread {
    recorder: Arc<Recorder>,
    clock: Arc<dyn Clock>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AuditThread {
    fn drop(&mut self) {
        self.recorder.close(self.clock.now().unix_ns);
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread of the audit log ended by a panic");
        }
    }
}

/// Returns the name of the host.
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
