//! Progress of a replica, for statistics: its thread writes it, any thread reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use model::{Seqno, VbId};
use parking_lot::Mutex;

/// Stage of the replica's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// The bucket is loading.
    #[default]
    Waiting,
    /// There is no connection.
    Connecting,
    /// The connection is being set up.
    Introducing,
    /// Changes arrive.
    Streaming,
    /// The replica was made active.
    Promoted,
    /// The node stops.
    Stopped,
}

impl Stage {
    /// Returns the name that statistics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Introducing => "introducing",
            Self::Streaming => "streaming",
            Self::Promoted => "promoted",
            Self::Stopped => "stopped",
        }
    }
}

/// Totals and positions of one replicated bucket.
#[derive(Debug, Default)]
pub struct Progress {
    stage: Mutex<Stage>,
    /// Number of connections made.
    pub connects: AtomicU64,
    /// Number of documents and deletions received.
    pub changes: AtomicU64,
    /// Bytes of messages that count against the window.
    pub bytes: AtomicU64,
    /// Bytes acknowledged.
    pub acked_bytes: AtomicU64,
    /// Number of rollbacks.
    pub rollbacks: AtomicU64,
    /// Number of times that acknowledgements were delayed for lack of memory.
    pub pauses: AtomicU64,
    /// Number of granted streams that have not ended.
    pub streams: AtomicU64,
    peer_seqnos: Vec<AtomicU64>,
    last_error: Mutex<String>,
    declined: Mutex<Option<String>>,
}

impl Progress {
    /// Creates the progress of a bucket with this number of vBuckets.
    pub fn new(vbuckets: u16) -> Self {
        Self {
            peer_seqnos: (0..vbuckets).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    /// Returns the current stage.
    pub fn stage(&self) -> Stage {
        *self.stage.lock()
    }

    /// Sets the current stage.
    pub fn set_stage(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// Returns the high seqno of the active vBucket as last heard; 0 before the first message.
    pub fn peer_seqno(&self, vb: VbId) -> Seqno {
        let seqno = self.peer_seqnos.get(usize::from(vb.0));
        Seqno(seqno.map_or(0, |seqno| seqno.load(Ordering::Relaxed)))
    }

    /// Sets the last known seqno of the active vBucket.
    pub fn set_peer_seqno(&self, vb: VbId, seqno: Seqno) {
        if let Some(known) = self.peer_seqnos.get(usize::from(vb.0)) {
            known.store(seqno.0, Ordering::Relaxed);
        }
    }

    /// Raises the last known seqno of the active vBucket after a snapshot marker.
    pub fn raise_peer_seqno(&self, vb: VbId, seqno: Seqno) {
        if let Some(known) = self.peer_seqnos.get(usize::from(vb.0)) {
            known.fetch_max(seqno.0, Ordering::Relaxed);
        }
    }

    /// Returns the reason why the last connection ended; empty if none ended.
    pub fn last_error(&self) -> String {
        self.last_error.lock().clone()
    }

    /// Sets the reason of the last failure.
    pub fn set_last_error(&self, error: &str) {
        error.clone_into(&mut self.last_error.lock());
    }

    /// Returns the reason why the last requested promotion was declined; `None` if it succeeded or is in progress.
    pub fn declined(&self) -> Option<String> {
        self.declined.lock().clone()
    }

    /// Sets the reason why a promotion was declined.
    pub fn decline(&self, reason: String) {
        *self.declined.lock() = Some(reason);
    }

    /// Removes and returns the reason why a promotion was declined.
    pub fn take_declined(&self) -> Option<String> {
        self.declined.lock().take()
    }

    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
