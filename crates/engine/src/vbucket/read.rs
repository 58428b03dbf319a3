//! Operations that change nothing (but may turn an expired document into a tombstone).

use model::{Cas, CollectionId, Document, FailoverEntry, Now, VbState, VbUuid, split_key};

use super::VBucket;
use super::partition::HEAT_READ;
use crate::error::OpError;
use crate::table::TablePlace;
use crate::types::{GetResult, GotMeta, ObserveSeqno, ObserveState, Observed, Outcome};

/// Maximum number of slots that [`VBucket::random_document`] visits.
const RANDOM_SLOTS_MAX: usize = 4096;

impl VBucket {
    /// Reads a document. An expired document becomes a tombstone. A result of `Done` leaves nothing
    /// in the outbox, except that the memory of an expired lock may have been freed; the next
    /// change reports it.
    ///
    /// # Errors
    /// `KeyNotFound`; `NotMyVbucket` and `WouldBlockPending` unless active.
    pub fn get(&mut self, key: &[u8], now: Now) -> Result<Outcome<GetResult>, OpError> {
        self.check_key(key)?;
        let place = seek!(self, key);
        self.check_readable(place, key)?;
        let document = self.live_or_expire(place, now)?;
        Ok(self.read(place, document, now))
    }

    /// Reads a document of a replica vBucket; with `tombstone`, also a tombstone. Expired documents
    /// are not found, but do not become tombstones here.
    ///
    /// # Errors
    /// `KeyNotFound`; `NotMyVbucket` unless this is a replica.
    pub fn get_replica(
        &mut self,
        key: &[u8],
        tombstone: bool,
        now: Now,
    ) -> Result<Outcome<GetResult>, OpError> {
        if self.state != VbState::Replica {
            return Err(OpError::NotMyVbucket);
        }
        self.check_collection(key)?;
        let place = seek!(self, key);
        let there = self.table.at(place).filter(|there| {
            !there.is_expired(now.unix_s()) && (tombstone || !there.kind().is_tombstone())
        });
        let there = there.cloned().ok_or(OpError::KeyNotFound)?;
        Ok(self.read(place, there, now))
    }

    #[inline]
    pub(super) fn read(
        &mut self,
        place: TablePlace,
        document: Document,
        now: Now,
    ) -> Outcome<GetResult> {
        if !document.is_resident() {
            return self.needs_fetch(&document);
        }
        self.count_get(document.key());
        // Written only if it differs: readers of a hot document do not contend for its cache line.
        if document.heat() != HEAT_READ {
            document.set_heat(HEAT_READ);
        }
        let cas = self.visible_cas(place, &document, now);
        Outcome::Done(GetResult { document, cas })
    }

    #[inline]
    fn count_get(&mut self, key: &[u8]) {
        self.counters.ops_get += 1;
        self.collections.count(key, |counts| counts.ops_get += 1);
    }

    fn visible_cas(&mut self, place: TablePlace, document: &Document, now: Now) -> Cas {
        let locked = self.locks.cas_of(place.hash, document.key(), now).is_some();
        if locked { Cas::LOCKED } else { document.cas() }
    }

    /// Returns the live document at `place`; turns an expired one into a tombstone.
    #[inline]
    pub(super) fn live_or_expire(
        &mut self,
        place: TablePlace,
        now: Now,
    ) -> Result<Document, OpError> {
        let document = self.table.at(place).ok_or(OpError::KeyNotFound)?;
        if document.kind().is_tombstone() {
            return Err(OpError::KeyNotFound);
        }
        if document.is_expired(now.unix_s()) {
            self.expire(place, now);
            return Err(OpError::KeyNotFound);
        }
        Ok(document.clone())
    }

