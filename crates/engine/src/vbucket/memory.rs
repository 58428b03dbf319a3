//! Eviction of documents, the expiry pass, and the memory use of the vBucket.

use model::{Datatype, Document, Kind, Now, VbState};

use super::VBucket;
use super::attributes::tombstone_of;
use super::partition::HEAT_WRITTEN;
use super::pass::{Pass, Visited};
use crate::table::SlotIndex;
use crate::types::{MemoryDelta, Outcome, ScanProgress};

impl VBucket {
    /// Whether evicting the document is safe and frees memory: it is durable, and has a value or
    /// its key can be evicted too.
    fn may_evict(&self, document: &Document) -> bool {
        if document.seqno() > self.durable.flushed {
            return false;
        }
        self.evicts_keys || document.is_resident() && !document.value().is_empty()
    }

    /// Sets whether eviction removes keys as well as values. Evicted documents stay so until they
    /// are requested.
    pub fn set_evicts_keys(&mut self, evicts_keys: bool) {
        self.evicts_keys = evicts_keys;
    }

    fn evict_document(&mut self, document: &Document, now: Now) -> bool {
        let place = self.table.place(document.key());
        if self.evicts_keys {
            // Locks refer to the document's key, and a durable write will replace the document.
            let stays = self.locks.cas_of(place.hash, document.key(), now).is_some()
                || self.check_undecided(place, document.key()).is_err();
            if stays || self.table.evict(place, self.high_seqno).is_none() {
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

    /// Evicts the value of a document; its key and metadata stay, unless the bucket evicts keys
    /// too. `false` if the document is missing, not durable or locked.
    pub fn evict(&mut self, key: &[u8], now: Now) -> bool {
        let found = self.table.at(self.table.place(key)).cloned();
        let found = found.filter(|document| self.may_evict(document));
        found.is_some_and(|document| self.evict_document(&document, now))
    }

    /// Runs one step of the eviction clock, from where the last step stopped: documents cool down,
    /// and cold ones are evicted. The step ends when `slots` slots were visited, `bytes` bytes are
    /// free, or the table ends.
    ///
    /// If the table grows between two steps, documents may be visited twice, or only in the next
    /// round.
    ///
    /// Adds evicted documents to `garbage`, to be freed outside the lock.
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

    /// Runs one step of the clock like [`VBucket::evict_cold`], but evicts nothing. Adds cold
    /// documents to `cold`, for [`VBucket::compress_cold`] or [`VBucket::evict`].
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

    /// Visits `slots` slots without cooling documents. Adds documents to `found` that have an
    /// uncompressed value, were not read recently, and are not cold yet.
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

    /// Replaces an uncompressed value by its compressed form, unless the document was changed, read
    /// or evicted since. Returns whether it did.
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

    /// Prefetches the documents of the clock's next step: it would wait for each of them under the
    /// lock.
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

    /// Evicts documents that have just become durable, unless they were read since they were
    /// written. Returns their number. Adds evicted documents to `garbage`.
    ///
    /// Cost: one look-up for each. For a bucket in which little else can be evicted: the clock
    /// would visit all other documents first.
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

    /// Runs one step of the clock for an ephemeral bucket, which has no other copy of a document:
    /// deletes cold documents, and cools the others. The step ends when `slots` slots were visited,
    /// documents of `bytes` bytes are deleted, or the table ends. Does nothing unless active.
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

    /// Cools the document in a slot, or deletes it if it is cold. Returns the bytes of a deleted
    /// document.
    fn cool_or_delete(&mut self, slot: SlotIndex, now: Now) -> Option<usize> {
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

    /// Runs one step of the expiry pass, from where the last step stopped: expired documents become
    /// tombstones. The step ends when `slots` slots were visited or the table ends. Does nothing
    /// unless active.
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

    /// Turns an expired document into a tombstone, after its row was found in the store. Returns
    /// whether it did. Does nothing unless active.
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

    /// Allocated bytes of documents, log, table, locks, prepares and collections; without the size
    /// of an empty vBucket. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.table.counts().document_bytes
            + self.table.array_bytes()
            + self.checkpoints.memory_bytes()
            + self.locks.memory_bytes()
            + self.durability.memory_bytes()
            + self.collections.memory_bytes()
    }

    /// Returns the memory change to be accounted for when this vBucket is dropped.
    pub fn memory_to_give_back(&self) -> MemoryDelta {
        MemoryDelta::default().since(self.reported)
    }

    /// Returns the change of [`VBucket::memory_bytes`] since the last call. O(1).
    pub fn take_memory_delta(&mut self) -> MemoryDelta {
        let now = MemoryDelta::to(self.memory_bytes(), self.checkpoints.memory_bytes());
        now.since(std::mem::replace(&mut self.reported, now))
    }
}
