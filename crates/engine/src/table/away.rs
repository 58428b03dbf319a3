//! Documents that are only in the store: their number, and the requests for their keys.

use hashbrown::HashTable;
use model::Seqno;

/// Maximum number of keys remembered as absent although the store may have rows of them.
const ABSENT_MAX: usize = 64;

/// A key that was requested from the store.
struct AskedKey {
    hash: u64,
    key: Box<[u8]>,
    /// Ticket of the request; `None` once the store has answered that it has no row.
    ticket: Option<u64>,
}

/// State of a key that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwayState {
    /// The store was not asked.
    No,
    /// The store was asked; its answer is outstanding.
    Waits(u64),
    /// The store has no row.
    Absent,
}

/// State of keys that are not in the table.
///
/// Cost: nothing for an evicted document; about 64 bytes for a requested key, until the answer.
#[derive(Default)]
pub(super) struct Away {
    /// Number of live documents that left.
    items: u64,
    tombstones: u64,
    asked: HashTable<AskedKey>,
    absent: usize,
    key_bytes: usize,
    /// Highest seqno that left since documents were known to be only in the store.
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

    /// Records that the document of a seqno left the table.
    pub(super) fn note_left(&mut self, seqno: Seqno) {
        self.left = self.left.max(seqno);
    }

    pub(super) fn left(&self) -> Seqno {
        self.left
    }

    /// Subtracts up to `many` from the count; returns the amount subtracted.
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

    pub(super) fn asked(&self, hash: u64, key: &[u8]) -> AwayState {
        match self.find(hash, key).map(|asked| asked.ticket) {
            None => AwayState::No,
            Some(None) => AwayState::Absent,
            Some(Some(ticket)) => AwayState::Waits(ticket),
        }
    }

    /// Records a request for a key, or that the store has no row of it.
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

    /// Removes the request for a key.
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
