//! Operations on whole documents: store, delete, expire, touch.

use model::{Cas, Datatype, Document, Draft, Kind, Meta, Now};

use super::VBucket;
use super::attributes::plain_meta;
use super::attributes::{tombstone_of, with_attributes_of};
use crate::codec::{Codec, NoCodec};
use crate::durability::Requirement;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::table::TablePlace;
use crate::types::{FetchKey, GetResult, Outcome, StoreMode, Write};

impl VBucket {
    /// Stores a whole document. The draft is taken only on success. An existing document keeps its
    /// attributes, for which its value is needed.
    ///
    /// # Errors
    /// `Locked` without the lock's CAS (checked first); `KeyExists` for an `Add` over a document,
    /// and if the CAS differs; `KeyNotFound` for a `Replace` or a CAS without a document; `TooBig`;
    /// `InvalidArgument` if the draft was taken; `SyncWriteInProgress`,
    /// `SyncWriteReCommitInProgress`; `DurabilityImpossible`, `DurabilityInvalidLevel`;
    /// `NotMyVbucket`, `WouldBlockPending`.
    pub fn store_with(
        &mut self,
        write: &mut Write,
        codec: &dyn Codec,
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        self.check_active()?;
        let durable = self.requirement(write.durability, now)?;
        let draft = write
            .draft
            .as_ref()
            .ok_or(OpError::InvalidArgument("nothing to store"))?;
        let asked = draft.document();
        self.check_collection(asked.key())?;
        if asked.value().len() > self.config.value_bytes_max {
            return Err(OpError::TooBig);
        }
        let place = seek!(self, asked.key(), metadata);
        self.check_undecided(place, asked.key())?;
        let live = self.live(place, now);
        let live_expiry = live.map(Document::expiry);
        let attributed = live.is_some_and(|live| live.datatype().contains(Datatype::XATTR));
        match (live_expiry, write.mode) {
            (Some(_), StoreMode::Add) => return Err(OpError::KeyExists),
            (Some(_), StoreMode::Set | StoreMode::Replace) => {
                self.check_writer(place, write.cas, now)?;
            }
            (None, StoreMode::Replace) => return Err(OpError::KeyNotFound),
            (None, StoreMode::Set | StoreMode::Add) if write.cas != Cas::ANY => {
                return Err(OpError::KeyNotFound);
            }
            (None, StoreMode::Set | StoreMode::Add) => {}
        }
        let kept = live_expiry.filter(|_| write.preserve_expiry);
        let expiry =
            kept.unwrap_or_else(|| self.effective_expiry(asked.key(), asked.expiry(), now));
        let same = expiry == asked.expiry();
        if attributed && let Some(fetch) = self.keep_attributes(place, write, codec)? {
            return Ok(Outcome::NeedsFetch(fetch));
        }
        let mut draft = write
            .draft
            .take()
            .ok_or(OpError::InvalidArgument("nothing to store"))?;
        if !same {
            draft.set_expiry(expiry);
        }
        self.count_write(draft.document().key(), live_expiry.is_some());
        Ok(self.write(place, draft, durable, now))
    }

    /// Puts the attributes of the document at `place` into the draft. Returns the value to fetch if
    /// it is not in memory.
    #[cold]
    fn keep_attributes(
        &mut self,
        place: TablePlace,
        write: &mut Write,
        codec: &dyn Codec,
    ) -> Result<Option<FetchKey>, OpError> {
        let (Some(old), Some(draft)) = (self.table.at(place).cloned(), &write.draft) else {
            return Ok(None);
        };
        if !old.is_resident() {
            return Ok(Some(self.fetch_key(&old)));
        }
        let max = self.config.value_bytes_max;
        write.draft = Some(with_attributes_of(&old, draft.document(), codec, max)?);
        Ok(None)
    }

