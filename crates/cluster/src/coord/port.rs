//! Requests and answers.
//!
//! A request goes out with a number, answers come in with it. A watch is answered many times, until one of the answers
//! ends it; every other request is answered once.

use serde::{Deserialize, Serialize};

/// The number under which the answer comes. Each start of a node begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A lease; 0 is none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LeaseId(pub u64);

/// Operations of a transaction at most, as etcd is set by default.
pub const OPS_MAX: usize = 128;

/// A key with its value. Both are text: values are JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// The revision of the store that created the key.
    pub create_revision: u64,
    /// The revision that wrote it last.
    pub mod_revision: u64,
    /// Writes since it was created.
    pub version: u64,
    /// The lease with which it goes away.
    pub lease: LeaseId,
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// One.
    Key(String),
    /// All that begin so.
    Prefix(String),
}

/// What must hold of a key; each number is 0 for a key that is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compare {
    /// It was created by this revision.
    CreateRevision(String, u64),
    /// It was last written by this revision.
    ModRevision(String, u64),
    /// It was written so many times.
    Version(String, u64),
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The lease, [`LeaseId`] 0 for none.
        lease: LeaseId,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// All of `then`, at one revision, if all of `compare` holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must hold.
    pub compare: Vec<Compare>,
    /// The writes, none of them of a key that another one writes.
    pub then: Vec<Op>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The newest state of keys (a linearizable read).
    Get(Range),
    /// A transaction.
    Txn(Txn),
    /// Changes of keys from a revision on, that one included.
    Watch {
        /// What the keys begin with.
        prefix: String,
        /// The first revision.
        from: u64,
    },
    /// A new lease.
    Grant {
        /// How long it lasts.
        ttl_ms: u64,
    },
    /// The lease begins anew.
    KeepAlive(LeaseId),
    /// The lease ends, and its keys go away.
    Revoke(LeaseId),
}

/// A key that was written, or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Written.
    Put(KeyValue),
    /// Removed by a revision.
    Delete {
        /// The key.
        key: String,
        /// The revision.
        revision: u64,
    },
}

impl Change {
    /// The key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(kv) => &kv.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// The revision that made the change.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Put(kv) => kv.mod_revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The keys that were asked for, as of a revision.
    Got {
        /// The store's revision.
        revision: u64,
        /// In the order of keys.
        found: Vec<KeyValue>,
    },
    /// The transaction was made at a revision.
    Committed(u64),
    /// Something of what was compared did not hold; nothing was written.
    Refused,
    /// Changes of what is watched, in order, all of a revision together; the watch goes on.
    Changes {
        /// Everything up to here was told.
        revision: u64,
        /// The changes.
        changes: Vec<Change>,
    },
    /// Changes from the revision asked for are no longer there: read anew. The watch is over.
    Compacted,
    /// The lease.
    Granted(LeaseId),
    /// The lease lasts from now on; the store's revision.
    KeptAlive(u64),
    /// There is no such lease.
    NoLease,
    /// The lease is over.
    Revoked,
    /// No answer came. A transaction may have been made, or may still be. A watch is over.
    Unavailable,
}
