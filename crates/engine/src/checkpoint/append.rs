//! Appending changes to the log: one entry point for every kind of entry.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use model::{Document, Seqno};

use super::segment::{RowEffect, Sealed, SegmentCounts, Slot};
use super::{CheckpointKind, CheckpointLog};
use collections::{EventGroup, Superseded};

/// Kind of an appended change, with the change that it replaces, here and in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogEntry<'a> {
    /// A change of a key.
    Document {
        /// Previous version in memory in the same namespace; for a prepare or an abort, the
        /// prepare.
        old: Option<&'a Document>,
        /// Whether it is never replaced in memory, and stays in the store after it was replaced
        /// there.
        kept: bool,
    },
    /// A system event, which the table does not hold. Writing it removes the superseded row, but in
    /// memory it replaces nothing. On an active vBucket, one snapshot never has both events; a
    /// replica keeps the checkpoints of its active node.
    Event { before: Superseded, active: bool },
    /// A marker for a group of events. It is a segment and a slot of its own, with the seqno of the
    /// group's last event.
    Group(&'a Arc<EventGroup>),
}

impl<'a> LogEntry<'a> {
    /// Returns the entry of a change in a collection without history.
    pub(crate) fn over(old: Option<&'a Document>) -> Self {
        Self::Document { old, kept: false }
    }
}

/// Hash of a key. A collision of two keys only closes a checkpoint early.
fn key_hash(key: &[u8]) -> u64 {
    foldhash::fast::FixedState::with_seed(0).hash_one(key)
}

impl CheckpointLog {
    /// Appends a change. Its seqno must be above all others.
    ///
    /// Cost: O(1) if no seqno was skipped, else O(log segments).
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
            // Only the log holds the document.
            self.note_evicted(document);
        }
    }

    /// Whether the open checkpoint has an earlier change that must not be in the same checkpoint.
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

    /// Whether the open checkpoint has a change of the same key and namespace that must not be
    /// replaced: one of the two belongs to a durable write, or is kept as history.
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

    /// Counts a change whose slot was added.
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
