//! The directory of a store: what lies in it, and its lock. Drawn in `docs/format/directory.md`.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::table_lists::{CURRENT, KEYSPACES, NAMES, ROWS};
use super::{durable_tails, manifest, names, value_log};
use crate::disk::journal_files::{journals, path_of};
use crate::error::one_line;

/// The version of a directory that never had a manifest.
const FORMAT_VERSION: u32 = 11;

/// What is added from the first manifest on: a directory that has none then lost it.
const MANIFEST: u32 = 1;

/// What is added from the first row of a history on: releases that know of none would leave such
/// rows behind.
const HISTORY: u32 = 2;

/// The latest version that this release reads.
const FORMAT_VERSION_MAX: u32 = FORMAT_VERSION + MANIFEST + HISTORY;

/// The earlier versions that it reads, and makes ones of its own: 1 had no journal, 2 a single one;
/// from 3 to 6 there was no value log, and `MANIFEST` and `HISTORY` were added to 3; from 7 to 10 only runs
/// refer to such rows, and a merge of those lets go of all.
const FORMAT_VERSION_MIN: u32 = 1;
const FORMAT_WITH_JOURNALS: u32 = 3;
const FORMAT_WITH_KEPT: u32 = 7;

/// The first words of the format file.
const FORMAT_WORDS: &str = "settee storage";

/// How often the lock is tried: the process that had it may be ending just now, or a program that it started may
/// hold it for the moment between its beginning and its own files.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
const CREATING: &str = "CREATING";
const CLEAN: &str = "CLEAN";
const POISONED: &str = "POISONED";
const TAILS: &str = "tails";
const DATABASE: &str = "db";

/// Why a store could not be opened; `Display` is one line that starts with the path.
#[derive(Debug)]
pub struct OpenError {
    /// The directory of the store.
    pub path: PathBuf,
    /// What the operator has to look at.
    pub kind: OpenErrorKind,
    /// What exactly is wrong.
    pub reason: String,
}

/// Why a store could not be opened. In no case has a file in it been changed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenErrorKind {
    /// Another process has it open.
    InUse,
    /// A later release wrote it.
    NewerFormat,
    /// The directory holds something else than a store.
    Foreign,
    /// It may not be read or written.
    Unreadable,
    /// What is in it is damaged.
    Damaged,
    /// The file system is full.
    NoSpace,
    /// Any other input or output error.
    Io,
}

impl OpenError {
    pub(crate) fn new(path: &Path, kind: OpenErrorKind, reason: &str) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            reason: reason.to_owned(),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.kind {
            OpenErrorKind::InUse => "in use by another process",
            OpenErrorKind::NewerFormat => "written by a later release",
            OpenErrorKind::Foreign => "not a data directory of Settee",
            OpenErrorKind::Unreadable => "cannot be read and written",
            OpenErrorKind::Damaged => "damaged",
            OpenErrorKind::NoSpace => "no space left on device",
            OpenErrorKind::Io => "input/output error",
        };
        write!(f, "{}: {words}", self.path.display())?;
        if !self.reason.is_empty() {
            write!(f, ": {}", one_line(&self.reason))?;
        }
        if self.kind == OpenErrorKind::Damaged {
            write!(
                f,
                "; nothing was changed, settee salvage copies what is left"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for OpenError {}

/// What the content of a directory says it is.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// Nothing.
    Empty,
    /// A store whose creation was cut short; it never held data.
    Unfinished,
    /// A store of this version of the format, and what is noted of it.
    Store(Noted),
    /// A store of an earlier version that can be read.
    OldStore(Noted, Journals),
}

/// What journals are to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Journals {
    /// There may be none.
    Unknown,
    /// They are replayed by opening.
    Replayed,
    /// Runs may refer to rows in those of the value log.
    Kept,
    /// All tables may.
    Left,
}

/// What the format file says of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Noted {
    /// A manifest belongs to it.
    manifest: bool,
    /// It has, or had, rows of a history.
    history: bool,
}

impl Noted {
    /// What was added to the first version of its kind.
    fn of(added: u32) -> Self {
        Self {
            manifest: added & MANIFEST > 0,
            history: added & HISTORY > 0,
        }
    }

