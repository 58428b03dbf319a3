//! How a change gets into the log: one door for every kind of entry.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use model::{Document, Seqno};

use super::segment::{RowEffect, Sealed, SegmentCounts, Slot};
use super::{CheckpointKind, CheckpointLog};
use collections::{EventGroup, Superseded};

/// What kind of entry a change is: what it comes after, here and in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogEntry<'a> {
    /// Of a key.
    Document {
        /// What memory held before in the same namespace: of a prepare or an abort, the prepare.
        old: Option<&'a Document>,
        /// It is never replaced in memory, and stays in the store when it is replaced there.
        kept: bool,
    },
    /// A system event, which no table holds: the row that it supersedes goes when it is written, but in
    /// memory it replaces nothing. Readers never get both in one snapshot of an active vBucket; a
    /// replica keeps the checkpoints of its active one.
    Event { before: Superseded, active: bool },
    /// What stands for a group of events. It is a segment of its own, and one slot, with the seqno of
    /// the last of them.
    Group(&'a Arc<EventGroup>),
}

impl<'a> LogEntry<'a> {
    /// A change of a key without history.
    pub(crate) fn over(old: Option<&'a Document>) -> Self {
        Self::Document { old, kept: false }
    }
}

/// Two keys of one hash only cost a checkpoint more.
fn key_hash(key: &[u8]) -> u64 {
    foldhash::fast::FixedState::with_seed(0).hash_one(key)
}

impl CheckpointLog {
    /// Queues a change whose seqno is above all others.
    ///
    /// Cost: O(1) while no number was left out; else the logarithm of the segments held.
    #[inline]
    pub(crate) fn append(&mut self, document: &Document, entry: LogEntry<'_>) {
        let full = self.open_bytes >= self.bytes_max && self.open.is_complete();
        if full || self.must_part(document, entry) {
            self.close_checkpoint();
        }
        let rows = match entry {
            LogEntry::Document { old, kept } => {
                if document.kind().is_prepared() && self.open.kind == CheckpointKind::Memory {
                    let hash = key_hash(document.key());
                    let keys = self.prepared_keys.get_or_insert_default();
                    keys.insert_unique(hash, hash, |&hash| hash);
                }
                RowEffect::new(old.map_or(Seqno::ZERO, |old| self.replace(old)), kept)
            }
            LogEntry::Event { before, .. } => RowEffect::new(before.row, false),
            LogEntry::Group(group) => return self.push_group(document, group),
        };
        self.push(document, rows);
        if matches!(entry, LogEntry::Event { .. }) {
            // Only the log holds it.
            self.note_evicted(document);
        }
    }

    /// Whether the open checkpoint has an earlier change that this one may not share it with.
    fn must_part(&self, document: &Document, entry: LogEntry<'_>) -> bool {
        let is_here = |seqno: Seqno| seqno >= self.open.checkpoint_start;
        let memory = self.open.kind == CheckpointKind::Memory;
        match entry {
            LogEntry::Document { old, kept } => memory && self.collides(document, old, kept),
            LogEntry::Event { before, active } => {
                active && before.seqno > Seqno::ZERO && is_here(before.seqno)
            }
            LogEntry::Group(_) => false,
        }
    }

    /// Whether the open checkpoint has a change of the same key and namespace, and one of the
    /// two belongs to a durable write, or is kept: then neither may replace the other.
    pub(super) fn collides(&self, document: &Document, old: Option<&Document>, kept: bool) -> bool {
        if document.kind().is_prepared() {
            let hash = key_hash(document.key());
            let held = |keys: &HashTable<u64>| keys.find(hash, |&held| held == hash).is_some();
            return self.prepared_keys.as_deref().is_some_and(held);
        }
        old.is_some_and(|old| {
            let durable = document.kind().is_commit() || old.kind().is_commit();
            (durable || kept) && old.seqno() >= self.open.checkpoint_start
        })
    }

    fn push(&mut self, document: &Document, rows: RowEffect) {
        let bytes = document.memory_bytes();
        let seqno = document.seqno();
        self.make_room();
        self.tail.push(Slot {
            seqno,
            document: Some(document.clone()),
            rows,
        });
        self.tail_facts.live += 1;
        self.tail_facts.live_bytes += bytes;
        self.note_pushed(document);
    }

    fn push_group(&mut self, marker: &Document, group: &Arc<EventGroup>) {
        if !self.tail.is_empty() {
            self.seal_tail();
        }
        let bytes = marker.memory_bytes();
        let facts = SegmentCounts {
            first_position: self.next_position(),
            live: 1,
            live_bytes: bytes,
            stale_bytes: bytes,
        };
        let slot = Slot {
            seqno: marker.seqno(),
            document: Some(marker.clone()),
            rows: RowEffect::default(),
        };
        let Some(sealed) = Sealed::new(vec![slot], facts) else {
            return;
        };
        self.slot_bytes += sealed.slot_bytes;
        self.stale_bytes += bytes;
        let group = Some(Arc::clone(group));
        self.sealed.push_back(Sealed { group, ..sealed });
        self.tail_facts.first_position += 1;
        self.note_pushed(marker);
    }

    /// Counts a change that has its slot.
    fn note_pushed(&mut self, document: &Document) {
        let bytes = document.memory_bytes();
        self.open_bytes += bytes + size_of::<Slot>();
        self.open.add(document);
        if document.kind().is_commit() {
            self.committed_to = self.next_position();
        }
        self.items += 1;
        self.live_bytes += bytes;
        self.dirty_items += 1;
        self.dirty_bytes += bytes;
    }
}
