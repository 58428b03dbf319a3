//! Documents that are in the store alone: how many there are, and what it was asked for.

use hashbrown::HashTable;
use model::Seqno;

/// Keys that are known to be absent although the store may have rows of them: so many are remembered.
const ABSENT_MAX: usize = 64;

/// A key that the store was asked for.
struct AskedKey {
    hash: u64,
    key: Box<[u8]>,
    /// What the answer must show; `None` once the answer was that there is no such row.
    ticket: Option<u64>,
}

/// What is known of a key that the table does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The store was not asked.
    No,
    /// Its answer is awaited.
    Waits(u64),
    /// It has no row.
    Absent,
}

/// What the table knows of keys that it does not hold.
///
/// Cost: nothing for a document that left; about 64 bytes for a key that the store was asked for, until it answers.
#[derive(Default)]
pub(super) struct Away {
    /// Live documents that left.
    items: u64,
    tombstones: u64,
    asked: HashTable<AskedKey>,
    absent: usize,
    key_bytes: usize,
    /// Highest seqno of what left since it was known that documents are in the store alone.
    left: Seqno,
}

impl Away {
    fn count(&mut self, tombstone: bool) -> &mut u64 {
        if tombstone {
            &mut self.tombstones
        } else {
            &mut self.items
        }
    }

    /// Counts documents that leave.
    pub(super) fn leave(&mut self, items: u64, tombstones: u64) {
        self.items += items;
        self.tombstones += tombstones;
    }

    /// Notes that the document of a seqno left the table.
    pub(super) fn note_left(&mut self, seqno: Seqno) {
        self.left = self.left.max(seqno);
    }

    pub(super) fn left(&self) -> Seqno {
        self.left
    }

    /// Counts so many less; returns how many were counted.
    pub(super) fn come_back(&mut self, tombstone: bool, many: u64) -> u64 {
        let count = self.count(tombstone);
        let some = many.min(*count);
        *count -= some;
        some
    }

    pub(super) fn tombstones(&self) -> u64 {
        self.tombstones
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<&AskedKey> {
        self.asked.find(hash, |asked| *asked.key == *key)
    }

    pub(super) fn asked(&self, hash: u64, key: &[u8]) -> Asked {
        match self.find(hash, key).map(|asked| asked.ticket) {
            None => Asked::No,
            Some(None) => Asked::Absent,
            Some(Some(ticket)) => Asked::Waits(ticket),
        }
    }

    /// Notes that the store is asked for a key, or that it has no row of it.
    pub(super) fn ask(&mut self, hash: u64, key: &[u8], ticket: Option<u64>) {
        self.forget(hash, key);
        if ticket.is_none() {
            if self.absent == ABSENT_MAX {
                self.asked.retain(|asked| asked.ticket.is_some());
                self.key_bytes = self.asked.iter().map(|asked| asked.key.len()).sum();
                self.absent = 0;
            }
            self.absent += 1;
        }
        self.key_bytes += key.len();
        let key = key.into();
        self.asked
            .insert_unique(hash, AskedKey { hash, key, ticket }, |asked| asked.hash);
    }

    /// Forgets that the store was asked for a key.
    pub(super) fn forget(&mut self, hash: u64, key: &[u8]) {
        let found = self.asked.find_entry(hash, |asked| *asked.key == *key);
        if let Ok(entry) = found {
            let (asked, _) = entry.remove();
            self.key_bytes -= asked.key.len();
            self.absent -= usize::from(asked.ticket.is_none());
            if self.asked.is_empty() {
                self.asked = HashTable::new();
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.asked.allocation_size() + self.key_bytes
    }
}
