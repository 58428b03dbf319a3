//! The plan of failures.

use std::collections::BTreeMap;
use std::io;

use crate::ErrorKind;

/// Error numbers of the system.
pub(crate) const EIO: i32 = 5;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;

/// Kind of an operation of the file system.
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
    /// Whether the operation changes anything.
    pub(crate) fn changes(self) -> bool {
        use OpKind::{Create, Remove, Rename, SetLength, Sync, SyncNames, Write};
        matches!(
            self,
            Create | Rename | Remove | SyncNames | Write | SetLength | Sync
        )
    }
}

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// An error of the system; a part of the operation may have happened.
    Error(i32),
    /// It reports success; a sync did nothing, a write did a part.
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

/// Operations that fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Kind of the operations; `None` for all.
    pub(crate) of: Option<OpKind>,
    /// Prefix of the names of affected files. Other files still count.
    pub(crate) named: &'static str,
    /// Number of the first failing operation, counted from 0 among those of its kind.
    pub(crate) from: u64,
    /// Number of failing operations.
    pub(crate) count: u64,
    /// The failure.
    pub(crate) mishap: Mishap,
}

/// All planned failures, and the operations so far.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    pub(crate) faults: Vec<Fault>,
    counts: BTreeMap<OpKind, u64>,
    total: u64,
    /// Operations that failed.
    pub(crate) met: Vec<OpKind>,
}

impl FaultPlan {
    /// Returns the number of operations of a kind; with `None`, of all.
    pub(crate) fn count(&self, of: Option<OpKind>) -> u64 {
        of.map_or(self.total, |kind| {
            self.counts.get(&kind).copied().unwrap_or(0)
        })
    }

    /// Counts an operation on a file. Returns its failure.
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
            // A read operation can only fail with an I/O error.
            Mishap::Error(_) if !kind.changes() && kind != OpKind::Open => Mishap::Error(EIO),
            mishap => mishap,
        };
        self.met.push(kind);
        Some(mishap)
    }
}

impl Fault {
    /// Whether a call may return such an error after these operations failed during it.
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
