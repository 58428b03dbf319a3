//! The range scan that a waiting request is about.

use std::sync::Arc;
use std::time::Duration;

use bucket::{Scan, ScanRun};
use model::{Seqno, VbUuid};
use registry::{ServedBucket, Store};

/// What the request waits for.
pub(crate) enum Scanning {
    /// Its view must have what it needs first.
    Awaiting(Needs),
    Opening(OpeningScan),
    Continuing(ContinuingScan),
}

/// A scan that its asker does not know yet.
pub(crate) struct OpeningScan {
    pub(crate) bucket: Arc<ServedBucket>,
    pub(crate) scan: Arc<Scan>,
    pub(crate) told: bool,
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
