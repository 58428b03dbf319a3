//! Eviction of values, the expiry pass, and what the vBucket weighs.

use model::{Datatype, Document, Kind, Now, VbState};

use super::VBucket;
use super::attributes::tombstone_of;
use super::partition::HEAT_WRITTEN;
use super::pass::{Pass, Visited};
use crate::table::Spot;
use crate::types::{MemoryDelta, Outcome, ScanProgress};

impl VBucket {
    /// Whether the document can be read back once it left memory, and would free some memory.
    fn may_evict(&self, document: &Document) -> bool {
        if document.seqno() > self.durable.flushed {
            return false;
        }
        self.evicts_keys || document.is_resident() && !document.value().is_empty()
    }

    /// Lets keys leave memory with their values from now on, or only values. What has left stays away
    /// until it is asked for.
    pub fn set_evicts_keys(&mut self, evicts_keys: bool) {
        self.evicts_keys = evicts_keys;
    }

    fn evict_document(&mut self, document: &Document, now: Now) -> bool {
        let place = self.table.place(document.key());
        if self.evicts_keys {
            // Locks lie beside the table, and a durable write will replace what is there.
            let stays = self.locks.cas_of(place.hash, document.key(), now).is_some()
                || self.check_undecided(place, document.key()).is_err();
            if stays || self.table.evict(place).is_none() {
                return false;
            }
            let bytes = document.memory_bytes();
            self.collections.resized(document.key(), bytes, 0);
        } else {
            let smaller = document.to_non_resident();
            let bytes = (document.memory_bytes(), smaller.memory_bytes());
            self.collections.resized(document.key(), bytes.0, bytes.1);
            self.table.put(place, smaller);
        }
        self.checkpoints.note_evicted(document);
        self.counters.evicted += 1;
        true
    }

    /// Drops the value of a document from memory; its key and metadata stay, unless the bucket
    /// evicts keys too. `false` when there is none, it is not durable yet, or it is locked.
    pub fn evict(&mut self, key: &[u8], now: Now) -> bool {
        let found = self.table.at(self.table.place(key)).cloned();
        let found = found.filter(|document| self.may_evict(document));
        found.is_some_and(|document| self.evict_document(&document, now))
    }

    /// One step of the eviction clock, from where the last one stopped: documents cool down,
    /// and those that are cold already lose their value, or go whole, until `slots` were looked
    /// at, `bytes` are free, or the end of the table is reached.
    ///
    /// A table that grows between two steps may be passed in another order: documents may be
    /// met twice, or only in the next round.
    ///
    /// What it let go of is added to `garbage`, to be freed outside of the lock.
    pub fn evict_cold(
        &mut self,
        slots: usize,
        bytes: usize,
        now: Now,
        garbage: &mut Vec<Document>,
    ) -> ScanProgress {
        let goal = self.memory_bytes().saturating_sub(bytes);
        let progress = self.pass(Pass::Evict, slots, |this, slot| {
            let mut evicted = false;
            let found = this.table.in_slot(slot);
            let found = found.filter(|document| this.may_evict(document));
            if let Some(document) = found.cloned() {
                match document.heat() {
                    0 => {
                        evicted = this.evict_document(&document, now);
                        garbage.push(document);
                    }
                    heat => document.set_heat(heat - 1),
                }
            }
            Visited::new(evicted, this.memory_bytes() > goal)
        });
        self.prefetch_slots(slots);
        progress
    }

    /// One step of the clock like [`VBucket::evict_cold`] that lets nothing go: the documents that are cold
    /// already are added to `cold`, for [`VBucket::compress_cold`] or [`VBucket::evict`].
    pub fn cool(&mut self, slots: usize, cold: &mut Vec<Document>) -> ScanProgress {
        let progress = self.pass(Pass::Evict, slots, |this, slot| {
            let found = this.table.in_slot(slot);
            if let Some(document) = found.filter(|document| this.may_evict(document)) {
                match document.heat() {
                    0 => cold.push(document.clone()),
                    heat => document.set_heat(heat - 1),
                }
            }
            Visited::new(false, true)
        });
        self.prefetch_slots(slots);
        progress
    }

    /// A look at `slots` slots that cools nothing down: documents with plain values that were not read since they
    /// were written, or not lately, and that are not cold yet, are added to `found`.
    pub fn plain_unread(&mut self, slots: usize, found: &mut Vec<Document>) -> ScanProgress {
        let progress = self.pass(Pass::Evict, slots, |this, slot| {
            let there = this.table.in_slot(slot);
            let there = there.filter(|document| {
                document.heat() == HEAT_WRITTEN
                    && !document.datatype().contains(Datatype::SNAPPY)
                    && !document.datatype().contains(Datatype::XATTR)
                    && this.may_evict(document)
            });
            found.extend(there.cloned());
            Visited::new(false, true)
        });
        self.prefetch_slots(slots);
        progress
    }

    /// Puts the compressed form of a value in the place of the plain one, unless the document was changed, read
    /// or evicted since; returns whether it did.
    pub fn compress_cold(&mut self, plain: &Document, compressed: &[u8]) -> bool {
        let place = self.table.place(plain.key());
        let same = self.table.at(place).is_some_and(|found| {
            found.seqno() == plain.seqno()
                && found.is_resident()
                && found.datatype() == plain.datatype()
                && found.heat() <= HEAT_WRITTEN
        });
        if !same {
            return false;
        }
        let datatype = plain.datatype().with(Datatype::SNAPPY);
        let smaller = plain.with_form(compressed, datatype);
        smaller.set_heat(plain.heat());
        let bytes = (plain.memory_bytes(), smaller.memory_bytes());
        self.collections.resized(plain.key(), bytes.0, bytes.1);
        self.table.put(place, smaller);
        self.checkpoints.note_evicted(plain);
        true
    }

