//! Requests and answers.
//!
//! A request goes out with a number, and its answers come back with this number. A watch gets many answers,
//! until one of them ends it; every other request gets one answer.

use serde::{Deserialize, Serialize};

/// Number of a request and of its answers. Each start of a node begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A lease; 0 is none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LeaseId(pub u64);

/// Operations of a transaction at most: etcd's default.
pub const OPS_MAX: usize = 128;

/// A key with its value. Both are text: values are JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Revision of the store that created the key.
    pub create_revision: u64,
    /// Revision of the last write.
    pub mod_revision: u64,
    /// Number of writes since the creation.
    pub version: u64,
    /// Lease with which the key is removed.
    pub lease: LeaseId,
}

/// A selection of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// One key.
    Key(String),
    /// All keys with this prefix.
    Prefix(String),
}

/// Condition on a key; each number is 0 for a key that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compare {
    /// The key was created by this revision.
    CreateRevision(String, u64),
    /// The key was last written by this revision.
    ModRevision(String, u64),
    /// The key was written this many times.
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
        /// Lease; [`LeaseId`] 0 for none.
        lease: LeaseId,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// A transaction: all of `then`, at one revision, if all of `compare` holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions.
    pub compare: Vec<Compare>,
    /// Writes, each of a different key.
    pub then: Vec<Op>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The newest state of keys (a linearizable read).
    Get(Range),
    /// A transaction.
    Txn(Txn),
    /// A watch: changes of keys from a revision on, that one included.
    Watch {
        /// Prefix of the keys.
        prefix: String,
        /// First revision.
        from: u64,
    },
    /// A new lease.
    Grant {
        /// Length of the lease.
        ttl_ms: u64,
    },
    /// Renews the lease.
    KeepAlive(LeaseId),
    /// Ends the lease, and removes its keys.
    Revoke(LeaseId),
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyChange {
    /// The key was written.
    Put(KeyValue),
    /// The key was removed.
    Delete {
        /// The key.
        key: String,
        /// Revision that removed it.
        revision: u64,
    },
}

impl KeyChange {
    /// Returns the key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(kv) => &kv.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// Returns the revision of the change.
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
    /// Keys and values, as of a revision.
    Got {
        /// Revision of the store.
        revision: u64,
        /// Keys and values, in the order of keys.
        found: Vec<KeyValue>,
    },
    /// The transaction was made at this revision.
    Committed(u64),
    /// A condition did not hold; nothing was written.
    Refused,
    /// Changes of watched keys, in order, with all changes of a revision together; the watch continues.
    Changes {
        /// Revision up to which everything was sent.
        revision: u64,
        /// The changes.
        changes: Vec<KeyChange>,
    },
    /// The requested changes were compacted: read again. The watch is over.
    Compacted,
    /// The new lease.
    Granted(LeaseId),
    /// The lease is renewed; contains the store's revision.
    KeptAlive(u64),
    /// The lease does not exist.
    NoLease,
    /// The lease has ended.
    Revoked,
    /// No answer came. A transaction may have been made, or may still be. A watch is over.
    Unavailable,
}
