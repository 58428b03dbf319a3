//! Read-modify-write of documents and tombstones outside the lock, with optimistic concurrency.

use model::{Cas, Document, Now, Seqno};

use super::VBucket;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{Exchange, GetResult, HistoryPoint, Outcome};

impl VBucket {
    /// Reads a document or, if there is none, its tombstone.
    ///
    /// # Errors
    /// `KeyNotFound` if there is neither; `NotMyVbucket` and `WouldBlockPending` unless active.
    pub fn get_or_tombstone(
        &mut self,
        key: &[u8],
        now: Now,
    ) -> Result<Outcome<GetResult>, OpError> {
        self.check_key(key)?;
        let place = seek!(self, key);
        self.check_readable(place, key)?;
        let there = self.table.at(place).cloned().ok_or(OpError::KeyNotFound)?;
        if !there.is_expired(now.unix_s()) {
            return Ok(self.read(place, there, now));
        }
        if !there.is_resident() {
            return Ok(self.needs_fetch(&there));
        }
        if !self.expire(place, now) {
            return Err(OpError::KeyNotFound);
        }
        let document = self.table.at(place).cloned().ok_or(OpError::KeyNotFound)?;
        Ok(self.read(place, document, now))
    }

    /// Returns the newest history and the high seqno.
    pub fn position(&self) -> HistoryPoint {
        HistoryPoint {
            vb_uuid: self.failover_log.newest().uuid,
            seqno: self.high_seqno,
        }
    }

    /// Replaces the version that was read by a document or a tombstone, if it is still the newest.
    /// The draft is taken only on success. `stamp` may write the change's own CAS and seqno into
    /// the value; it runs under the lock, so it must be short. A version that has left memory since
    /// then is brought back, unless a newer change has left memory, too, and may be of the same key.
    ///
    /// # Errors
    /// `KeyExists`, with [`Exchange::raced`] if another version is there; `Locked`; `TooBig`;
    /// `InvalidArgument` if the draft was taken; those of durable writes; `NotMyVbucket`,
    /// `WouldBlockPending`.
    pub fn exchange(
        &mut self,
        exchange: &mut Exchange,
        stamp: &dyn Fn(&mut [u8], Cas, Seqno),
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        const NOTHING: OpError = OpError::InvalidArgument("nothing to store");
        self.check_active()?;
        let durable = self.requirement(exchange.durability, now)?;
        let asked = exchange.draft.as_ref().ok_or(NOTHING)?.document();
        self.check_collection(asked.key())?;
        let value_bytes_max = self.config.value_bytes_max + self.config.system_bytes_max;
        if asked.value().len() > value_bytes_max {
            return Err(OpError::TooBig);
        }
        if self.position().vb_uuid != exchange.as_of.vb_uuid {
            exchange.raced = true;
            return Err(OpError::KeyExists);
        }
        let seen = exchange.seen.as_ref();
        if let Some(seen) = seen.filter(|seen| !seen.kind().is_tombstone()) {
            self.bring_back(seen.clone(), exchange.as_of.seqno);
        }
        let place = seek!(self, asked.key(), metadata);
        self.check_undecided(place, asked.key())?;
        let there = self.table.at(place);
        let expired = there.is_some_and(|there| there.is_expired(now.unix_s()));
        if expired || there.map(Document::seqno) != seen.map(Document::seqno) {
            exchange.raced = true;
            return Err(OpError::KeyExists);
        }
        let live_expiry = self.live(place, now).map(Document::expiry);
        if live_expiry.is_some() {
            self.check_writer(place, exchange.cas, now)?;
        }
        let mut draft = exchange.draft.take().ok_or(NOTHING)?;
        let asked = draft.document();
        if !asked.kind().is_tombstone() {
            let kept = live_expiry.filter(|_| exchange.preserve_expiry);
            let capped = || self.effective_expiry(asked.key(), asked.expiry(), now);
            let expiry = kept.unwrap_or_else(capped);
            draft.set_expiry(expiry);
        }
        let (cas, seqno) = (self.hlc.peek(now), self.high_seqno.next());
        draft.edit_value(|value| stamp(value, cas, seqno));
        self.count_write(draft.document().key(), live_expiry.is_some());
        Ok(self.write(place, draft, durable, now))
    }
}
