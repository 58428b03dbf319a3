//! Writes with metadata: documents and tombstones that keep the metadata of another node.

use model::{Cas, Document, Meta, Now, Seqno};

use super::VBucket;
use super::change::TableChange;
use super::partition::HEAT_WRITTEN;
use crate::drift::FutureCas;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::table::TablePlace;
use crate::types::{Outcome, WithMeta};

/// Maximum CAS that is accepted: years of changes fit above it.
const CAS_MAX: Cas = Cas(1 << 63);
/// Maximum revision that is accepted; 48 bits are stored, and more changes follow.
const REV_MAX: u64 = 1 << 47;

impl VBucket {
    /// Replaces the local version by a document or tombstone with its own CAS and revision, if it
    /// wins by the bucket's conflict resolution. The write is never durable here: durability
    /// concerns only the node that made it. `stamp` may write the change's CAS and seqno into the
    /// value; it runs under the lock, so it must be short.
    ///
    /// # Errors
    /// `InvalidCas` for a CAS that no node generates, or for one of the future where those are
    /// refused; `InvalidArgument` for a revision above 47 bits, or if the draft was taken;
    /// `TooBig`; `KeyExists` if the local version wins (checked first), for an add over a document, and
    /// if the CAS differs; `Locked` without the lock's CAS; `KeyNotFound` for a CAS without a document;
    /// `SyncWriteInProgress`, `SyncWriteReCommitInProgress`; `NotMyVbucket`, `WouldBlockPending`.
    pub fn write_with_meta(
        &mut self,
        write: &mut WithMeta,
        stamp: &dyn Fn(&mut [u8], Cas, Seqno),
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        const NOTHING: OpError = OpError::InvalidArgument("nothing to store");
        self.check_active()?;
        let asked = write.draft.as_ref().ok_or(NOTHING)?.document();
        self.check_collection(asked.key())?;
        let meta = asked.meta();
        check_meta(&meta, write)?;
        let regenerates_cas = write.regenerates_cas || self.check_future(meta.cas, now)?;
        if asked.value().len() > self.config.value_bytes_max + self.config.system_bytes_max {
            return Err(OpError::TooBig);
        }
        let place = seek!(self, asked.key(), metadata);
        self.check_undecided(place, asked.key())?;
        // A change that is not newer is refused for good, whether or not the document is locked.
        if write.resolves {
            self.check_newer(place, &meta)?;
        }
        self.check_replaced(place, write, now)?;
        let existed = self.live(place, now).is_some();
        let key = asked.key();
        if !meta.kind.is_tombstone() {
            self.count_write(key, existed);
        } else if existed {
            self.counters.ops_delete += 1;
            self.collections.count(key, |counts| counts.ops_delete += 1);
        }
        let mut draft = write.draft.take().ok_or(NOTHING)?;
        let cas = if regenerates_cas {
            self.hlc.next(now)
        } else {
            self.note_drift(meta.cas, now);
            self.hlc.observe(meta.cas);
            meta.cas
        };
        let seqno = self.high_seqno.next();
        draft.edit_value(|value| stamp(value, cas, seqno));
        let document = draft.stamp(cas, seqno, meta.rev);
        let heat = self.table.at(place).map_or(0, Document::heat);
        document.set_heat(heat.max(HEAT_WRITTEN));
        let mutated = self.mutated(&document);
        self.change(document, TableChange::Commit(place));
        Ok(Outcome::Done(mutated))
    }

    /// Checks whether the local version may be replaced, apart from conflict resolution.
    fn check_replaced(
        &mut self,
        place: TablePlace,
        write: &WithMeta,
        now: Now,
    ) -> Result<(), OpError> {
        if self.live(place, now).is_some() {
            if write.adds {
                return Err(OpError::KeyExists);
            }
            return self.check_writer(place, write.cas, now);
        }
        let tombstone = self.table.at(place).map(Document::cas);
        if write.cas != Cas::ANY && tombstone != Some(write.cas) {
            return Err(OpError::KeyNotFound);
        }
        Ok(())
    }

    /// Whether the CAS must be replaced, because it is too far in the future.
    fn check_future(&self, cas: Cas, now: Now) -> Result<bool, OpError> {
        let limits = &self.config.drift;
        match limits.future {
            FutureCas::Refuse if limits.is_future(cas, now) => Err(OpError::InvalidCas),
            FutureCas::Replace => Ok(limits.is_future(cas, now)),
            FutureCas::Refuse | FutureCas::Ignore => Ok(false),
        }
    }

    fn check_newer(&mut self, place: TablePlace, incoming: &Meta) -> Result<(), OpError> {
        let Some(there) = self.table.at(place) else {
            return Ok(());
        };
        if self.config.conflicts.accepts(incoming, &there.meta()) {
            return Ok(());
        }
        let counts = self.counters.foreign.get_or_insert_default();
        if incoming.kind.is_tombstone() {
            counts.deletes_lost += 1;
        } else {
            counts.sets_lost += 1;
        }
        Err(OpError::KeyExists)
    }
}

fn check_meta(meta: &Meta, write: &WithMeta) -> Result<(), OpError> {
    let valid = meta.cas > Cas::ANY && meta.cas <= CAS_MAX;
    if !valid && !write.regenerates_cas {
        return Err(OpError::InvalidCas);
    }
    if meta.rev > REV_MAX {
        return Err(OpError::InvalidArgument("the revision is out of range"));
    }
    Ok(())
}

#[cfg(test)]
mod converging;
#[cfg(test)]
mod tests;