    fn version(self) -> u32 {
        FORMAT_VERSION + u32::from(self.manifest) * MANIFEST + u32::from(self.history) * HISTORY
    }
}

/// The directory of a store, locked for this process.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Held for the lock on it.
    _lock: File,
    /// Whether the store is a new one.
    pub(super) fresh: bool,
    /// Whether the last stop was one in order, and nothing was written since. If not, files may
    /// read as they are in memory only, even when a sync of them succeeds now.
    pub(super) clean: bool,
    /// What failed, if that stop came after a failed sync.
    pub(super) poisoned: Option<String>,
    /// Whether the format file is still to be written.
    unmarked: bool,
    journals: Journals,
    noted: Noted,
}

impl Directory {
    /// Checks `path`, locks it, and clears away what a creation that was cut short left.
    ///
    /// # Errors
    /// Any kind but `Damaged`; nothing has been changed then, except that missing directories of
    /// the path were made.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let probe = Probe { path };
        // Also those above: the process that made them may have died before their names were synced.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        probe.io(
            above.map_or(Ok(()), names::make_directories),
            "making the directory",
        )?;
        probe.io(names::make_directories(path), "making the directory")?;
        probe.content()?;
        let lock = probe.take_lock()?;
        // Again, now that no other process changes it.
        let content = probe.content()?;
        if content == Content::Unfinished {
            let tails = durable_tails::read(&path.join(TAILS));
            if !probe.io(tails, "reading tails")?.is_empty() {
                let reason = format!("{} is missing", path.join(FORMAT).display());
                return Err(probe.error(OpenErrorKind::Damaged, reason));
            }
            probe.io(clear_unfinished(path), "clearing an unfinished store")?;
        }
        let fresh = matches!(content, Content::Empty | Content::Unfinished);
        let poisoned = match fs::read(path.join(POISONED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(probe.io(read, "reading POISONED")?),
        };
        let poisoned = poisoned.map(|text| String::from_utf8_lossy(&text).into_owned());
        if fresh {
            probe.io(names::create(&path.join(CREATING)), "marking a new store")?;
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            fresh,
            clean: probe.io(path.join(CLEAN).try_exists(), "looking for CLEAN")?
                && poisoned.is_none(),
            poisoned,
            unmarked: fresh || matches!(content, Content::OldStore(..)),
            journals: match content {
                Content::Store(_) => Journals::Left,
                Content::OldStore(_, journals) => journals,
                Content::Empty | Content::Unfinished => Journals::Unknown,
            },
            noted: match content {
                Content::Store(noted) | Content::OldStore(noted, _) => noted,
                _ => Noted::default(),
            },
        })
    }

    /// The directory of the database proper.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Looks for the files that tell what the database has: without one of them it would take what
    /// is there for the rest of something, and clear it away.
    ///
    /// # Errors
    /// `InvalidData` names the one that is missing.
    pub(crate) fn check_database(&self) -> io::Result<()> {
        if self.fresh {
            return Ok(());
        }
        let there = |path: &Path| {
            if path.try_exists()? {
                return Ok(());
            }
            let reason = format!("{} is missing", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, reason))
        };
        if self.noted.manifest {
            there(&self.path.join(manifest::NAME))?;
        }
        if self.journals >= Journals::Kept {
            there(&self.path.join(value_log::NAME))?;
        }
        let database = self.database();
        let keyspaces = database.join(KEYSPACES);
        there(&database)?;
        there(&database.join("version"))?;
        there(&keyspaces)?;
        for number in [NAMES, ROWS] {
            there(&keyspaces.join(number).join(CURRENT))?;
        }
        for entry in fs::read_dir(&database)? {
            if entry?.path().extension().is_some_and(|of| of == "jnl") {
                return Ok(());
            }
        }
        // It has the names of the keyspaces.
        there(&database.join("0.jnl"))
    }

    /// Whether a journal belongs to it: not before the first opening by a release that keeps one.
    pub(crate) fn has_journal(&self) -> bool {
        self.journals >= Journals::Replayed
    }

    /// Whether tables may refer to journals: not before the directory is of this version.
    pub(crate) fn keeps_journals(&self) -> bool {
        self.journals == Journals::Left
    }

    /// The file of the last acknowledged commits.
    pub(crate) fn tails(&self) -> PathBuf {
        self.path.join(TAILS)
    }

    /// The journal of a generation.
    pub(crate) fn journal(&self, generation: u64) -> PathBuf {
        path_of(&self.path, generation)
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Finishes the creation of a fresh store, or makes an old one one of this version; takes the mark of a clean stop away, and tells
    /// whether there was one.
    pub(crate) fn begin(&mut self) -> io::Result<bool> {
        if self.unmarked {
            if !self.path.join(value_log::NAME).try_exists()? {
                value_log::make_list(&self.path)?;
            }
            self.write_format(self.noted)?;
            (self.fresh, self.unmarked, self.journals) = (false, false, Journals::Left);
        }
        // A stop came in between, or a release that did not note it wrote the manifest.
        if self.path.join(manifest::NAME).try_exists()? {
            self.note_manifest()?;
        }
        // Beside FORMAT it means nothing: should it come back, that is no harm.
        names::remove_unsynced(&self.path.join(CREATING))?;
        names::remove_unsynced(&self.path.join(CLEAN))?;
        names::remove_unsynced(&self.path.join(POISONED))?;
        names::sync(&self.path)?;
        Ok(std::mem::take(&mut self.clean))
    }

    /// Notes, as well as that can be done, that a sync failed.
    pub(crate) fn note_poisoned(&self, reason: &str) {
        let path = self.path.join(POISONED);
        if let Err(error) = names::replace(&path, one_line(&reason).as_bytes()) {
            tracing::warn!(%error, "cannot note that a sync failed");
        }
    }

    /// Makes all names durable, also those that the database gave: it does not do so for each, and
    /// the process that gave them may have died before it did.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        let database = self.database();
        let keyspaces = database.join(KEYSPACES);
        for entry in fs::read_dir(&keyspaces)? {
            let keyspace = entry?.path();
            for folder in fs::read_dir(&keyspace)? {
                let folder = folder?.path();
                if folder.is_dir() {
                    names::sync(&folder)?;
                }
            }
            names::sync(&keyspace)?;
        }
        names::sync(&keyspaces)?;
        names::sync(&database)?;
        names::sync(&self.path)
    }

    /// Notes, unless that was done before, that a manifest belongs to the store; it is there by now.
    pub(crate) fn note_manifest(&mut self) -> io::Result<()> {
        self.note(Noted {
            manifest: true,
            ..self.noted
        })
    }

    /// Notes, unless that was done before, that the store may have rows of a history.
    pub(crate) fn note_history(&mut self) -> io::Result<()> {
        self.note(Noted {
            history: true,
            ..self.noted
        })
    }

    /// Whether the store has, or had, rows of a history.
    pub(crate) fn has_history(&self) -> bool {
        self.noted.history
    }

    fn note(&mut self, noted: Noted) -> io::Result<()> {
        if self.noted != noted {
            self.write_format(noted)?;
            self.noted = noted;
        }
        Ok(())
    }

    fn write_format(&self, noted: Noted) -> io::Result<()> {
        let text = format!("{FORMAT_WORDS} {}\n", noted.version());
        names::replace(&self.path.join(FORMAT), text.as_bytes())
    }

    /// Notes that the store stopped in order.
    pub(crate) fn mark_clean(&self) -> io::Result<()> {
        names::create(&self.path.join(CLEAN)).map(drop)
    }
}