    /// Asks for the documents that the clock's next step looks at: it would wait for each of them
    /// under the lock.
    fn prefetch_slots(&self, slots: usize) {
        let mut next = self.next_slot[Pass::Evict as usize];
        for _ in 0..slots {
            let Some(slot) = self.table.step(&mut next) else {
                break;
            };
            if let Some(document) = self.table.in_slot(slot) {
                document.prefetch_head();
            }
        }
    }

    /// Lets documents that have just become durable leave memory like [`VBucket::evict_cold`],
    /// unless they were read since they were written; returns how many did. What it let go of
    /// is added to `garbage`.
    ///
    /// Cost: a look-up for each. For a bucket in which little but that can leave: the clock would
    /// pass all the others first.
    pub fn evict_flushed<'a>(
        &mut self,
        flushed: impl Iterator<Item = &'a Document>,
        now: Now,
        garbage: &mut Vec<Document>,
    ) -> usize {
        let before = garbage.len();
        for document in flushed {
            let place = self.table.place(document.key());
            let found = self.table.at(place);
            let found = found.filter(|found| {
                found.seqno() == document.seqno()
                    && found.heat() <= HEAT_WRITTEN
                    && self.may_evict(found)
            });
            if let Some(found) = found.cloned()
                && self.evict_document(&found, now)
            {
                garbage.push(found);
            }
        }
        garbage.len() - before
    }

    /// One step of the clock of a bucket that has no other copy of a document: those that are
    /// cold are deleted, the others cool down, until `slots` were looked at, documents of
    /// `bytes` are gone, or the end of the table is reached. Does nothing unless active.
    pub fn delete_cold(&mut self, slots: usize, bytes: usize, now: Now) -> ScanProgress {
        if self.state != VbState::Active {
            return ScanProgress::FINISHED;
        }
        let mut freed = 0;
        self.pass(Pass::Evict, slots, |this, slot| {
            let deleted = this.cool_or_delete(slot, now);
            freed += deleted.unwrap_or(0);
            Visited::new(deleted.is_some(), freed < bytes)
        })
    }

    /// Lets the document in a slot cool down, or deletes it if it is cold; returns the bytes of what was deleted.
    fn cool_or_delete(&mut self, slot: Spot, now: Now) -> Option<usize> {
        let place = self.table.place_of_slot(slot)?;
        let document = self.live(place, now)?.clone();
        self.check_collection(document.key()).ok()?;
        if document.heat() > 0 {
            document.set_heat(document.heat() - 1);
            return None;
        }
        self.check_undecided(place, document.key()).ok()?;
        if self.locks.cas_of(place.hash, document.key(), now).is_some() {
            return None;
        }
        let draft = tombstone_of(&document, Kind::Deletion, now)?;
        self.commit(place, draft, now);
        Some(document.memory_bytes())
    }

    /// One step of the expiry pass, from where the last one stopped: documents whose time has
    /// come become tombstones, until `slots` were looked at or the end of the table is reached.
    /// Does nothing unless active.
    pub fn expire_due(&mut self, slots: usize, now: Now) -> ScanProgress {
        if self.state != VbState::Active {
            return ScanProgress::FINISHED;
        }
        self.pass(Pass::Expire, slots, |this, slot| {
            let found = this.table.in_slot(slot);
            let due = found.is_some_and(|found| found.is_expired(now.unix_s()));
            let place = due.then(|| this.table.place_of_slot(slot)).flatten();
            let expired = place.is_some_and(|place| this.expire(place, now));
            Visited::new(expired, true)
        })
    }

    /// Makes a tombstone of a document whose time is over, after its row was found in the
    /// store; returns whether it did. Of a vBucket that is not active nothing expires.
    pub fn expire_key(&mut self, key: &[u8], now: Now) -> Outcome<bool> {
        if self.state != VbState::Active {
            return Outcome::Done(false);
        }
        let place = match self.seek(key) {
            Ok(place) => place,
            Err(fetch) => return Outcome::NeedsFetch(fetch),
        };
        let found = self.table.at(place).cloned();
        let due = found
            .as_ref()
            .is_some_and(|found| found.is_expired(now.unix_s()));
        let before = self.counters.expired;
        if due && !self.expire(place, now) {
            let away = found.filter(|found| !found.is_resident());
            if let Some(away) = away.filter(|found| found.datatype().contains(Datatype::XATTR)) {
                return self.needs_fetch(&away);
            }
        }
        Outcome::Done(self.counters.expired > before)
    }

    /// Bytes of the documents of table and checkpoints, of slots, table and locks, as allocated;
    /// without what the vBucket takes when it is empty. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.table.counts().document_bytes
            + self.table.array_bytes()
            + self.checkpoints.memory_bytes()
            + self.locks.memory_bytes()
            + self.durability.memory_bytes()
            + self.collections.memory_bytes()
    }

    /// What is to be booked when this vBucket goes.
    pub fn memory_to_give_back(&self) -> MemoryDelta {
        MemoryDelta::default().since(self.reported)
    }

    /// Change of [`VBucket::memory_bytes`] since the last call. O(1).
    pub fn take_memory_delta(&mut self) -> MemoryDelta {
        let now = MemoryDelta::to(self.memory_bytes(), self.checkpoints.memory_bytes());
        now.since(std::mem::replace(&mut self.reported, now))
    }
}
