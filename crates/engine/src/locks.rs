//! Locks of get-and-lock. There are few at a time, so they are kept beside the table.

use hashbrown::HashTable;
use model::{Cas, Now};

/// Lock of a document; ends at a time of the monotonic clock.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) cas: Cas,
    pub(crate) until_mono_ns: u64,
}

impl Lock {
    fn holds(&self, now: Now) -> bool {
        now.mono_ns < self.until_mono_ns
    }
}

/// The locks of a vBucket. Allocates nothing while there are none.
///
/// Hashes are those of the vBucket's table. An expired lock is dropped at the next access to its
/// key, or when its slot is needed.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    locks: HashTable<Lock>,
    key_bytes: usize,
}

impl Locks {
    /// Returns the CAS that a writer of `key` must show, if the document is locked.
    #[inline]
    pub(crate) fn cas_of(&mut self, hash: u64, key: &[u8], now: Now) -> Option<Cas> {
        if self.locks.is_empty() {
            return None;
        }
        let lock = self.locks.find(hash, |lock| *lock.key == *key)?;
        if lock.holds(now) {
            return Some(lock.cas);
        }
        self.remove(hash, key);
        None
    }

    /// Locks a key that is not locked.
    pub(crate) fn insert(&mut self, lock: Lock, now: Now) {
        if self.locks.len() == self.locks.capacity() {
            self.drop_ended(now);
        }
        self.remove(lock.hash, &lock.key);
        self.key_bytes += lock.key.len();
        let hash = lock.hash;
        self.locks.insert_unique(hash, lock, |lock| lock.hash);
    }

    fn drop_ended(&mut self, now: Now) {
        self.locks.retain(|lock| lock.holds(now));
        self.key_bytes = self.locks.iter().map(|lock| lock.key.len()).sum();
        // Reserves room for the same number again: the search for expired locks then costs O(1) per
        // lock on average.
        self.locks.reserve(self.locks.len(), |lock| lock.hash);
    }

    /// Unlocks `key` if it is locked.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) {
        if self.locks.is_empty() {
            return;
        }
        if let Ok(entry) = self.locks.find_entry(hash, |lock| *lock.key == *key) {
            self.key_bytes -= entry.remove().0.key.len();
        }
    }

    /// Number of locks, including expired ones that were not dropped yet.
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    /// Bytes allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.locks.allocation_size() + self.key_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ns: u64) -> Now {
        Now {
            unix_ns: 0,
            mono_ns,
        }
    }

    fn lock(hash: u64, key: &[u8], cas: u64, until_mono_ns: u64) -> Lock {
        Lock {
            hash,
            key: key.into(),
            cas: Cas(cas),
            until_mono_ns,
        }
    }

    #[test]
    fn lock_ends_at_its_time() {
        let mut locks = Locks::default();
        locks.insert(lock(1, b"a", 7, 100), at(0));
        assert_eq!(locks.cas_of(1, b"a", at(99)), Some(Cas(7)));
        assert_eq!(locks.cas_of(1, b"b", at(99)), None, "same hash, other key");
        assert_eq!(locks.cas_of(1, b"a", at(100)), None);
        assert_eq!(locks.len(), 0, "dropped when met");
    }

    #[test]
    fn expired_locks_make_room() {
        let mut locks = Locks::default();
        for index in 0..1000u64 {
            locks.insert(lock(index, b"key", 1, index + 1), at(index));
        }
        assert!(locks.len() < 8, "{} locks", locks.len());
        assert!(locks.memory_bytes() < 1024);
    }

    #[test]
    fn bytes_follow_the_keys() {
        let mut locks = Locks::default();
        assert_eq!(locks.memory_bytes(), 0);
        locks.insert(lock(1, b"key", 1, 10), at(0));
        let one = locks.memory_bytes();
        locks.insert(lock(2, b"other", 1, 10), at(0));
        assert_eq!(locks.memory_bytes(), one + 5);
        locks.remove(2, b"other");
        locks.remove(2, b"other");
        assert_eq!(locks.memory_bytes(), one);
    }
}
