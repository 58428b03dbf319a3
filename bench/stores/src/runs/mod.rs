//! A prototype: a log, and sorted runs of blocks with a filter each. By key inside a vBucket; a walk in the order of
//! seqnos sorts one vBucket at a time in memory. Values of a KiB and more stay in the log they were written to, until a
//! merge finds that most of it is dead. No recovery, no snapshots.

mod log;
mod merge;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::VbId;

use crate::peer::{Failure, Key, Peer};
use log::Logs;
use merge::Merge;
use run::{Run, Writer};

/// Bytes of rows in the log at which they become a run.
const LOG_BYTES: usize = 32 << 20;
/// So many runs of one class become one of the next.
const RUNS_MAX: usize = 8;
const VBUCKETS: u16 = 1024;

/// vBucket and key.
pub(crate) type RowKey = [u8; 18];

/// What is kept of a document.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) seqno: u64,
    pub(crate) value: Value,
}

/// A value, or where it is.
#[derive(Clone)]
pub(crate) enum Value {
    Here(Vec<u8>),
    There(Place),
}

/// Where a value is among the logs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) log: u32,
    pub(crate) length: u32,
    pub(crate) offset: u64,
}

pub struct Runs {
    dir: PathBuf,
    logs: Logs,
    /// What the log holds, by key.
    recent: BTreeMap<RowKey, Row>,
    recent_bytes: usize,
    /// The youngest first. The number is the class: a run of class n holds up to 8^n logs.
    runs: Vec<(u32, Run)>,
    number: u64,
    seqno: u64,
}

fn row_key(key: &Key) -> RowKey {
    let mut row = [0; 18];
    row[..2].copy_from_slice(&VbId::of_key(key, VBUCKETS).0.to_be_bytes());
    row[2..].copy_from_slice(key);
    row
}

impl Runs {
    fn value(&self, value: Value) -> Result<Vec<u8>, Failure> {
        match value {
            Value::Here(value) => Ok(value),
            Value::There(place) => self.logs.read(place),
        }
    }

    fn next_path(&mut self) -> PathBuf {
        self.number += 1;
        self.dir.join(format!("{:08}.run", self.number))
    }

    /// Makes a run of what the log holds.
    fn flush(&mut self) -> Result<(), Failure> {
        let mut writer = Writer::create(self.next_path())?;
        for (key, row) in std::mem::take(&mut self.recent) {
            writer.add(&key, &row)?;
        }
        self.recent_bytes = 0;
        self.runs.insert(0, (0, writer.finish()?));
        self.logs.turn()?;
        self.merge_full_classes()?;
        self.logs.remove_dead()
    }

    fn merge_full_classes(&mut self) -> Result<(), Failure> {
        let mut class = 0;
        loop {
            let first = self.runs.iter().position(|(of, _)| *of == class);
            let count = self.runs.iter().filter(|(of, _)| *of == class).count();
            let Some(first) = first.filter(|_| count >= RUNS_MAX) else {
                if first.is_none() {
                    return Ok(());
                }
                class += 1;
                continue;
            };
            let mut writer = Writer::create(self.next_path())?;
            let merged: Vec<Run> = self
                .runs
                .drain(first..first + count)
                .map(|run| run.1)
                .collect();
            for row in Merge::of(&merged)? {
                let (key, row, superseded) = row?;
                match (row.value, superseded) {
                    (Value::There(place), true) => self.logs.note_dead(place),
                    (_, true) => {}
                    (value, false) => {
                        let row = Row { value, ..row };
                        writer.add(&key, &self.logs.keep(&key, row)?)?;
                    }
                }
            }
            self.logs.sync()?;
            self.runs.insert(first, (class + 1, writer.finish()?));
            for run in merged {
                run.remove()?;
            }
        }
    }

    /// Documents of one vBucket, by seqno.
    fn vbucket(&self, vb: u16) -> Result<Vec<(RowKey, Row)>, Failure> {
        let mut from = [0; 18];
        from[..2].copy_from_slice(&vb.to_be_bytes());
        let mut newest: BTreeMap<RowKey, Row> = BTreeMap::new();
        let inside = |key: &RowKey| key[..2] == from[..2];
        let recent = self.recent.range(from..).take_while(|(key, _)| inside(key));
        newest.extend(recent.map(|(key, row)| (*key, row.clone())));
        for (_, run) in &self.runs {
            for row in run.from(&from)? {
                let (key, row) = row?;
                if !inside(&key) {
                    break;
                }
                newest.entry(key).or_insert(row);
            }
        }
        let mut rows: Vec<_> = newest.into_iter().collect();
        rows.sort_unstable_by_key(|(_, row)| row.seqno);
        Ok(rows)
    }

    /// Bytes of filters and indexes for each row.
    fn report(&self) {
        let rows: u64 = self.runs.iter().map(|(_, run)| run.rows()).sum();
        let bytes: usize = self.runs.iter().map(|(_, run)| run.memory_bytes()).sum();
        let reads: u64 = self.runs.iter().map(|(_, run)| run.reads()).sum();
        let each = bytes as f64 / rows.max(1) as f64;
        println!(
            "| runs | {} runs of {rows} rows: {each:.2} bytes of memory a row; {reads} blocks read by gets | | | |",
            self.runs.len()
        );
    }
}

impl Peer for Runs {
    fn open(dir: &Path) -> Result<Self, Failure> {
        Ok(Self {
            dir: dir.to_owned(),
            logs: Logs::create(dir)?,
            recent: BTreeMap::new(),
            recent_bytes: 0,
            runs: Vec::new(),
            number: 0,
            seqno: 0,
        })
    }

    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure> {
        for (key, value) in documents {
            self.seqno += 1;
            let key = row_key(key);
            self.recent_bytes += value.len();
            let row = self.logs.add(&key, self.seqno, value.clone());
            let before = self.recent.insert(key, row);
            if let Some(Value::There(place)) = before.map(|row| row.value) {
                self.logs.note_dead(place);
            }
        }
        self.logs.sync()?;
        if self.recent_bytes >= LOG_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure> {
        let key = row_key(key);
        if let Some(row) = self.recent.get(&key) {
            return self.value(row.value.clone()).map(Some);
        }
        let hash = run::hash(&key);
        for (_, run) in &self.runs {
            if let Some(row) = run.get(&key, hash)? {
                return self.value(row.value).map(Some);
            }
        }
        Ok(None)
    }

    fn walk(&mut self) -> Result<u64, Failure> {
        self.report();
        let mut count = 0;
        for vb in 0..VBUCKETS {
            for (_, row) in self.vbucket(vb)? {
                self.value(row.value)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn range(&mut self, _: &Key, _: usize) -> Result<Option<usize>, Failure> {
        Ok(None)
    }

    fn close(self) -> Result<(), Failure> {
        Ok(())
    }
}