    /// Stores an uncompressed value as [`VBucket::store_with`] does.
    ///
    /// # Errors
    /// Those of [`VBucket::store_with`]; `InvalidArgument` for a compressed value whose document
    /// has attributes.
    #[inline]
    pub fn store(&mut self, write: &mut Write, now: Now) -> Result<Outcome<Mutated>, OpError> {
        self.store_with(write, &NoCodec, now)
    }

    pub(super) fn count_write(&mut self, key: &[u8], existed: bool) {
        self.collections.count(key, |counts| counts.ops_store += 1);
        if existed {
            self.counters.ops_update += 1;
        } else {
            self.counters.ops_create += 1;
        }
    }

    /// Deletes a document, durably on request; a tombstone with the system attributes remains.
    ///
    /// # Errors
    /// `KeyNotFound`; `Locked` without the lock's CAS; `KeyExists` if the CAS differs;
    /// `SyncWriteInProgress`, `SyncWriteReCommitInProgress`; `DurabilityImpossible`,
    /// `DurabilityInvalidLevel`; `NotMyVbucket`, `WouldBlockPending`.
    pub fn delete(
        &mut self,
        key: &[u8],
        cas: Cas,
        durability: Option<Requirement>,
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        self.check_key(key)?;
        let durable = self.requirement(durability, now)?;
        let place = seek!(self, key, metadata);
        self.check_undecided(place, key)?;
        if self.live(place, now).is_none() {
            return Err(OpError::KeyNotFound);
        }
        self.check_writer(place, cas, now)?;
        let document = self.table.at(place).ok_or(OpError::KeyNotFound)?;
        let Some(draft) = tombstone_of(document, Kind::Deletion, now) else {
            let document = document.clone();
            return Ok(self.needs_fetch(&document));
        };
        let outcome = self.write(place, draft, durable, now);
        self.counters.ops_delete += 1;
        self.collections.count(key, |counts| counts.ops_delete += 1);
        Ok(outcome)
    }

    /// Turns the expired document at `place` into a tombstone, and returns whether it did. Refuses
    /// while the key has an undecided durable write, after its collection was dropped, and while
    /// attributes that stay are not in memory.
    pub(super) fn expire(&mut self, place: TablePlace, now: Now) -> bool {
        let Some(document) = self.table.at(place) else {
            return false;
        };
        let stays = self.check_collection(document.key()).is_err()
            || self.check_undecided(place, document.key()).is_err();
        if stays {
            return false;
        }
        let Some(draft) = tombstone_of(document, Kind::Expiration, now) else {
            return false;
        };
        self.commit(place, draft, now);
        self.counters.expired += 1;
        true
    }

    /// Sets the absolute expiry, 0 for never (TOUCH, GAT). An equal expiry changes nothing, neither
    /// CAS nor seqno.
    ///
    /// # Errors
    /// `KeyNotFound`; `Locked`; `SyncWriteInProgress`, `SyncWriteReCommitInProgress`;
    /// `NotMyVbucket`, `WouldBlockPending`.
    pub fn touch(
        &mut self,
        key: &[u8],
        expiry: u32,
        now: Now,
    ) -> Result<Outcome<GetResult>, OpError> {
        self.check_key(key)?;
        let place = seek!(self, key);
        self.check_undecided(place, key)?;
        let document = self.live_or_expire(place, now)?;
        self.check_writer(place, Cas::ANY, now)?;
        if !document.is_resident() {
            return Ok(self.needs_fetch(&document));
        }
        let expiry = self.effective_expiry(key, expiry, now);
        let document = if expiry == document.expiry() {
            document
        } else {
            let meta = Meta {
                expiry,
                ..plain_meta(&document)
            };
            let draft = Draft::from_joined(document.key_and_value(), key.len(), &meta);
            self.count_write(key, true);
            self.commit(place, draft, now);
            self.table.at(place).cloned().unwrap_or(document)
        };
        let cas = document.cas();
        Ok(Outcome::Done(GetResult { document, cas }))
    }
}
