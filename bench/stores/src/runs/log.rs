//! The logs: groups of rows, each group synced. A log is removed once no value in it is referred to.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{Place, Row, RowKey, Value, run};
use crate::peer::Failure;

/// Values of so many bytes and more are not copied into runs.
const APART_MIN: usize = 1024;

struct Log {
    number: u32,
    file: File,
    bytes: u64,
    /// Bytes of values that runs refer to, as far as merges found out.
    live: u64,
}

pub(super) struct Logs {
    dir: PathBuf,
    /// The oldest first; the last one is written to.
    logs: Vec<Log>,
    group: Vec<u8>,
}

impl Logs {
    pub(super) fn create(dir: &Path) -> Result<Self, Failure> {
        let mut logs = Self {
            dir: dir.to_owned(),
            logs: Vec::new(),
            group: Vec::new(),
        };
        logs.turn()?;
        Ok(logs)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:08}.log"))
    }

    /// Goes on with a new one.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        let number = self.logs.last().map_or(0, |log| log.number + 1);
        let path = self.path(number);
        let file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(path)?;
        self.logs.push(Log {
            number,
            file,
            bytes: 0,
            live: 0,
        });
        Ok(())
    }

    /// Adds a row to the group. Gives it as the index of the log keeps it: a large value by its place.
    pub(super) fn add(&mut self, key: &RowKey, seqno: u64, value: Vec<u8>) -> Row {
        let length = value.len();
        let row = Row {
            seqno,
            value: Value::Here(value),
        };
        run::encode(key, &row, &mut self.group);
        let Some(log) = self.logs.last_mut().filter(|_| length >= APART_MIN) else {
            return row;
        };
        log.live += length as u64;
        let place = Place {
            log: log.number,
            length: length as u32,
            offset: log.bytes + (self.group.len() - length) as u64,
        };
        Row {
            seqno,
            value: Value::There(place),
        }
    }

    /// Writes what was added, with a checksum, and syncs it.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        let Some(log) = self.logs.last_mut() else {
            return Ok(());
        };
        let sum = crc32c::crc32c(&self.group);
        self.group.extend(sum.to_le_bytes());
        log.file.write_all(&self.group)?;
        log.bytes += self.group.len() as u64;
        self.group.clear();
        Ok(log.file.sync_data()?)
    }

    fn log(&mut self, number: u32) -> Option<&mut Log> {
        let at = self.logs.binary_search_by_key(&number, |log| log.number);
        self.logs.get_mut(at.ok()?)
    }

    /// A value is not referred to any more.
    pub(super) fn note_dead(&mut self, place: Place) {
        if let Some(log) = self.log(place.log) {
            log.live -= u64::from(place.length);
        }
    }

    pub(super) fn read(&self, place: Place) -> Result<Vec<u8>, Failure> {
        let at = self.logs.binary_search_by_key(&place.log, |log| log.number);
        let log = at.map_err(|_| "a log is missing")?;
        let mut value = vec![0; place.length as usize];
        self.logs[log]
            .file
            .read_exact_at(&mut value, place.offset)?;
        Ok(value)
    }

    /// Where a row's value is from a merge on: in the last log, if most of its own is dead.
    pub(super) fn keep(&mut self, key: &RowKey, row: Row) -> Result<Row, Failure> {
        let Value::There(place) = row.value else {
            return Ok(row);
        };
        let last = self.logs.last().map(|log| log.number);
        let mostly_dead = self
            .log(place.log)
            .is_some_and(|log| log.live < log.bytes / 2);
        if !mostly_dead || last == Some(place.log) {
            return Ok(row);
        }
        let value = self.read(place)?;
        self.note_dead(place);
        let moved = self.add(key, row.seqno, value);
        if self.group.len() > 1 << 20 {
            self.sync()?;
        }
        Ok(moved)
    }

    /// Removes the logs that nothing refers to, but for the last one.
    pub(super) fn remove_dead(&mut self) -> Result<(), Failure> {
        let last = self.logs.len() - 1;
        for log in &self.logs[..last] {
            if log.live == 0 {
                std::fs::remove_file(self.path(log.number))?;
            }
        }
        let last = self.logs[last].number;
        self.logs.retain(|log| log.live > 0 || log.number == last);
        Ok(())
    }
}
