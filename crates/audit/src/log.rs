//! The files of the audit log: the current one and the closed ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stamp::seconds;

/// Suffix of the names of all files.
const ENDING: &str = "-audit.log";
/// Name of the symbolic link to the current file.
const CURRENT: &str = "current-audit.log";
/// Largest number of files that may start in the same second.
const SAME_SECOND_MAX: u32 = 10_000;

/// Limits at which a file is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    /// Age limit in seconds; 0 for none.
    pub(crate) interval_s: u64,
    /// Size limit in bytes; 0 for none.
    pub(crate) size: u64,
}

/// An open file.
#[derive(Debug)]
struct OpenFile {
    file: File,
    bytes: u64,
    opened_ns: u64,
}

/// The files in a directory.
#[derive(Debug)]
pub(crate) struct Log {
    directory: PathBuf,
    host: String,
    open: Option<OpenFile>,
}

impl Log {
    /// Creates the log. The first write opens a file.
    pub(crate) fn new(directory: PathBuf, host: &str) -> Self {
        Self {
            directory,
            // The host becomes part of a file name.
            host: host.replace(['/', '\0'], "_"),
            open: None,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends whole lines in one write. If it fails, truncates the part that was written.
    pub(crate) fn write(&mut self, lines: &[u8], unix_ns: u64) -> io::Result<()> {
        if self.open.is_none() {
            self.open = Some(OpenFile {
                file: self.create(unix_ns / 1_000_000_000)?,
                bytes: 0,
                opened_ns: unix_ns,
            });
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        match open.file.write_all(lines) {
            Ok(()) => {
                open.bytes += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If the truncation fails too, later lines go to another file, so that half a line can only be a
                // last one.
                if open.file.set_len(open.bytes).is_err() || open.bytes == 0 {
                    self.close();
                }
                Err(error)
            }
        }
    }

    /// Closes the file if it has reached a limit. Returns whether it did.
    pub(crate) fn rotate(&mut self, by: Rotation, unix_ns: u64) -> bool {
        let due = self.open.as_ref().is_some_and(|open| {
            let full = by.size > 0 && open.bytes > by.size;
            let ends_ns = open
                .opened_ns
                .saturating_add(by.interval_s.saturating_mul(1_000_000_000));
            full || by.interval_s > 0 && unix_ns >= ends_ns
        });
        if due {
            self.close();
        }
        due
    }

    /// Returns the time at which the file reaches its age limit, if there is one.
    pub(crate) fn rotates_at_ns(&self, by: Rotation) -> Option<u64> {
        let open = self.open.as_ref().filter(|_| by.interval_s > 0)?;
        Some(
            open.opened_ns
                .saturating_add(by.interval_s.saturating_mul(1_000_000_000)),
        )
    }

    /// Closes the file. Removes it if it is empty.
    pub(crate) fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        let link = self.directory.join(CURRENT);
        if let Ok(name) = fs::read_link(&link) {
            let emptied = open.bytes == 0;
            let removed = fs::remove_file(&link);
            let kept = !emptied || fs::remove_file(self.directory.join(name)).is_err();
            tracing::debug!(?removed, kept, "a file of the audit log is closed");
        }
    }

    /// Removes closed files last written at least `age_s` seconds ago. Returns their number.
    pub(crate) fn prune(&self, age_s: u64, unix_ns: u64) -> io::Result<usize> {
        let before = Duration::from_nanos(unix_ns).checked_sub(Duration::from_secs(age_s));
        let before: SystemTime = UNIX_EPOCH + before.unwrap_or_default();
        let current = fs::read_link(self.directory.join(CURRENT)).ok();
        let own = format!("{}-", self.host);
        let mut removed = 0;
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let text = name.to_string_lossy();
            let is_closed = current.as_ref().is_none_or(|open| *open != *name);
            let is_ours = text.starts_with(&own) && text.ends_with(ENDING) && is_closed;
            let Ok(about) = entry.metadata() else {
                continue;
            };
            if is_ours && about.is_file() && about.modified()? <= before {
                fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Creates the next file, and the link to it.
    fn create(&self, unix_s: u64) -> io::Result<File> {
        let stem = format!("{}-{}", self.host, seconds(unix_s, '-'));
        for number in 0..SAME_SECOND_MAX {
            let name = match number {
                0 => format!("{stem}{ENDING}"),
                _ => format!("{stem}-{number}{ENDING}"),
            };
            match create_new(&self.directory.join(&name)) {
                Ok(file) => {
                    self.link(&name);
                    return Ok(file);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Replaces the link to the current file. The link is only a convenience: an error is logged and ignored,
    /// since some file systems have no links.
    fn link(&self, name: &str) {
        let link = self.directory.join(CURRENT);
        let is_link = fs::symlink_metadata(&link).is_ok_and(|about| about.is_symlink());
        let removed = if is_link {
            fs::remove_file(&link)
        } else {
            Ok(())
        };
        #[cfg(unix)]
        let linked = removed.and_then(|()| std::os::unix::fs::symlink(name, &link));
        #[cfg(not(unix))]
        let linked = removed.map(|()| name);
        if let Err(error) = linked {
            tracing::debug!(%error, "no link to the current file of the audit log");
        }
    }
}

/// Creates a file that only its owner may read.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// 2024-05-06T07:08:09Z.
    const START: u64 = 1_714_979_289 * SECOND;
    const NEVER: Rotation = Rotation {
        interval_s: 0,
        size: 0,
    };

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != CURRENT).collect();
        names.sort();
        names
    }

    #[test]
    fn files_have_host_and_time_in_name_and_link_to_current_file() {
        let place = tempfile::tempdir().unwrap();
        let mut log = Log::new(place.path().into(), "h/ost");
        assert!(
            names(place.path()).is_empty(),
            "nothing before the first line"
        );
        log.write(b"1\n", START).unwrap();
        let link = place.path().join(CURRENT);
        assert_eq!(fs::read(&link).unwrap(), b"1\n");
        log.close();
        assert!(
            fs::symlink_metadata(&link).is_err(),
            "the link goes with the file"
        );
        for line in [&b"2\n"[..], b"3\n"] {
            log.write(line, START + 5).unwrap();
            assert_eq!(fs::read(&link).unwrap(), line);
            log.close();
        }
        let of = |middle: &str| format!("h_ost-2024-05-06T07-08-09{middle}-audit.log");
        assert_eq!(names(place.path()), [of("-1"), of("-2"), of("")]);
    }

    #[test]
    fn a_file_ends_by_its_size_or_its_age() {
        let place = tempfile::tempdir().unwrap();
        let mut log = Log::new(place.path().into(), "h");
        let by = Rotation {
            interval_s: 60,
            size: 4,
        };
        assert!(!log.rotate(by, START), "there is none");
        log.write(b"1\n2\n", START).unwrap();
        assert!(
            !log.rotate(by, START + 59 * SECOND),
            "as large as it may be"
        );
        assert_eq!(log.rotates_at_ns(by), Some(START + 60 * SECOND));
        assert!(!log.rotate(NEVER, START + 1000 * SECOND));
        assert_eq!(log.rotates_at_ns(NEVER), None);
        log.write(b"3\n", START).unwrap();
        assert!(log.rotate(by, START));
        log.write(b"4\n", START + SECOND).unwrap();
        assert!(!log.rotate(by, START + 60 * SECOND));
        assert!(log.rotate(by, START + 61 * SECOND));
        assert_eq!(names(place.path()).len(), 2);
    }

    #[test]
    fn old_closed_files_of_this_host_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut log = Log::new(place.path().into(), "h");
        let made = [
            ("h-x-audit.log", 100),
            ("h-y-audit.log", 99),
            ("g-x-audit.log", 500),
            ("h-x.log", 500),
        ];
        for (name, age_s) in made {
            let file = File::create(place.path().join(name)).unwrap();
            let written = UNIX_EPOCH + Duration::from_nanos(START) - Duration::from_secs(age_s);
            file.set_modified(written).unwrap();
        }
        log.write(b"1\n", START).unwrap();
        let open = fs::read_link(place.path().join(CURRENT)).unwrap();
        let file = File::options()
            .append(true)
            .open(place.path().join(open))
            .unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(log.prune(100, START).unwrap(), 1);
        assert_eq!(names(place.path()).len(), 4);
        assert!(!place.path().join("h-x-audit.log").exists());
        log.close();
        assert_eq!(log.prune(100, START).unwrap(), 1, "the file that was open");
    }

    #[test]
    fn log_fails_until_directory_is_writable() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let mut log = Log::new(missing.clone(), "h");
        assert!(log.write(b"1\n", START).is_err());
        assert!(log.prune(1, START).is_err());
        fs::create_dir(&missing).unwrap();
        log.write(b"2\n", START).unwrap();
        assert_eq!(names(&missing).len(), 1);
    }
}
