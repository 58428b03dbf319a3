//! What is to go wrong.

use std::collections::BTreeMap;
use std::io;

use crate::ErrorKind;

/// Errors of the system.
pub(crate) const EIO: i32 = 5;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;

/// What is asked of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OpKind {
    Create,
    Open,
    Rename,
    Remove,
    List,
    SyncNames,
    FreeBytes,
    Read,
    Write,
    Length,
    DiskBytes,
    SetLength,
    Sync,
}

impl OpKind {
    /// Whether it changes something.
    pub(crate) fn changes(self) -> bool {
        use OpKind::{Create, Remove, Rename, SetLength, Sync, SyncNames, Write};
        matches!(
            self,
            Create | Rename | Remove | SyncNames | Write | SetLength | Sync
        )
    }
}

/// How an operation goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// This error of the system; a part of it may have happened.
    Error(i32),
    /// It is said to have succeeded; of a sync nothing happened, of a write a part.
    Lie,
}

impl Mishap {
    pub(super) fn answer(self) -> io::Result<()> {
        match self {
            Self::Error(code) => Err(io::Error::from_raw_os_error(code)),
            Self::Lie => Ok(()),
        }
    }
}

/// Operations that go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Of which kind; `None` for all.
    pub(crate) of: Option<OpKind>,
    /// Only of files whose names begin so. They count among those of their kind.
    pub(crate) named: &'static str,
    /// The first of them, counted from 0 among those of its kind.
    pub(crate) from: u64,
    /// How many.
    pub(crate) count: u64,
    /// What becomes of them.
    pub(crate) mishap: Mishap,
}

/// All that is to go wrong, and what was asked up to here.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) faults: Vec<Fault>,
    counts: BTreeMap<OpKind, u64>,
    total: u64,
    /// What went wrong.
    pub(crate) met: Vec<OpKind>,
}

impl Plan {
    /// How many operations of a kind there were; of `None`, of all.
    pub(crate) fn count(&self, of: Option<OpKind>) -> u64 {
        of.map_or(self.total, |kind| {
            self.counts.get(&kind).copied().unwrap_or(0)
        })
    }

    /// Counts an operation on a file of some name; tells what becomes of it.
    pub(super) fn next(&mut self, kind: OpKind, name: impl Fn() -> String) -> Option<Mishap> {
        let of_kind = self.counts.entry(kind).or_default();
        let (number, total) = (*of_kind, self.total);
        *of_kind += 1;
        self.total += 1;
        let hit = |fault: &&Fault| {
            let at = if fault.of.is_none() { total } else { number };
            fault.of.is_none_or(|of| of == kind)
                && (fault.from..fault.from.saturating_add(fault.count)).contains(&at)
                && (fault.named.is_empty() || name().starts_with(fault.named))
        };
        let mishap = match self.faults.iter().find(hit)?.mishap {
            // Nothing else goes wrong with what only looks.
            Mishap::Error(_) if !kind.changes() && kind != OpKind::Open => Mishap::Error(EIO),
            mishap => mishap,
        };
        self.met.push(kind);
        Some(mishap)
    }
}

impl Fault {
    /// Whether a call may answer with such an error, when these operations went wrong during it.
    pub(crate) fn allows(&self, kind: ErrorKind, met: &[OpKind]) -> bool {
        let Mishap::Error(code) = self.mishap else {
            return false;
        };
        let synced = met
            .iter()
            .any(|op| matches!(op, OpKind::Sync | OpKind::SyncNames));
        let looked = met.iter().any(|op| !op.changes());
        match kind {
            ErrorKind::Poisoned => synced || looked || code == EIO,
            ErrorKind::NoSpace => code == ENOSPC || code == EMFILE,
            ErrorKind::Io => code == EROFS || code == EIO || looked,
            ErrorKind::Corrupt | ErrorKind::Closed => false,
        }
    }
}
