//! Range scans of requests that wait.

use std::sync::Arc;
use std::time::Duration;

use bucket::{Scan, ScanError, ScanRun};
use engine::OpError;
use model::{Seqno, VbId, VbState, VbUuid};
use registry::{ServedBucket, Store};
use wire::{Header, Status};

use crate::outcome::Refusal;

/// Longest wait for a view to open.
pub(crate) const OPEN_WAIT: Duration = Duration::from_mins(1);

/// State of the scan request at the front of the input.
pub(crate) enum Scanning {
    /// The view must contain a change first.
    Awaiting(RequiredSeqno),
    Continuing(ContinuingScan),
}

/// A scan whose UUID its client does not know yet: the request has left the input, and its answer is owed.
pub(crate) struct OpeningScan {
    pub(crate) header: Header,
    pub(crate) bucket: Arc<ServedBucket>,
    pub(crate) scan: Arc<Scan>,
    /// Time when the request was run, monotonic.
    pub(crate) since_ns: u64,
    pub(crate) is_answered: bool,
}

impl OpeningScan {
    /// Returns the time at which the wait for the view ends, monotonic.
    pub(crate) fn until_ns(&self) -> u64 {
        self.since_ns.saturating_add(OPEN_WAIT.as_nanos() as u64)
    }

    /// Whether the view is open; `None` if this is not decided yet. A vBucket that is not active any more, or was not
    /// for a while, comes before other reasons: clients then ask where it is.
    pub(crate) fn opened(&self) -> Option<Result<(), Refusal>> {
        let opened = self.scan.opened()?;
        Some(opened.map_err(|error| {
            let left = active(&self.bucket, self.scan.ask().vb).err();
            left.unwrap_or_else(|| match error {
                ScanError::Cancelled => OpError::NotMyVbucket.into(),
                error => error.into(),
            })
        }))
    }
}

/// # Errors
/// The vBucket is not active.
pub(crate) fn active(bucket: &ServedBucket, vb: VbId) -> Result<(), Refusal> {
    bucket.bucket.run(vb, |vbucket| match vbucket.state() {
        VbState::Active => Ok(()),
        _ => Err(OpError::NotMyVbucket),
    })?;
    Ok(())
}

impl Drop for OpeningScan {
    fn drop(&mut self) {
        if !self.is_answered {
            self.bucket
                .bucket
                .cancel_scan(self.scan.ask().vb, self.scan.id());
        }
    }
}

/// A RANGE_SCAN_CONTINUE that is being answered.
pub(crate) struct ContinuingScan {
    pub(crate) run: ScanRun<Store>,
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    pub(crate) since_ns: u64,
}

/// A change that the view must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequiredSeqno {
    /// History of the seqno.
    pub(super) uuid: VbUuid,
    pub(super) seqno: Seqno,
    pub(super) wait: Duration,
}

/// Refusal of a scan.
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