/// The file of the last acknowledged commits of a store that is not opened.
pub(crate) fn tails_of(path: &Path) -> PathBuf {
    path.join(TAILS)
}

/// Whether the format file of a store that is not opened says that a manifest belongs to it.
pub(crate) fn is_manifest_noted(path: &Path) -> bool {
    matches!(
        Probe { path }.check_format(),
        Ok(Content::Store(noted) | Content::OldStore(noted, _)) if noted.manifest
    )
}

struct Probe<'a> {
    path: &'a Path,
}

impl Probe<'_> {
    fn error(&self, kind: OpenErrorKind, reason: impl fmt::Display) -> OpenError {
        OpenError::new(self.path, kind, &reason.to_string())
    }

    fn io<T>(&self, result: io::Result<T>, during: &str) -> Result<T, OpenError> {
        result.map_err(|error| self.error(io_kind(&error), format_args!("{during}: {error}")))
    }

    fn take_lock(&self) -> Result<File, OpenError> {
        let file = names::open_or_create(&self.path.join(LOCK));
        let file = self.io(file, "opening LOCK")?;
        for tried in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tried < LOCK_TRIES => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => return Err(self.error(OpenErrorKind::InUse, "")),
                Err(TryLockError::Error(error)) => return self.io(Err(error), "locking LOCK"),
            }
        }
        Ok(file)
    }

    fn content(&self) -> Result<Content, OpenError> {
        let mut content = Content::Empty;
        let mut stranger = None;
        for entry in self.io(fs::read_dir(self.path), "listing")? {
            let name = self.io(entry, "listing")?.file_name();
            match name.to_str() {
                Some(FORMAT) => {
                    return self.check_format();
                }
                Some(CREATING) => content = Content::Unfinished,
                Some(LOCK) => {}
                _ => stranger = Some(name),
            }
        }
        match stranger {
            Some(name) if content == Content::Empty => {
                let reason = format!("it holds {} and no FORMAT file", name.display());
                Err(self.error(OpenErrorKind::Foreign, reason))
            }
            _ => Ok(content),
        }
    }

    fn check_format(&self) -> Result<Content, OpenError> {
        let bytes = self.io(fs::read(self.path.join(FORMAT)), "reading FORMAT")?;
        let version = str::from_utf8(&bytes).ok().and_then(|text| {
            text.trim_end()
                .strip_prefix(FORMAT_WORDS)?
                .trim()
                .parse()
                .ok()
        });
        match version {
            Some(FORMAT_VERSION_MIN..FORMAT_WITH_JOURNALS) => {
                Ok(Content::OldStore(Noted::default(), Journals::Unknown))
            }
            Some(version @ FORMAT_WITH_JOURNALS..FORMAT_WITH_KEPT) => {
                let noted = Noted::of(version - FORMAT_WITH_JOURNALS);
                Ok(Content::OldStore(noted, Journals::Replayed))
            }
            Some(version @ FORMAT_WITH_KEPT..FORMAT_VERSION) => {
                let noted = Noted::of(version - FORMAT_WITH_KEPT);
                Ok(Content::OldStore(noted, Journals::Kept))
            }
            Some(version @ FORMAT_VERSION..=FORMAT_VERSION_MAX) => {
                Ok(Content::Store(Noted::of(version - FORMAT_VERSION)))
            }
            Some(version @ 1..) => {
                let reason = format!(
                    "its FORMAT file has format {version}, this release reads {FORMAT_VERSION_MAX}"
                );
                Err(self.error(OpenErrorKind::NewerFormat, reason))
            }
            _ => Err(self.error(OpenErrorKind::Foreign, "its FORMAT file is not ours")),
        }
    }
}

/// What an error means for an opening.
pub(crate) fn io_kind(error: &io::Error) -> OpenErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenErrorKind::NoSpace,
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotFound => OpenErrorKind::Unreadable,
        _ => OpenErrorKind::Io,
    }
}

/// Bytes that ordinary users may still write to the file system of `path`.
pub(crate) fn available_bytes(path: &Path) -> io::Result<u64> {
    fs4::available_space(path)
}

/// Bytes of all files below `path`, holes not counted. Files that vanish meanwhile count nothing.
pub(crate) fn bytes_below(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_below(&entry.path())?,
            Ok(meta) => meta.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
}

fn clear_unfinished(path: &Path) -> io::Result<()> {
    names::remove_tree(&path.join(DATABASE))?;
    for (_, journal) in journals(path)? {
        names::remove_unsynced(&journal)?;
    }
    names::remove_unsynced(&path.join(value_log::NAME))?;
    names::remove(&path.join(TAILS)).map(drop)
}
