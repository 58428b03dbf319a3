//! Eviction of values, the expiry pass, and what the vBucket weighs.

use model::{Document, Kind, Now, VbState};

use super::VBucket;
use super::write::tombstone;
use crate::types::{MemoryDelta, ScanProgress};

impl VBucket {
    fn may_evict(&self, document: &Document) -> bool {
        document.is_resident()
            && !document.kind().is_tombstone()
            && !document.value().is_empty()
            && document.seqno() <= self.durable.flushed
    }

    fn evict_document(&mut self, document: &Document) {
        let place = self.table.place(document.key());
        self.table.put(place, document.to_non_resident());
        self.checkpoints.note_evicted(document);
        self.counters.evicted += 1;
    }

    /// Drops the value of a document from memory; its key and metadata stay. `false` when there
    /// is none, or it is not durable yet.
    pub fn evict(&mut self, key: &[u8]) -> bool {
        let found = self.table.at(self.table.place(key)).cloned();
        let Some(document) = found.filter(|document| self.may_evict(document)) else {
            return false;
        };
        self.evict_document(&document);
        true
    }

    /// One step of the eviction clock, from where the last one stopped: documents cool down,
    /// and those that are cold already lose their value, until `slots` were looked at, `bytes`
    /// are free, or the end of the table is reached.
    ///
    /// A table that grows between two steps may be passed in another order: documents may be
    /// met twice, or only in the next round.
    ///
    /// What it let go of is added to `garbage`, to be freed outside of the lock.
    pub fn evict_cold(
        &mut self,
        slots: usize,
        bytes: usize,
        garbage: &mut Vec<Document>,
    ) -> ScanProgress {
        let mut progress = ScanProgress::default();
        let goal = self.memory_bytes().saturating_sub(bytes);
        while progress.slots < slots && self.memory_bytes() > goal {
            let Some(slot) = self.table.step(&mut self.evict_next) else {
                progress.finished = true;
                break;
            };
            progress.slots += 1;
            let found = self
                .table
                .in_slot(slot)
                .filter(|document| self.may_evict(document));
            let Some(document) = found.cloned() else {
                continue;
            };
            let heat = document.heat();
            if heat == 0 {
                self.evict_document(&document);
                garbage.push(document);
                progress.changed += 1;
            } else {
                document.set_heat(heat - 1);
            }
        }
        progress
    }

    /// One step of the clock of a bucket that has no other copy of a document: those that are
    /// cold are deleted, the others cool down, until `slots` were looked at, documents of
    /// `bytes` are gone, or the end of the table is reached. Does nothing unless active.
    pub fn delete_cold(&mut self, slots: usize, bytes: usize, now: Now) -> ScanProgress {
        let mut progress = ScanProgress::default();
        if self.state != VbState::Active {
            progress.finished = true;
            return progress;
        }
        let mut freed = 0;
        while progress.slots < slots && freed < bytes {
            let Some(slot) = self.table.step(&mut self.evict_next) else {
                progress.finished = true;
                break;
            };
            progress.slots += 1;
            let Some(place) = self.table.place_of_slot(slot) else {
                continue;
            };
            let Some(document) = self.live(place, now).cloned() else {
                continue;
            };
            if document.heat() > 0 {
                document.set_heat(document.heat() - 1);
            } else if self.locks.cas_of(place.hash, document.key(), now).is_none() {
                let draft = tombstone(document.key(), Kind::Deletion, now);
                self.commit(place, draft, now);
                self.counters.auto_deleted += 1;
                freed += document.memory_bytes();
                progress.changed += 1;
            }
        }
        progress
    }

    /// One step of the expiry pass, from where the last one stopped: documents whose time has
    /// come become tombstones, until `slots` were looked at or the end of the table is reached.
    /// Does nothing unless active.
    pub fn expire_due(&mut self, slots: usize, now: Now) -> ScanProgress {
        let mut progress = ScanProgress::default();
        if self.state != VbState::Active {
            progress.finished = true;
            return progress;
        }
        while progress.slots < slots {
            let Some(slot) = self.table.step(&mut self.expire_next) else {
                progress.finished = true;
                break;
            };
            progress.slots += 1;
            let due = self
                .table
                .in_slot(slot)
                .is_some_and(|found| found.is_expired(now.unix_s()));
            if let Some(place) = self.table.place_of_slot(slot).filter(|_| due) {
                self.expire(place, now);
                progress.changed += 1;
            }
        }
        progress
    }

    /// Bytes of the documents of table and checkpoints, of slots, table and locks, as allocated;
    /// without what the vBucket takes when it is empty. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.table.counts().document_bytes
            + self.table.array_bytes()
            + self.checkpoints.memory_bytes()
            + self.locks.memory_bytes()
            + self.durability.memory_bytes()
    }

    /// What is to be booked when this vBucket goes.
    pub fn memory_to_give_back(&self) -> MemoryDelta {
        MemoryDelta::between(self.reported, (0, 0))
    }

    /// Change of [`VBucket::memory_bytes`] since the last call. O(1).
    pub fn take_memory_delta(&mut self) -> MemoryDelta {
        let now = (self.memory_bytes(), self.checkpoints.memory_bytes());
        MemoryDelta::between(std::mem::replace(&mut self.reported, now), now)
    }
}
