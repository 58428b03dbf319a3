//! The database's lists of tables, verified before the database opens: it believes whatever list `current`
//! names, and removes all files that this list does not.
//!
//! ```text
//! keyspaces/N/current   number of the list that counts (8 bytes), XXH3-128 of the list (16), kind of checksum
//!                       (1, which is 0); little endian
//! keyspaces/N/vM        list M: sections, among them `tables` and `blob_files`; written and synced before
//!                       `current` names it
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lsm_tree::checksum::ChecksummedWriter;

/// The file that names the list which counts.
pub(super) const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;

/// The folders of the files that a list names by their numbers, and its sections of them.
pub(super) const TABLES: &str = "tables";
pub(super) const BLOBS: &str = "blobs";
const TABLES_SECTION: &[u8] = b"tables";
const BLOBS_SECTION: &[u8] = b"blob_files";

/// Keyspaces of the database: its own, with the names of the others, and the one of the rows.
pub(super) const KEYSPACES: &str = "keyspaces";
pub(super) const NAMES: &str = "0";
pub(super) const ROWS: &str = "1";

/// Checksums of files, by their numbers.
type Checksums = BTreeMap<u64, u128>;

/// What the list that counts names.
#[derive(Debug)]
pub(super) struct TableList {
    number: u64,
    tables: Checksums,
    blobs: Checksums,
}

/// What lies in a database beside that which its lists name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    /// The database removes something when it opens.
    pub(super) any: bool,
    /// A list of the rows' tables that `current` does not name yet, as a stop in between leaves it, or not any more.
    pub(super) newer: bool,
}

/// Verifies the lists of a database, looks for the files that they name, and tells what they do not name.
///
/// # Errors
/// `InvalidData` names the file that is missing, is not what was written, or does not belong there.
///
/// Cost: reads lists and directories, and no tables but those of the names.
pub(super) fn check(database: &Path) -> io::Result<Leftovers> {
    let keyspaces = database.join(KEYSPACES);
    for entry in fs::read_dir(&keyspaces)? {
        let entry = entry?;
        let known = [NAMES, ROWS].map(OsStr::new);
        if entry.file_type()?.is_dir() && !known.contains(&&*entry.file_name()) {
            return Err(bad(&entry.path(), "does not belong there"));
        }
    }
    let names = keyspaces.join(NAMES);
    let list = TableList::read(&names)?;
    let mut found = list.leftovers(&names)?;
    if list.tables.is_empty() {
        // A list from before there were any keyspaces: the database would remove them.
        return Err(bad(&names.join(CURRENT), "names a list without tables"));
    }
    list.check_content(&names)?;
    let rows = keyspaces.join(ROWS);
    let of_rows = TableList::read(&rows)?.leftovers(&rows)?;
    found.any |= of_rows.any;
    found.newer = of_rows.newer;
    Ok(found)
}

/// Where the tables of the store in `directory` end, for a refusal: with the file that says so.
pub(super) fn end_of_tables(directory: &Path, flushed: u64) -> String {
    let current = directory
        .join("db")
        .join(KEYSPACES)
        .join(ROWS)
        .join(CURRENT);
    let current = current.display();
    format!("the tables end with journal {flushed}, as {current} has it")
}

/// The first file of the rows that is not what was written, as far as that can be told.
///
/// Cost: reads all tables.
pub(super) fn damaged(database: &Path) -> Option<io::Error> {
    let rows = database.join(KEYSPACES).join(ROWS);
    let list = TableList::read(&rows).and_then(|list| list.check_content(&rows));
    list.err()
        .filter(|error| error.kind() == io::ErrorKind::InvalidData)
}

