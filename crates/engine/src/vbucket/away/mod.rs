//! Documents that are only in the store: requesting and restoring them.

use model::{CollectionId, Datatype, Document, Seqno, VbCounts};

use super::VBucket;
use super::partition::HEAT_WRITTEN;
use crate::table::{AwayState, TablePlace};
use crate::types::{DocumentPart, FetchKey};

/// Result of restoring a row from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The answer was applied.
    Done,
    /// The request is obsolete: it was answered already, or the key has changed.
    Ignored,
    /// The store lacks a row that it should have.
    Missing,
}

impl VBucket {
    #[inline(never)]
    pub(super) fn seek_away(
        &mut self,
        place: TablePlace,
        key: &[u8],
    ) -> Result<TablePlace, FetchKey> {
        let ticket = match self.table.asked(place, key) {
            AwayState::Absent => return Ok(place),
            AwayState::Waits(ticket) => ticket,
            AwayState::No if !self.config.stored_keys.may_have(self.id, key) => return Ok(place),
            AwayState::No => {
                // Another vBucket with this id must use other tickets.
                let history = self.failover_log.newest().uuid.0;
                let ticket = history.wrapping_add(self.counters.fetches);
                self.table.ask(place, key, ticket);
                ticket
            }
        };
        self.counters.fetches += 1;
        Err(FetchKey {
            key: key.into(),
            wanted: DocumentPart::Row(ticket),
        })
    }

    /// Returns the row to read from the store and to restore before a change of this key from
    /// another node can be [applied](VBucket::apply). `None` while all keys are in memory.
    pub fn fetch_before_apply(&mut self, key: &[u8]) -> Option<FetchKey> {
        self.seek(key).err().map(FetchKey::of_metadata)
    }

    /// Returns the rows to read from the store and to restore before [`VBucket::finish_warmup`] may
    /// decide durable writes: the documents that they replace.
    pub fn fetch_before_decisions(&mut self) -> Vec<FetchKey> {
        let prepared = |seqno| Some(self.durability.get(seqno)?.document.clone());
        let prepared: Vec<Document> = self.durability.seqnos().filter_map(prepared).collect();
        let wanted = prepared.iter().map(|prepare| self.seek(prepare.key()));
        wanted.filter_map(Result::err).collect()
    }

    /// Counts documents that are only in the store. Call after everything [but
    /// documents](VBucket::load) was loaded.
    pub fn leave_in_store(&mut self, counts: &VbCounts) {
        self.table.leave_in_store(counts.items, counts.tombstones);
        self.collections.leave_in_store(counts);
    }

    /// Restores a document that was read from the store; `found` is `None` if the store has no such
    /// row.
    pub fn restore(&mut self, asked: &FetchKey, found: Option<Document>) -> Restored {
        let place = self.table.place(&asked.key);
        match asked.wanted {
            DocumentPart::Row(ticket) => self.restore_row(place, &asked.key, ticket, found),
            DocumentPart::Metadata(ticket) => {
                let row = found.map(without_value);
                self.restore_row(place, &asked.key, ticket, row)
            }
            DocumentPart::Value(seqno) => self.restore_value(place, seqno, found),
        }
    }

    fn restore_row(
        &mut self,
        place: TablePlace,
        key: &[u8],
        ticket: u64,
        found: Option<Document>,
    ) -> Restored {
        // A document of a dropped collection is being erased.
        let row = found.filter(|row| self.collections.has_row(row.key(), row.seqno()));
        let bytes = row.as_ref().map(Document::memory_bytes);
        if let Some(row) = &row {
            row.set_heat(HEAT_WRITTEN);
        }
        if !self.table.answer(place, key, ticket, row) {
            return Restored::Ignored;
        }
        if let Some(bytes) = bytes {
            self.collections.resized(key, 0, bytes);
        }
        Restored::Done
    }

    fn restore_value(
        &mut self,
        place: TablePlace,
        seqno: Seqno,
        found: Option<Document>,
    ) -> Restored {
        let there = self.table.at(place);
        let there = there.filter(|there| !there.is_resident() && there.seqno() == seqno);
        let Some(before) = there.map(Document::memory_bytes) else {
            return Restored::Ignored;
        };
        let Some(found) = found.filter(|found| found.seqno() == seqno && found.is_resident())
        else {
            return Restored::Missing;
        };
        found.set_heat(HEAT_WRITTEN);
        let bytes = found.memory_bytes();
        self.collections.resized(found.key(), before, bytes);
        self.table.put(place, found);
        Restored::Done
    }

    /// Whether memory lacks this live document of the store: its value, or all of it. The store was
    /// read when it had everything up to `as_of`; no newer change may have left memory since, as it
    /// could be of the same key.
    pub fn lacks(&self, key: &[u8], seqno: Seqno, as_of: Seqno) -> bool {
        match self.table.at(self.table.place(key)) {
            Some(there) => !there.is_resident() && there.seqno() == seqno,
            None => self.table.is_away_since(as_of) && self.collections.has_row(key, seqno),
        }
    }

    /// Restores a document that no client asked for, with the lowest heat: it is evicted among the
    /// first. Returns whether memory [lacked](VBucket::lacks) it.
    pub fn bring_back(&mut self, found: Document, as_of: Seqno) -> bool {
        if !self.lacks(found.key(), found.seqno(), as_of) {
            return false;
        }
        let place = self.table.place(found.key());
        let before = self.table.at(place).map_or(0, Document::memory_bytes);
        let bytes = found.memory_bytes();
        self.collections.resized(found.key(), before, bytes);
        found.set_heat(0);
        if before > 0 {
            self.table.put(place, found);
        } else {
            self.table.bring_back(place, found);
        }
        true
    }

    /// Whether documents of a collection may be only in the store.
    pub fn may_be_away(&self, collection: CollectionId) -> bool {
        self.table.has_away() && self.items_of(collection) > 0
    }

    /// Whether the key is in memory without its value.
    pub fn is_value_away(&self, key: &[u8]) -> bool {
        let there = self.table.at(self.table.place(key));
        there.is_some_and(|there| !there.is_resident())
    }
}

impl FetchKey {
    /// Returns the seqno of the row, if only its value is wanted.
    pub fn seqno(&self) -> Option<Seqno> {
        match self.wanted {
            DocumentPart::Value(seqno) => Some(seqno),
            DocumentPart::Row(_) | DocumentPart::Metadata(_) => None,
        }
    }

    /// The same of a row, without its value.
    pub(super) fn of_metadata(self) -> Self {
        let wanted = match self.wanted {
            DocumentPart::Row(ticket) => DocumentPart::Metadata(ticket),
            wanted => wanted,
        };
        Self { wanted, ..self }
    }
}

/// A row as what replaces it needs it: attributes stay, and are in the value.
fn without_value(row: Document) -> Document {
    if row.datatype().contains(Datatype::XATTR) || row.kind().is_tombstone() {
        row
    } else {
        row.to_non_resident()
    }
}

#[cfg(test)]
mod tests;
