//! A store that answers like etcd, for tests.

use std::collections::{BTreeMap, VecDeque};

use super::port::{
    Answer, Compare, KeyChange, KeyValue, LeaseId, OPS_MAX, Op, Range, Request, Txn,
};

#[derive(Clone, Debug)]
struct Lease {
    ttl_ms: u64,
    ends_at_ms: u64,
}

/// Keys with revisions, leases, and the changes since the last compaction.
///
/// The caller passes the time to it, and delivers its answers.
#[derive(Clone, Debug)]
pub struct KeyStore {
    revision: u64,
    keys: BTreeMap<String, KeyValue>,
    changes: VecDeque<KeyChange>,
    /// Revision up to which changes are compacted.
    compacted: u64,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: u64,
    /// Time of the last call.
    now_ms: u64,
}

impl Default for KeyStore {
    fn default() -> Self {
        Self {
            // Like etcd, whose first write has revision 2.
            revision: 1,
            keys: BTreeMap::new(),
            changes: VecDeque::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            last_lease: 0,
            now_ms: 0,
        }
    }
}

impl KeyStore {
    /// Returns the revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns a key with its value.
    pub fn get(&self, key: &str) -> Option<&KeyValue> {
        self.keys.get(key)
    }

    /// Ends leases that have expired. Time never goes back.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let now = self.now_ms;
        let over = self.leases.iter().filter(|(_, l)| l.ends_at_ms <= now);
        let over: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        for lease in over {
            self.end_lease(lease);
        }
    }

    /// Renews all leases, like an etcd that starts.
    pub fn restart(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        for lease in self.leases.values_mut() {
            lease.ends_at_ms = self.now_ms + lease.ttl_ms;
        }
    }

    /// Answers a request. A watch gets the changes so far; [`Self::changes_since`] returns those that follow.
    pub fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Get(range) => Answer::Got {
                revision: self.revision,
                found: self.range(range),
            },
            Request::Txn(txn) => self.commit(txn),
            Request::Watch { prefix, from } => self.changes_since(prefix, *from),
            Request::Grant { ttl_ms } => {
                self.last_lease += 1;
                let id = LeaseId(self.last_lease);
                let (ttl_ms, ends_at_ms) = (*ttl_ms, self.now_ms + ttl_ms);
                self.leases.insert(id, Lease { ttl_ms, ends_at_ms });
                Answer::Granted(id)
            }
            Request::KeepAlive(id) => match self.leases.get_mut(id) {
                None => Answer::NoLease,
                Some(lease) => {
                    lease.ends_at_ms = self.now_ms + lease.ttl_ms;
                    Answer::KeptAlive(self.revision)
                }
            },
            Request::Revoke(id) if self.leases.contains_key(id) => {
                self.end_lease(*id);
                Answer::Revoked
            }
            Request::Revoke(_) => Answer::NoLease,
        }
    }

    /// Returns the changes of keys with `prefix` from revision `from` on.
    pub fn changes_since(&self, prefix: &str, from: u64) -> Answer {
        if from <= self.compacted {
            return Answer::Compacted;
        }
        let first = self.changes.partition_point(|c| c.revision() < from);
        let changes = self.changes.range(first..);
        Answer::Changes {
            revision: self.revision,
            changes: changes
                .filter(|c| c.key().starts_with(prefix))
                .cloned()
                .collect(),
        }
    }

    /// Removes changes up to `revision`.
    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        let kept = self
            .changes
            .partition_point(|c| c.revision() <= self.compacted);
        self.changes.drain(..kept);
    }

    fn range(&self, range: &Range) -> Vec<KeyValue> {
        match range {
            Range::Key(key) => self.keys.get(key).cloned().into_iter().collect(),
            Range::Prefix(prefix) => {
                let from = self.keys.range(prefix.clone()..);
                let within = from.take_while(|(key, _)| key.starts_with(prefix));
                within.map(|(_, kv)| kv.clone()).collect()
            }
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let of = |key: &String, field: fn(&KeyValue) -> u64| self.keys.get(key).map_or(0, field);
        match compare {
            Compare::CreateRevision(key, is) => of(key, |kv| kv.create_revision) == *is,
            Compare::ModRevision(key, is) => of(key, |kv| kv.mod_revision) == *is,
            Compare::Version(key, is) => of(key, |kv| kv.version) == *is,
        }
    }

    fn commit(&mut self, txn: &Txn) -> Answer {
        let lease_of = |op: &Op| match op {
            Op::Put { lease, .. } => *lease,
            Op::Delete { .. } => LeaseId(0),
        };
        let mut leases = txn.then.iter().map(lease_of);
        let known = leases.all(|l| l == LeaseId(0) || self.leases.contains_key(&l));
        let small = txn.then.len() <= OPS_MAX;
        if !known || !small || !txn.compare.iter().all(|compare| self.holds(compare)) {
            return Answer::Refused;
        }
        let writes = txn.then.iter().any(|op| match op {
            Op::Put { .. } => true,
            Op::Delete { key } => self.keys.contains_key(key),
        });
        self.revision += u64::from(writes);
        for op in &txn.then {
            match op {
                Op::Put { key, value, lease } => self.put(key, value, *lease),
                Op::Delete { key } => self.delete(key),
            }
        }
        Answer::Committed(self.revision)
    }

    fn put(&mut self, key: &str, value: &str, lease: LeaseId) {
        let before = self.keys.get(key);
        let kv = KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
            create_revision: before.map_or(self.revision, |kv| kv.create_revision),
            mod_revision: self.revision,
            version: before.map_or(0, |kv| kv.version) + 1,
            lease,
        };
        self.keys.insert(key.to_owned(), kv.clone());
        self.changes.push_back(KeyChange::Put(kv));
    }

    fn delete(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            let (key, revision) = (key.to_owned(), self.revision);
            self.changes.push_back(KeyChange::Delete { key, revision });
        }
    }

    fn end_lease(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let with_it = self.keys.values().filter(|kv| kv.lease == lease);
        let keys: Vec<String> = with_it.map(|kv| kv.key.clone()).collect();
        self.revision += u64::from(!keys.is_empty());
        for key in &keys {
            self.delete(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, lease: LeaseId) -> Op {
        let (key, value) = (key.to_owned(), "v".to_owned());
        Op::Put { key, value, lease }
    }

    fn txn(compare: Vec<Compare>, then: Vec<Op>) -> Request {
        Request::Txn(Txn { compare, then })
    }

    #[test]
    fn transaction_is_atomic_at_one_revision() {
        let mut store = KeyStore::default();
        let both = vec![put("/a", LeaseId(0)), put("/b", LeaseId(0))];
        let absent = vec![Compare::Version("/a".to_owned(), 0)];
        assert_eq!(
            store.answer(&txn(absent.clone(), both.clone())),
            Answer::Committed(2)
        );
        assert_eq!(store.answer(&txn(absent, both)), Answer::Refused);
        let is = |key: &str| {
            store
                .get(key)
                .map(|kv| (kv.create_revision, kv.mod_revision))
        };
        assert_eq!((is("/a"), is("/b")), (Some((2, 2)), Some((2, 2))));
        let seen = vec![Compare::ModRevision("/b".to_owned(), 2)];
        assert_eq!(
            store.answer(&txn(seen, vec![put("/b", LeaseId(0))])),
            Answer::Committed(3)
        );
        let b = store.get("/b").unwrap();
        assert_eq!((b.create_revision, b.mod_revision, b.version), (2, 3, 2));
    }

    #[test]
    fn expired_lease_removes_its_keys() {
        let mut store = KeyStore::default();
        store.advance(10);
        let Answer::Granted(lease) = store.answer(&Request::Grant { ttl_ms: 100 }) else {
            panic!("no lease");
        };
        store.answer(&txn(vec![], vec![put("/a", lease)]));
        store.advance(100);
        assert_eq!(
            store.answer(&Request::KeepAlive(lease)),
            Answer::KeptAlive(2)
        );
        store.advance(199);
        assert!(store.get("/a").is_some());
        store.advance(200);
        assert!(store.get("/a").is_none());
        assert_eq!(store.answer(&Request::KeepAlive(lease)), Answer::NoLease);
        assert_eq!(
            store.answer(&txn(vec![], vec![put("/a", lease)])),
            Answer::Refused
        );
    }

    #[test]
    fn watch_returns_changes_from_a_revision_until_compaction() {
        let mut store = KeyStore::default();
        for key in ["/a", "/b", "/a"] {
            store.answer(&txn(vec![], vec![put(key, LeaseId(0))]));
        }
        let Answer::Changes { revision, changes } = store.changes_since("/a", 3) else {
            panic!("compacted");
        };
        assert_eq!((revision, changes.len(), changes[0].revision()), (4, 1, 4));
        store.compact(3);
        assert_eq!(store.changes_since("/a", 3), Answer::Compacted);
        assert!(matches!(
            store.changes_since("/a", 4),
            Answer::Changes { .. }
        ));
    }
}