impl TableList {
    /// Reads the list of a keyspace that counts, and nothing else.
    ///
    /// # Errors
    /// See [`check`].
    pub(super) fn read(keyspace: &Path) -> io::Result<Self> {
        let current = keyspace.join(CURRENT);
        let bytes = fs::read(&current).map_err(|error| missing(error, &current))?;
        let bytes: [u8; CURRENT_BYTES] = bytes
            .try_into()
            .map_err(|_| bad(&current, "has a wrong length"))?;
        let number = u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        let sum = u128::from_le_bytes(std::array::from_fn(|at| bytes[8 + at]));
        let path = keyspace.join(format!("v{number}"));
        let mut file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => bad(
                &current,
                format_args!("names list {number}, which is missing"),
            ),
            _ => error,
        })?;
        if bytes[CURRENT_BYTES - 1] != 0 || checksum(&mut file)? != sum {
            let why = format_args!("does not match its checksum in {}", current.display());
            return Err(bad(&path, why));
        }
        Self::parse(number, &mut file).map_err(|error| bad(&path, error))
    }

    fn parse(number: u64, file: &mut File) -> io::Result<Self> {
        let archive = sfa::Reader::from_reader(file).map_err(io::Error::other)?;
        let mut section = |name: &[u8]| {
            let entry = archive.toc().section(name);
            let entry = entry.ok_or_else(|| io::Error::other("a section is missing"))?;
            file.seek(SeekFrom::Start(entry.pos()))?;
            let mut bytes = Vec::new();
            file.by_ref().take(entry.len()).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(bytes)
        };
        let (tables, blobs) = (section(TABLES_SECTION)?, section(BLOBS_SECTION)?);
        let short = || io::Error::other("a section is too short");
        Ok(Self {
            number,
            tables: parse_tables(&tables).ok_or_else(short)?,
            blobs: parse_blobs(&blobs).ok_or_else(short)?,
        })
    }

    /// Looks for all that is listed, and for what is not.
    fn leftovers(&self, keyspace: &Path) -> io::Result<Leftovers> {
        let mut found = Leftovers::default();
        for entry in fs::read_dir(keyspace)? {
            let name = entry?.file_name();
            let Some(list) = name.to_str().and_then(|name| name.strip_prefix('v')) else {
                continue;
            };
            let number = list.parse().unwrap_or(0);
            found.any |= number != self.number;
            found.newer |= number > self.number;
            if number > self.number + 1 {
                // The list after this one is written anew once a stop came in between, so there is never a
                // second one.
                let current = keyspace.join(CURRENT);
                let why = format_args!(
                    "names list {}, and there is a later one, v{number}",
                    self.number
                );
                return Err(bad(&current, why));
            }
        }
        for (folder, listed) in [(TABLES, &self.tables), (BLOBS, &self.blobs)] {
            found.any |= compare(&keyspace.join(folder), listed)?;
        }
        Ok(found)
    }

    /// Reads all files that are listed.
    ///
    /// # Errors
    /// `InvalidData` names one that is missing or not what was written.
    fn check_content(&self, keyspace: &Path) -> io::Result<()> {
        match self.damaged(keyspace)?.first() {
            Some(path) => Err(bad(path, "is not what was written")),
            None => Ok(()),
        }
    }

    /// The files that are listed, and missing or not what was written.
    ///
    /// Cost: reads all of them.
    pub(super) fn damaged(&self, keyspace: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for (folder, listed) in [(TABLES, &self.tables), (BLOBS, &self.blobs)] {
            for (number, sum) in listed {
                let path = keyspace.join(folder).join(number.to_string());
                let whole = match File::open(&path) {
                    Ok(mut file) => checksum(&mut file)? == *sum,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                    Err(error) => return Err(error),
                };
                if !whole {
                    found.push(path);
                }
            }
        }
        Ok(found)
    }
}

/// Whether a folder has files that are not listed; all that are listed must be there.
fn compare(folder: &Path, listed: &Checksums) -> io::Result<bool> {
    let (mut there, mut others) = (0, false);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound && listed.is_empty() => {
            return Ok(false);
        }
        Err(error) => return Err(missing(error, folder)),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let (Some(number), false) = (number, entry.file_type()?.is_dir()) else {
            return Err(bad(&entry.path(), "does not belong there"));
        };
        let is_listed = listed.contains_key(&number);
        there += usize::from(is_listed);
        others |= !is_listed;
    }
    if there < listed.len() {
        let absent = |number: &&u64| !folder.join(number.to_string()).exists();
        let first = listed.keys().find(absent).copied().unwrap_or_default();
        return Err(bad(&folder.join(first.to_string()), "is missing"));
    }
    Ok(others)
}

/// Levels, of each its runs, of each its tables.
fn parse_tables(mut bytes: &[u8]) -> Option<Checksums> {
    let mut files = Checksums::new();
    for _ in 0..u8::from_le_bytes(take(&mut bytes)?) {
        for _ in 0..u8::from_le_bytes(take(&mut bytes)?) {
            for _ in 0..u32::from_le_bytes(take(&mut bytes)?) {
                let (number, sum) = parse_file(&mut bytes)?;
                let _seqno: [u8; 8] = take(&mut bytes)?;
                files.insert(number, sum);
            }
        }
    }
    Some(files)
}

fn parse_blobs(mut bytes: &[u8]) -> Option<Checksums> {
    let mut files = Checksums::new();
    for _ in 0..u32::from_le_bytes(take(&mut bytes)?) {
        let (number, sum) = parse_file(&mut bytes)?;
        files.insert(number, sum);
    }
    Some(files)
}

/// Number, kind of checksum, checksum.
fn parse_file(bytes: &mut &[u8]) -> Option<(u64, u128)> {
    let number = u64::from_le_bytes(take(bytes)?);
    let [_kind] = take(bytes)?;
    Some((number, u128::from_le_bytes(take(bytes)?)))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn checksum(file: &mut File) -> io::Result<u128> {
    let mut sum = ChecksummedWriter::new(io::sink());
    io::copy(file, &mut sum)?;
    Ok(sum.checksum().into_u128())
}

fn missing(error: io::Error, path: &Path) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => bad(path, "is missing"),
        _ => error,
    }
}

fn bad(path: &Path, what: impl fmt::Display) -> io::Error {
    let reason = format!("{} {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
