//! A check reads everything of a store, and changes nothing.
//!
//! ```text
//!  manifest, tail -> the files of the store
//!  runs     each block, the index, the filters, and the values that rows refer to
//!  logs     each group; also in logs that only hold values
//! ```

mod inventory;
mod states;
mod values;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cipher::EncryptionKeys;
use model::VbId;

use super::bytes::{FileKind, HEADER_BYTES};
use super::damage::{Damage, Keys};
use super::directory::{OpenError, open_error};
use super::files::Files;
use super::flush::value_file_name;
use super::log::{EntryKind, ExistingLog, Searched, lacking_commits};
use super::reading::ReadOnly;
use super::row::{Row, ValuePlace, value_file};
use super::run::{self, CheckEvent, Run};
use super::sealed;

pub(crate) use inventory::{Inventory, reason};
pub(crate) use states::States;
pub(crate) use values::ValueFiles;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Number of vBuckets with a state.
    pub vbuckets: u64,
    /// Number of rows, including superseded ones and removals.
    pub rows: u64,
    /// Number of values stored apart from their rows.
    pub values: u64,
    /// All damage found.
    pub damaged: Vec<Damage>,
    /// Files that nothing refers to: they were unfinished when the process ended. The next opening removes them.
    pub unnamed: Vec<PathBuf>,
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes to read.
    pub bytes_total: u64,
}

/// Checks the store in directory `path`, which must not be open, and reports the progress. Changes nothing.
///
/// # Errors
/// `InUse`, `NewerFormat`, `OlderFormat`, `Foreign`, `Unreadable`, `Key`. Damage is no error.
///
/// Cost: reads each file once, and each value that is stored apart twice.
pub fn check(
    path: &Path,
    keys: Option<&Arc<EncryptionKeys>>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Checked, OpenError> {
    let files = ReadOnly::lock(path, keys)?;
    let checked = check_files(&files, progress);
    let mut checked = checked.map_err(|error| open_error(path, &error))?;
    checked.damaged.extend(files.failures());
    Ok(checked)
}

/// As [`check`], for any files.
///
/// # Errors
/// `Unsupported` for a file of a later version; those of the system.
pub(crate) fn check_files(
    files: &dyn Files,
    progress: &mut dyn FnMut(CheckProgress),
) -> io::Result<Checked> {
    let Some(mut inventory) = Inventory::of(files)? else {
        return Ok(Checked::default());
    };
    let mut check = Check {
        files,
        values: ValueFiles::new(files),
        checked: Checked::default(),
        states: States::default(),
        bytes: 0,
        progress,
    };
    check.checked.damaged = std::mem::take(&mut inventory.damaged);
    let unnamed = inventory.unnamed.iter();
    check.checked.unnamed = unnamed.map(|name| files.path_of(name)).collect();
    check.measure(&inventory)?;
    check.manifest(&inventory);
    check.logs(&inventory)?;
    for (file, bytes) in &inventory.values {
        check.value_file(*file, *bytes, &inventory)?;
    }
    for (number, bytes) in &inventory.runs {
        check.run(*number, *bytes, &inventory)?;
    }
    let states = check.states.vbs.iter();
    check.checked.vbuckets = states.filter(|(_, found)| found.state.is_some()).count() as u64;
    Ok(check.checked)
}

/// A check in progress.
struct Check<'f> {
    files: &'f dyn Files,
    values: ValueFiles<'f>,
    checked: Checked,
    states: States,
    bytes: u64,
    progress: &'f mut dyn FnMut(CheckProgress),
}