    /// Returns the metadata of a document or tombstone. Never needs the value, so the result is
    /// always `Done` while all keys are in memory.
    ///
    /// # Errors
    /// `KeyNotFound` without even a tombstone; `NotMyVbucket`, `WouldBlockPending`.
    pub fn get_meta(&mut self, key: &[u8], now: Now) -> Result<Outcome<GotMeta>, OpError> {
        self.check_key(key)?;
        let place = seek!(self, key, metadata);
        self.check_readable(place, key)?;
        let document = self.table.at(place).ok_or(OpError::KeyNotFound)?;
        let meta = document.meta();
        let deleted = document.kind().is_tombstone() || document.is_expired(now.unix_s());
        let locked = self.locks.cas_of(place.hash, key, now).is_some();
        let cas = if locked { Cas::LOCKED } else { meta.cas };
        self.count_get(key);
        Ok(Outcome::Done(GotMeta { meta, deleted, cas }))
    }

    /// Returns whether a document exists and is persisted. Also served by replicas.
    ///
    /// # Errors
    /// `NotMyVbucket` and `WouldBlockPending` unless active or replica.
    pub fn observe(&mut self, key: &[u8], now: Now) -> Result<Outcome<Observed>, OpError> {
        if self.state != VbState::Replica {
            self.check_active()?;
        }
        self.check_collection(key)?;
        let place = seek!(self, key, metadata);
        let not_found = Observed {
            state: ObserveState::NotFound,
            cas: Cas(0),
        };
        let Some(document) = self.table.at(place) else {
            return Ok(Outcome::Done(not_found));
        };
        let durable = document.seqno() <= self.durable.flushed;
        let state = match (self.live(place, now).is_some(), durable) {
            (true, true) => ObserveState::FoundPersisted,
            (true, false) => ObserveState::FoundNotPersisted,
            (false, true) if document.kind().is_tombstone() => {
                return Ok(Outcome::Done(not_found));
            }
            (false, _) => ObserveState::Deleted,
        };
        Ok(Outcome::Done(Observed {
            state,
            cas: document.cas(),
        }))
    }

    /// Returns the seqnos of this vBucket, for a client whose changes were made in history `uuid`.
    ///
    /// # Errors
    /// `NotMyVbucket` when dead; `UnknownVbUuid`.
    pub fn observe_seqno(&self, uuid: VbUuid) -> Result<ObserveSeqno, OpError> {
        if self.state == VbState::Dead {
            return Err(OpError::NotMyVbucket);
        }
        let entries = self.failover_log.entries();
        let index = entries
            .iter()
            .position(|entry| entry.uuid == uuid)
            .ok_or(OpError::UnknownVbUuid)?;
        // An older history shares its seqnos up to the start of its successor.
        let failover = index.checked_sub(1).map(|newer| FailoverEntry {
            uuid,
            seqno: entries[newer].seqno,
        });
        Ok(ObserveSeqno {
            vb: self.id,
            vb_uuid: self.failover_log.newest().uuid,
            persisted: self.durable.promised,
            current: self.high_seqno,
            failover,
        })
    }

    /// Returns some live document of a collection, chosen by `seed`. It may not be resident: then
    /// [`VBucket::get`] its key. `None` if there is none within 4,096 slots of the seed's slot.
    ///
    /// # Errors
    /// `NotMyVbucket` and `WouldBlockPending` unless active; `UnknownCollection`.
    pub fn random_document(
        &mut self,
        collection: CollectionId,
        seed: u64,
        now: Now,
    ) -> Result<Option<GetResult>, OpError> {
        self.check_active()?;
        if !self.collections.is_open(collection) {
            return Err(OpError::UnknownCollection);
        }
        let is_in = |key| split_key(key).is_some_and(|(of, _)| of == collection);
        let slots = self.table.slots();
        if self.table.counts().items == 0 {
            return Ok(None);
        }
        let mut next = self.table.some_slot(seed);
        for _ in 0..=slots.min(RANDOM_SLOTS_MAX) {
            // At the end of the table the pass restarts, which takes one turn.
            let slot = self.table.step(&mut next);
            let Some(place) = slot.and_then(|slot| self.table.place_of_slot(slot)) else {
                continue;
            };
            let found = self.live(place, now).filter(|found| is_in(found.key()));
            if let Some(document) = found.cloned() {
                let cas = self.visible_cas(place, &document, now);
                self.count_get(document.key());
                return Ok(Some(GetResult { document, cas }));
            }
        }
        Ok(None)
    }
}
