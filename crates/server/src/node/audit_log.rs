//! The audit log of the node: the file that configures it, and the thread that writes it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use audit::{Recorder, Settings, Step, Writer};
use bucket::Clock;
use parking_lot::Mutex;
use storage::names;

use super::random::random_uuid;
use crate::config::StartError;

/// The file in the data directory; operators may write it.
const FILE: &str = "audit.json";
/// Where events are kept unless the configuration says otherwise.
const DIRECTORY: &str = "audit";

/// What is recorded of the node, and where that is kept.
pub(super) struct AuditLog {
    pub(super) recorder: Arc<Recorder>,
    /// `None` for a node that keeps nothing.
    data_dir: Option<PathBuf>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl AuditLog {
    /// Begins with what the file of a data directory says. Without one nothing is recorded.
    ///
    /// # Errors
    /// It cannot be read or makes no sense: then the node must not start, since it would record too little.
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
        log.reload(unix_ns).map_err(StartError::DataFormat)?;
        Ok(log)
    }

    /// Reads the file again. Without one everything is as before.
    ///
    /// # Errors
    /// What is wrong with it, one line; then everything is as before.
    pub(super) fn reload(&self, unix_ns: u64) -> Result<(), String> {
        let Some(data_dir) = &self.data_dir else {
            return Ok(());
        };
        let _turn = self.changing.lock();
        let path = data_dir.join(FILE);
        let refused = |why: String| {
            format!(
                "{}: {why}; mend it, or remove it: then nothing is recorded",
                path.display()
            )
        };
        let settings = match fs::read(&path) {
            Ok(text) => Settings::parse(&text).map_err(refused)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(refused(error.to_string())),
        };
        self.adopt(settings, unix_ns);
        Ok(())
    }

    /// Changes the configuration, and keeps it over restarts.
    ///
    /// # Errors
    /// It could not be written, and is as before.
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
        let own = self.data_dir.as_ref().map(|dir| dir.join(DIRECTORY));
        if settings.enabled
            && own.is_some_and(|own| own == settings.log_path)
            && let Err(error) = super::private::make_directory(&settings.log_path)
        {
            // The writer counts and tells what it cannot write.
            tracing::debug!(%error, "the directory of the audit log is not made");
        }
        self.recorder.configure(settings, unix_ns);
    }

    /// Starts the thread that writes.
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
                    Step::Wait(at_most, gather) => wait = (at_most, gather),
                    Step::End => break,
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

/// The thread that writes; dropped, it writes what is left and ends.
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

/// What the machine is called.
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