impl Check<'_> {
    fn damage(&mut self, name: &str, reason: impl Into<String>) {
        let damage = Damage::of(self.files.path_of(name), reason);
        self.checked.damaged.push(damage);
    }

    /// Records an error as damage, except for errors that end the check.
    fn failed(&mut self, name: &str, error: io::Error) -> io::Result<()> {
        if error.kind() == io::ErrorKind::Unsupported {
            return Err(error);
        }
        let reason = reason(&error);
        let own = format!("{name}: ");
        self.damage(name, reason.strip_prefix(&own).unwrap_or(&reason));
        Ok(())
    }

    fn read(&mut self, bytes: u64) {
        self.bytes += bytes;
        let bytes_total = self.checked.bytes;
        let bytes = self.bytes.min(bytes_total);
        (self.progress)(CheckProgress { bytes, bytes_total });
    }

    /// Counts the files and their bytes.
    fn measure(&mut self, inventory: &Inventory) -> io::Result<()> {
        let mut names: Vec<String> = inventory.names().collect();
        names.push(super::manifest::NAME.into());
        names.push(super::tail::NAME.into());
        names.sort();
        names.dedup();
        for name in names {
            match self.files.open(&name) {
                Ok(file) => {
                    self.checked.files += 1;
                    self.checked.bytes += file.length()?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the states in the manifest.
    fn manifest(&mut self, inventory: &Inventory) {
        let Some(manifest) = &inventory.manifest else {
            return;
        };
        for vb in self.states.read(manifest) {
            let path = self.files.path_of(super::manifest::NAME);
            self.checked.damaged.push(Damage {
                vb: Some(vb),
                ..Damage::of(path, "the state of a vBucket is damaged")
            });
        }
    }

    /// Checks the logs that are not completely in runs.
    fn logs(&mut self, inventory: &Inventory) -> io::Result<()> {
        let contents = inventory.contents();
        let mut last = contents.map(|contents| contents.flushed_group);
        let acknowledged = inventory.tail.map_or(0, |tail| tail.group);
        let (mut name, mut with_groups) = (String::new(), inventory.logs.first().copied());
        for number in &inventory.logs {
            let before = std::mem::replace(&mut name, FileKind::Log.name(*number));
            let is_first = inventory.logs.first() == Some(number);
            let log = match ExistingLog::open_any(self.files, *number) {
                Ok(log) => log,
                Err(error) => {
                    self.failed(&name, error)?;
                    continue;
                }
            };
            let header = ExistingLog::open(self.files, *number).map(drop);
            let Some(found) =
                self.log((&before, &name), &log, last.filter(|_| inventory.trusted))?
            else {
                continue;
            };
            let has_groups = found.groups.end > HEADER_BYTES as u64;
            if let Err(error) = header {
                // A log that was unfinished when the process ended never had groups.
                if is_first || has_groups || last.is_none_or(|last| last < acknowledged) {
                    self.failed(&name, error)?;
                }
            }
            if has_groups {
                (last, with_groups) = (Some(found.groups.last_group), Some(*number));
            }
        }
        let (number, last) = (with_groups.unwrap_or(0), last.unwrap_or(0));
        if let Some(reason) = lacking_commits((number, last), acknowledged) {
            self.damage(&FileKind::Log.name(number), reason);
        }
        Ok(())
    }

    /// Reads all groups of a log after the log `before`; `None` if that failed.
    fn log(
        &mut self,
        (before, name): (&str, &str),
        log: &ExistingLog,
        last: Option<u64>,
    ) -> io::Result<Option<Searched>> {
        let length = log.file.length()?;
        let (states, rows) = (&mut self.states, &mut self.checked.rows);
        let mut values = 0;
        let found = log.search(last, &mut |entry| {
            states.apply(&entry);
            if entry.what == EntryKind::Row {
                *rows += 1;
                values += u64::from(Row::of(entry.body)?.place().is_some());
            }
            Ok(())
        });
        self.checked.values += values;
        self.read(length);
        match found {
            Ok(found) => {
                for missing in &found.missing {
                    let (from, to, groups) = (missing.from, missing.to, missing.groups);
                    if from == to && !before.is_empty() {
                        let reason = format!("its last commits are damaged: {groups} of them");
                        self.damage(before, reason);
                        continue;
                    }
                    let reason = format!("bytes {from} to {to} are damaged: {groups} commits");
                    self.damage(name, reason);
                }
                Ok(Some(found))
            }
            Err(error) => self.failed(name, error).map(|()| None),
        }
    }

    /// Checks a file of values: the header, and of a log the groups.
    fn value_file(
        &mut self,
        file: u64,
        bytes: Option<u64>,
        inventory: &Inventory,
    ) -> io::Result<()> {
        let (name, number) = (value_file_name(file), file >> 1);
        let is_log = file == ValuePlace::of_log(number);
        if is_log && inventory.logs.contains(&number) {
            return Ok(());
        }
        let (kind, _) = value_file(file);
        let opened = match sealed::open_any(self.files, kind, number) {
            Ok(opened) => opened,
            Err(error) => return self.failed(&name, error),
        };
        let length = opened.length()?;
        if let Err(error) = sealed::open(self.files, kind, number) {
            self.failed(&name, error)?;
        }
        let mut end = length;
        if is_log {
            let log = ExistingLog::open_any(self.files, number)?;
            let found = log.search(None, &mut |_| Ok(()))?;
            for missing in &found.missing {
                let reason = format!("bytes {} to {} are damaged", missing.from, missing.to);
                self.damage(&name, reason);
            }
            end = found.groups.end;
        }
        if let Some(bytes) = bytes.filter(|bytes| end < *bytes) {
            let reason = format!("it is whole up to byte {end} instead of {bytes}");
            self.damage(&name, reason);
        }
        self.read(length);
        Ok(())
    }

    /// Checks everything of a run.
    fn run(&mut self, number: u64, bytes: Option<u64>, inventory: &Inventory) -> io::Result<()> {
        let name = FileKind::Run.name(number);
        let opened = self.files.open(&name).and_then(|file| {
            let length = file.length()?;
            Run::open(self.files, number, bytes.unwrap_or(length))
        });
        let run = match opened {
            Ok(run) => run,
            Err(error) => return self.failed(&name, error),
        };
        run::check(&run, &self.files.path_of(&name), &mut |event| match event {
            CheckEvent::Bytes(bytes) => self.read(bytes),
            CheckEvent::Row(vb, row) => self.row(vb, row),
            CheckEvent::Damage(found) => self.checked.damaged.push(found),
        });
        for section in run.sections().iter().filter(|_| inventory.trusted) {
            let state = self.states.get(section.vb);
            let state = state.filter(|stored| stored.state.lineage.epoch == section.epoch);
            if state.is_some_and(|stored| stored.record.high_seqno < section.highest) {
                self.checked.damaged.push(Damage {
                    vb: Some(section.vb),
                    ..Damage::of(
                        self.files.path_of(&name),
                        "it has rows above the high seqno",
                    )
                });
            }
        }
        Ok(())
    }

    /// Checks a row of a run, with the value that it refers to.
    fn row(&mut self, vb: VbId, row: Row<'_>) {
        self.checked.rows += 1;
        let Some(place) = row.place() else { return };
        self.checked.values += 1;
        if let Err(error) = self.values.read(place) {
            let name = value_file_name(place.file);
            self.checked.damaged.push(Damage {
                file: self.files.path_of(&name),
                reason: format!("the value at byte {}: {}", place.offset, reason(&error)),
                vb: Some(vb),
                keys: Keys::One(row.key().to_vec()),
                rows: Some(1),
            });
        }
    }
}
