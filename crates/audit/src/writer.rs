//! The writer: the audit thread takes recorded events and writes them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::log::{Log, Rotation};
use crate::recorder::{Item, Recorder};
use crate::settings::Settings;

/// Largest size of a write in bytes, unless a single event is larger.
const WRITE_BYTES: usize = 256 << 10;
/// Longest time that events wait for others.
const GATHER: Duration = Duration::from_millis(20);
/// Time after a failed write in which events are dropped, in nanoseconds.
const RETRY_NS: u64 = 500_000_000;
/// Longest interval between two searches for old files, in seconds; the shortest one is a second.
const PRUNE_S: u64 = 600;

/// The next step of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterStep {
    /// Waits for more events, at most for the first duration; then gathers events for the second one.
    Wait(Option<Duration>, Duration),
    /// Ends: the recorder is closed, and everything is written.
    End,
}

/// Writes the events of a [`Recorder`].
#[derive(Debug)]
pub struct Writer {
    recorder: Arc<Recorder>,
    settings: Arc<Settings>,
    log: Log,
    /// Set while writes fail.
    failing: Option<Failing>,
    prune_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    retry_ns: u64,
    dropped: u64,
}

impl Writer {
    /// Creates the writer of a recorder. The first step writes.
    pub fn new(recorder: Arc<Recorder>) -> Self {
        let settings = recorder.settings();
        let log = Log::new(settings.log_path.clone(), recorder.host());
        Self {
            recorder,
            settings,
            log,
            failing: None,
            prune_ns: 0,
        }
    }

    /// Writes queued events, closes a file that has reached its age limit, removes old files.
    pub fn step(&mut self, unix_ns: u64) -> WriterStep {
        let Some(mut items) = self.recorder.take() else {
            self.log.close();
            return WriterStep::End;
        };
        while let Some(item) = items.pop_front() {
            match item {
                Item::Settings(settings) => self.adopt(settings),
                Item::Lines(lines, events) => self.write(lines, events, &mut items, unix_ns),
            }
        }
        self.log.rotate(self.rotation(), unix_ns);
        self.prune(unix_ns);
        let next_ns = self.log.rotates_at_ns(self.rotation());
        let prunes = self.settings.enabled && self.settings.prune_age_s > 0;
        let next_ns = next_ns
            .into_iter()
            .chain(prunes.then_some(self.prune_ns))
            .min();
        let within = next_ns.map(|at| Duration::from_nanos(at.saturating_sub(unix_ns)));
        WriterStep::Wait(
            within,
            if self.settings.buffered {
                GATHER
            } else {
                Duration::ZERO
            },
        )
    }

    fn rotation(&self) -> Rotation {
        Rotation {
            interval_s: self.settings.rotate_interval_s,
            size: self.settings.rotate_size,
        }
    }

    fn adopt(&mut self, settings: Arc<Settings>) {
        if !settings.enabled || *settings.log_path != *self.log.directory() {
            self.log.close();
            self.log = Log::new(settings.log_path.clone(), self.recorder.host());
            self.failing = None;
        }
        self.prune_ns = 0;
        self.settings = settings;
    }

