//! The range scans that waiting requests are about.

use std::sync::Arc;
use std::time::Duration;

use bucket::{Scan, ScanError, ScanRun};
use model::{Seqno, VbUuid};
use registry::{ServedBucket, Store};
use wire::{Header, Status};

use crate::outcome::Refusal;

/// How long the opening of a view is waited for.
pub(crate) const OPEN_WAIT: Duration = Duration::from_mins(1);

/// What the request waits for.
pub(crate) enum Scanning {
    /// Its view must have what it needs first.
    Awaiting(Needs),
    Continuing(ContinuingScan),
}

/// A scan that its asker does not know yet: the request is done with, and its answer is owed.
pub(crate) struct OpeningScan {
    pub(crate) header: Header,
    pub(crate) bucket: Arc<ServedBucket>,
    pub(crate) scan: Arc<Scan>,
    /// When the request was run, monotonic.
    pub(crate) since_ns: u64,
    pub(crate) told: bool,
}

impl OpeningScan {
    /// When it is given up, monotonic.
    pub(crate) fn until_ns(&self) -> u64 {
        self.since_ns.saturating_add(OPEN_WAIT.as_nanos() as u64)
    }
}

impl Drop for OpeningScan {
    fn drop(&mut self) {
        if !self.told {
            self.bucket
                .bucket
                .cancel_scan(self.scan.ask().vb, self.scan.id());
        }
    }
}

/// A request to go on that is being answered.
pub(crate) struct ContinuingScan {
    pub(crate) run: ScanRun<Store>,
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    pub(crate) since_ns: u64,
}

/// What the view must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The history that the seqno is of; `None` for the vBucket's own, whatever it is.
    pub(super) uuid: Option<VbUuid>,
    pub(super) seqno: Seqno,
    pub(super) wait: Duration,
}

/// Why there is no scan.
impl From<ScanError> for Refusal {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Busy => Self::because(Status::EBUSY, "there are too many range scans"),
            ScanError::Empty => Self::because(Status::KEY_ENOENT, "the range has no document"),
            ScanError::SeqnoGone => {
                Self::because(Status::NOT_STORED, "the change was replaced by a newer one")
            }
            ScanError::Cancelled => Status::RANGE_SCAN_CANCELLED.into(),
            ScanError::CollectionGone => Self::UnknownCollection,
            ScanError::Failed => Self::not_now("the store could not be read"),
        }
    }
}
