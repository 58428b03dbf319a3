//! Writes that need nothing of the document that they replace but where its row is.

use model::{Cas, Now};

use super::VBucket;
use crate::durability::Requirement;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::table::{Place, Remains};
use crate::types::{Outcome, StoreMode, Write};

impl VBucket {
    /// What `write` replaces, if that has left memory whole and goes whatever it is: there is no
    /// CAS to compare, and no attribute, expiry or version of it stays. `None` when its row is to
    /// be read first, or when there is nothing.
    ///
    /// # Errors
    /// Those of [`VBucket::check_undecided`].
    #[inline(never)]
    pub(super) fn blindly_replaced(
        &self,
        place: Place,
        write: &Write,
        durable: Option<Requirement>,
    ) -> Result<Option<Remains>, OpError> {
        let plain = write.mode == StoreMode::Set
            && write.cas == Cas::ANY
            && !write.preserve_expiry
            && durable.is_none()
            && !self.checkpoints.open().historical;
        let Some(draft) = write.draft.as_ref().filter(|_| plain) else {
            return Ok(None);
        };
        let key = draft.document().key();
        let Some(remains) = self.table.remains(place, key) else {
            return Ok(None);
        };
        self.check_undecided(place, key)?;
        // Attributes of a document that was deleted do not come back.
        let stays = remains.attributed && !remains.tombstone;
        Ok((!stays).then_some(remains))
    }

    /// Stores over what [`VBucket::blindly_replaced`] found.
    pub(super) fn store_over(
        &mut self,
        place: Place,
        remains: Remains,
        write: &mut Write,
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        let mut draft = write
            .draft
            .take()
            .ok_or(OpError::InvalidArgument("nothing to store"))?;
        let asked = draft.document();
        let expiry = self.effective_expiry(asked.key(), asked.expiry(), now);
        if expiry != asked.expiry() {
            draft.set_expiry(expiry);
        }
        self.count_write(draft.document().key(), !remains.tombstone);
        Ok(Outcome::Done(self.commit_over(place, remains, draft, now)))
    }
}

#[cfg(test)]
mod tests;
