//! How a replica gets on, for statistics: written by its thread, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use model::{Seqno, VbId};
use parking_lot::Mutex;

/// What the replica's connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The bucket is loading.
    Waiting,
    /// There is no connection.
    Connecting,
    /// The connection is being set up.
    Introducing,
    /// Changes come.
    Streaming,
    /// The replica was made active.
    Promoted,
    /// The node stops.
    Stopped,
}

impl Stage {
    /// The name that statistics show.
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
#[derive(Debug)]
pub struct Progress {
    stage: Mutex<Stage>,
    /// Connections that were made.
    pub connects: AtomicU64,
    /// Documents and deletions taken.
    pub changes: AtomicU64,
    /// Bytes of counted messages.
    pub bytes: AtomicU64,
    /// Bytes acknowledged.
    pub acked_bytes: AtomicU64,
    /// Rollbacks made.
    pub rollbacks: AtomicU64,
    /// Times that acknowledgements were held back for lack of memory.
    pub pauses: AtomicU64,
    /// Streams that are granted and not ended.
    pub streams: AtomicU64,
    peer_seqnos: Vec<AtomicU64>,
    last_error: Mutex<String>,
    declined: Mutex<Option<String>>,
}

impl Progress {
    /// Of a bucket with so many vBuckets.
    pub fn new(vbuckets: u16) -> Self {
        Self {
            stage: Mutex::new(Stage::Waiting),
            connects: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            acked_bytes: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            peer_seqnos: (0..vbuckets).map(|_| AtomicU64::new(0)).collect(),
            last_error: Mutex::default(),
            declined: Mutex::default(),
        }
    }

    /// What it does now.
    pub fn stage(&self) -> Stage {
        *self.stage.lock()
    }

    /// Notes what it does now.
    pub fn set_stage(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// The high seqno of the active vBucket as last heard; 0 before that.
    pub fn peer_seqno(&self, vb: VbId) -> Seqno {
        let seqno = self.peer_seqnos.get(usize::from(vb.0));
        Seqno(seqno.map_or(0, |seqno| seqno.load(Ordering::Relaxed)))
    }

    /// Notes the active node's last seqno of a vBucket.
    pub fn set_peer_seqno(&self, vb: VbId, seqno: Seqno) {
        if let Some(known) = self.peer_seqnos.get(usize::from(vb.0)) {
            known.store(seqno.0, Ordering::Relaxed);
        }
    }

    /// A marker told of a seqno.
    pub fn raise_peer_seqno(&self, vb: VbId, seqno: Seqno) {
        if let Some(known) = self.peer_seqnos.get(usize::from(vb.0)) {
            known.fetch_max(seqno.0, Ordering::Relaxed);
        }
    }

    /// Why the last connection ended; empty if none did.
    pub fn last_error(&self) -> String {
        self.last_error.lock().clone()
    }

    /// Notes why it failed last.
    pub fn set_last_error(&self, error: &str) {
        error.clone_into(&mut self.last_error.lock());
    }

    /// Why the last promotion that was asked for did not take place; `None` if it did, or is
    /// under way.
    pub fn declined(&self) -> Option<String> {
        self.declined.lock().clone()
    }

    /// Notes why a promotion was declined.
    pub fn decline(&self, reason: String) {
        *self.declined.lock() = Some(reason);
    }

    /// Why a promotion was declined; forgotten then.
    pub fn take_declined(&self) -> Option<String> {
        self.declined.lock().take()
    }

    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