    /// Writes lines, together with the following ones if the configuration allows it.
    fn write(
        &mut self,
        mut lines: Vec<u8>,
        mut events: u64,
        more: &mut VecDeque<Item>,
        unix_ns: u64,
    ) {
        if !self.settings.buffered {
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                self.write_once(line, 1, unix_ns);
            }
            return;
        }
        while let Some(Item::Lines(next, _)) = more.front()
            && lines.len() + next.len() <= WRITE_BYTES
        {
            if let Some(Item::Lines(next, count)) = more.pop_front() {
                lines.extend_from_slice(&next);
                events += count;
            }
        }
        self.write_once(&lines, events, unix_ns);
    }

    fn write_once(&mut self, lines: &[u8], events: u64, unix_ns: u64) {
        if let Some(failing) = &mut self.failing
            && unix_ns < failing.retry_ns
        {
            failing.dropped += events;
            return self.recorder.count_dropped(events);
        }
        match self.log.write(lines, unix_ns) {
            Ok(()) => {
                if let Some(Failing { dropped, .. }) = self.failing.take() {
                    let directory = self.log.directory().display();
                    tracing::warn!(%directory, dropped, "the audit log is written again");
                }
                self.log.rotate(self.rotation(), unix_ns);
            }
            Err(error) => {
                self.recorder.count_dropped(events);
                if self.failing.is_none() {
                    let directory = self.log.directory().display();
                    tracing::error!(%directory, %error, "the audit log cannot be written: events are dropped");
                }
                let dropped = self.failing.map_or(0, |failing| failing.dropped);
                self.failing = Some(Failing {
                    retry_ns: unix_ns.saturating_add(RETRY_NS),
                    dropped: dropped + events,
                });
            }
        }
    }

    fn prune(&mut self, unix_ns: u64) {
        let age_s = self.settings.prune_age_s;
        if !self.settings.enabled || age_s == 0 || unix_ns < self.prune_ns {
            return;
        }
        self.prune_ns = unix_ns.saturating_add(age_s.clamp(1, PRUNE_S) * 1_000_000_000);
        if let Err(error) = self.log.prune(age_s, unix_ns) {
            tracing::debug!(%error, "old files of the audit log could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::put::{PutError, put};

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_714_979_289 * SECOND;

    fn settings(place: &Path) -> Settings {
        Settings {
            enabled: true,
            states: [(20490, true)].into(),
            ..Settings::new(place.into())
        }
    }

    fn audit(place: &Path) -> (Arc<Recorder>, Writer) {
        let recorder = Arc::new(Recorder::new("h".into(), Settings::new(place.into())));
        let writer = Writer::new(Arc::clone(&recorder));
        (recorder, writer)
    }

    /// Returns the lines of all files, in the order of the file names.
    fn lines(place: &Path) -> Vec<Value> {
        let entries = fs::read_dir(place).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = paths.filter(|path| !path.is_symlink()).collect();
        paths.sort();
        let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
        let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }

    fn ids(place: &Path) -> Vec<u64> {
        lines(place)
            .iter()
            .map(|line| line["id"].as_u64().unwrap())
            .collect()
    }

    fn modified(recorder: &Recorder) {
        let event = r#"{"timestamp":"now","real_userid":{"domain":"local","user":"ada"}}"#;
        put(recorder, 20490, event.as_bytes()).unwrap();
    }

    #[test]
    fn an_audit_that_is_off_writes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        assert!(!recorder.is_on());
        assert_eq!(put(&recorder, 1, b"no event at all"), Ok(()));
        assert_eq!(writer.step(START), WriterStep::Wait(None, GATHER));
        recorder.close(START);
        assert_eq!(writer.step(START), WriterStep::End);
        assert!(ids(place.path()).is_empty());
    }

    #[test]
    fn configuration_changes_are_recorded_before_and_after() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        recorder.configure(settings(place.path()), START);
        modified(&recorder);
        let elsewhere = tempfile::tempdir().unwrap();
        recorder.configure(settings(elsewhere.path()), START);
        modified(&recorder);
        recorder.configure(Settings::new(elsewhere.path().into()), START);
        modified(&recorder);
        assert_eq!(writer.step(START), WriterStep::Wait(None, GATHER));
        assert_eq!(ids(place.path()), [4096, 20490]);
        assert_eq!(ids(elsewhere.path()), [4096, 20490, 4097]);
        let configured = &lines(place.path())[0];
        assert_eq!(configured["log_path"], place.path().to_str().unwrap());
        assert_eq!(configured["hostname"], "h");
        assert!(!place.path().join("current-audit.log").is_symlink());
    }

    #[test]
    fn writer_writes_everything_before_it_ends() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        recorder.configure(settings(place.path()), START);
        modified(&recorder);
        recorder.close(START);
        modified(&recorder);
        assert!(matches!(writer.step(START), WriterStep::Wait(..)));
        assert_eq!(writer.step(START), WriterStep::End);
        assert_eq!(ids(place.path()), [4096, 20490, 4097]);
        assert_eq!(recorder.dropped(), 0);
    }

    #[test]
    fn files_rotate_without_events_and_old_files_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        let wanted = Settings {
            rotate_interval_s: 900,
            prune_age_s: 3600,
            buffered: false,
            ..settings(place.path())
        };
        recorder.configure(wanted, START);
        let WriterStep::Wait(Some(within), gather) = writer.step(START) else {
            panic!("a file is open");
        };
        assert_eq!((within, gather), (Duration::from_mins(10), Duration::ZERO));
        let next = writer.step(START + 900 * SECOND);
        assert_eq!(
            next,
            WriterStep::Wait(Some(Duration::from_mins(10)), Duration::ZERO)
        );
        assert!(
            !place.path().join("current-audit.log").is_symlink(),
            "it is closed"
        );
        assert_eq!(ids(place.path()), [4096]);
        // File times come from the system clock: far in the future all files are old.
        writer.step(u64::MAX / 2);
        assert!(ids(place.path()).is_empty());
    }

    #[test]
    fn full_file_is_rotated() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        let wanted = Settings {
            rotate_size: 1,
            buffered: false,
            ..settings(place.path())
        };
        recorder.configure(wanted, START);
        modified(&recorder);
        modified(&recorder);
        writer.step(START);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
        assert_eq!(ids(place.path()).len(), 3);
    }

    #[test]
    fn failed_writes_are_counted_and_later_events_written() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let (recorder, mut writer) = audit(&missing);
        recorder.configure(settings(&missing), START);
        modified(&recorder);
        writer.step(START);
        assert_eq!(recorder.dropped(), 2);
        fs::create_dir(&missing).unwrap();
        modified(&recorder);
        writer.step(START + RETRY_NS - 1);
        assert_eq!(recorder.dropped(), 3, "it is not tried each time");
        modified(&recorder);
        writer.step(START + RETRY_NS);
        assert_eq!((recorder.dropped(), ids(&missing)), (3, vec![20490]));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        recorder.configure(settings(place.path()), START);
        let filling = " ".repeat(9 << 20);
        let many = format!("{{\"id\":7,\"filling\":\"{filling}\"}}\n").into_bytes();
        recorder.submit(many.clone(), 1);
        recorder.submit(many, 9);
        assert_eq!(recorder.dropped(), 9);
        modified(&recorder);
        writer.step(START);
        assert_eq!(
            (recorder.dropped(), ids(place.path())),
            (9, vec![4096, 7, 20490])
        );
    }

    #[test]
    fn client_events_are_checked() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, mut writer) = audit(place.path());
        let user = |domain| crate::UserId {
            domain,
            user: "bob".into(),
        };
        let wanted = Settings {
            filtering: true,
            disabled_users: Some([user("local".to_owned())].into()),
            ..settings(place.path())
        };
        recorder.configure(wanted, START);
        let of = |id, text: &str| put(&recorder, id, text.as_bytes());
        assert_eq!(of(1, "{}"), Err(PutError::UnknownEvent));
        assert_eq!(of(20488, "not looked at"), Ok(()), "it is disabled");
        assert_eq!(of(20490, "{"), Err(PutError::NotJson));
        assert_eq!(of(20490, "[]"), Err(PutError::NotJson));
        let missing = PutError::Missing(vec!["real_userid"]);
        assert_eq!(
            missing.to_string(),
            r#"{"missing_elements":["real_userid"]}"#
        );
        assert_eq!(of(20490, r#"{"timestamp":""}"#), Err(missing));
        for user in ["1", "{}", r#"{"domain":"x","user":"y"}"#] {
            let event = format!(r#"{{"timestamp":"","real_userid":{user}}}"#);
            assert_eq!(of(20490, &event), Err(PutError::User), "{user}");
        }
        let bob = r#"{"timestamp":"","real_userid":{"domain":"local","user":"bob"}}"#;
        assert_eq!(of(20490, bob), Ok(()), "left out");
        assert_eq!(of(20484, bob), Ok(()), "no user is left out of these");
        writer.step(START);
        assert_eq!(ids(place.path()), [4096, 20484]);
    }
}
