//! The files that belong to a store.

use std::collections::BTreeSet;
use std::io;

use crate::lsm::bytes::FileKind;
use crate::lsm::damage::Damage;
use crate::lsm::files::Files;
use crate::lsm::flush::value_file_name;
use crate::lsm::manifest::{self, Manifest, ManifestContents};
use crate::lsm::open::{check_unfinished, is_ours};
use crate::lsm::row::ValuePlace;
use crate::lsm::tail::{self, Tail, TailFile};

/// The files of a store: those in the manifest, or all that exist if there is no trusted manifest.
pub(crate) struct Inventory {
    /// The readable parts of the manifest.
    pub(crate) manifest: Option<Manifest>,
    /// Whether the manifest is undamaged, and the last one.
    pub(crate) trusted: bool,
    pub(crate) tail: Option<Tail>,
    /// Numbers of runs, with the lengths in the manifest.
    pub(crate) runs: Vec<(u64, Option<u64>)>,
    /// Logs that are not completely in runs, ascending; without a manifest all.
    pub(crate) logs: Vec<u64>,
    /// Files of values, numbered as in [`ValuePlace`], with the lengths in the manifest.
    pub(crate) values: Vec<(u64, Option<u64>)>,
    /// Files that nothing refers to.
    pub(crate) unnamed: Vec<String>,
    /// Damage of manifest and tail.
    pub(crate) damaged: Vec<Damage>,
}

impl Inventory {
    /// Reads manifest, tail and names. `None` if the store was never used.
    ///
    /// # Errors
    /// `Unsupported` for a manifest of a later version; those of the system.
    pub(crate) fn of(files: &dyn Files) -> io::Result<Option<Self>> {
        let mut damaged = Vec::new();
        let read = Manifest::read(files);
        if is_missing(&read) && check_unfinished(files).is_ok() {
            return Ok(None);
        }
        let tail = tail_of(files, &mut damaged)?;
        let known = tail.map_or(0, |tail| tail.manifest);
        let mut wrong = |reason: String| {
            damaged.push(Damage::of(files.path_of(manifest::NAME), reason));
        };
        let (manifest, trusted) = match read {
            Ok(manifest) if manifest.contents.number < known => {
                wrong("it is older than what was written after it".into());
                (Some(manifest), false)
            }
            Ok(manifest) => (Some(manifest), true),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Err(error),
            Err(error) => {
                wrong(reason(&error));
                (Manifest::read_damaged(files).ok(), false)
            }
        };
        let mut found = Self {
            manifest,
            trusted,
            tail,
            runs: Vec::new(),
            logs: Vec::new(),
            values: Vec::new(),
            unnamed: Vec::new(),
            damaged,
        };
        found.sort_names(files)?;
        Ok(Some(found))
    }

    /// Includes all existing files if a file of the manifest is missing.
    pub(crate) fn widen(&mut self, files: &dyn Files) -> io::Result<()> {
        let there = files.list()?;
        if self.names().all(|name| there.contains(&name)) {
            return Ok(());
        }
        self.trusted = false;
        self.sort_names(files)
    }

    /// Returns the contents of a trusted manifest.
    pub(crate) fn contents(&self) -> Option<&ManifestContents> {
        let manifest = self.manifest.as_ref().filter(|_| self.trusted);
        manifest.map(|manifest| &manifest.contents)
    }

    /// Iterates over the names of runs, logs and files of values; a log with values occurs twice.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let runs = self.runs.iter();
        let runs = runs.map(|(number, _)| FileKind::Run.name(*number));
        let logs = self.logs.iter().map(|log| FileKind::Log.name(*log));
        let values = self.values.iter().map(|(file, _)| value_file_name(*file));
        runs.chain(logs).chain(values)
    }

    fn sort_names(&mut self, files: &dyn Files) -> io::Result<()> {
        let contents = self.contents().cloned().unwrap_or_default();
        let runs = contents.runs.iter();
        self.runs = runs
            .map(|(number, bytes)| (*number, Some(*bytes)))
            .collect();
        let values = contents.values.iter();
        self.values = values.map(|(file, bytes)| (*file, Some(*bytes))).collect();
        let first_log = contents.first_log;
        self.logs = self.trusted.then_some(first_log).into_iter().collect();
        self.unnamed = Vec::new();
        let known: BTreeSet<String> = self.names().collect();
        let mut names = files.list()?;
        names.retain(|name| is_ours(name));
        names.sort();
        for name in names {
            let of_log = |number| (ValuePlace::of_log(number), None);
            match FileKind::of_name(&name) {
                Some((FileKind::Log, number)) if number >= first_log => {
                    if !self.logs.contains(&number) {
                        self.logs.push(number);
                    }
                    if !self.trusted {
                        self.values.push(of_log(number));
                    }
                }
                Some((FileKind::Run, number)) if !self.trusted => self.runs.push((number, None)),
                Some((FileKind::Values, number)) if !self.trusted => {
                    self.values.push((ValuePlace::of_values(number), None));
                }
                _ if name == manifest::NAME || name == tail::NAME => {}
                _ if known.contains(&name) => {}
                _ => self.unnamed.push(name),
            }
        }
        self.logs.sort_unstable();
        Ok(())
    }
}

fn is_missing<T>(read: &io::Result<T>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Returns the description of a file's error.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is missing".into(),
        io::ErrorKind::UnexpectedEof => "it is cut".into(),
        _ => error.to_string(),
    }
}

fn tail_of(files: &dyn Files, damaged: &mut Vec<Damage>) -> io::Result<Option<Tail>> {
    let path = files.path_of(tail::NAME);
    let file = match TailFile::open(files) {
        Ok(file) => file,
        Err(error) => {
            damaged.push(Damage::of(path, reason(&error)));
            return Ok(None);
        }
    };
    if !file.is_whole()? {
        damaged.push(Damage::of(path, "a part of it is damaged"));
    }
    Ok(Some(file.tail))
}
