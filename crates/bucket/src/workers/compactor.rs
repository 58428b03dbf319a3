//! The compactor: purges tombstones that are older than the purge age.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use collections::SystemEvent;
use engine::Outcome;
use model::{CollectionId, Kind, Meta, Seqno, VbId};
use storage::{Compacted, Keep, KvStore, Next, StoreError, Worker};

use crate::Bucket;
use crate::compactions::CompactionRules;
use crate::holds::Hold;
use crate::stats::{CompactionStats, Counters, WarmupStage};

/// Maximum number of tombstones that one pass over a vBucket purges; it bounds the memory of the pass.
const PURGED_PER_WALK: usize = 50_000;
/// Time from a change of collections to the next summary of events: changes often come together.
const SUMMARY_AFTER_NS: u64 = 5_000_000_000;
/// Tombstones removed from memory under one lock hold.
const FORGOTTEN_PER_HOLD: usize = 128;

/// Input of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PurgeInput {
    /// Live documents.
    items: u64,
    /// Tombstones, and end events of collections and scopes.
    tombstones: u64,
    /// Seconds since the last pass, or since the start.
    since_s: u64,
    /// Age at which a tombstone may be purged, in seconds.
    purge_age_s: u64,
}

/// Whether a pass over a vBucket is due: the more tombstones it has, the sooner.
///
/// A pass reads every row, so it should find something. The interval is a third of the age with few
/// tombstones, a 24th with a tenth of the documents, and a 72nd with as many tombstones as
/// documents.
fn is_due(input: PurgeInput) -> bool {
    let parts = match input.tombstones {
        0 => return false,
        many if many >= input.items => 72,
        many if many >= input.items / 10 => 24,
        _ => 3,
    };
    input.since_s >= input.purge_age_s / parts
}

/// Returns the interval between two checks for due work, in seconds.
fn pause_s(purge_age_s: u64) -> u64 {
    (purge_age_s / 72).clamp(1, 600)
}

impl<S: KvStore> Bucket<S> {
    /// Purges tombstones of a vBucket if that is due. Returns whether it was. `last_s` is the time
    /// of its last pass, in seconds of the wall clock.
    fn purge_if_due(&self, vb: VbId, last_s: &mut u64) -> Result<bool, StoreError> {
        let purge_age_s = self.purge_age_s();
        let now_s = u64::from(self.clock.now().unix_s());
        let counts = self.with_vbucket_for(Hold::Stat, vb, |vbucket| {
            (vbucket.stats(), vbucket.purgeable_ends())
        });
        let input = counts.map(|(stats, ends)| PurgeInput {
            items: stats.items,
            tombstones: stats.tombstones + u64::from(ends),
            since_s: now_s.saturating_sub(*last_s),
            purge_age_s,
        });
        if !input.is_some_and(is_due) {
            return Ok(false);
        }
        self.purge(vb, now_s.saturating_sub(purge_age_s))?;
        *last_s = now_s;
        Ok(true)
    }

    /// Purges the tombstones of a vBucket that are older than `before_s`, in seconds of the wall
    /// clock: from the store, and then from memory. The newest rows of the vBucket and of its default
    /// collection stay.
    ///
    /// # Errors
    /// See [`Bucket::compact`].
    pub fn purge(&self, vb: VbId, before_s: u64) -> Result<Compacted, StoreError> {
        self.look_through(
            vb,
            CompactionRules {
                before_s,
                ..CompactionRules::default()
            },
        )
    }

    /// Purges tombstones as `rules` and the bucket's purge age allow. Expires due documents as
    /// well, because the expirer does not find documents whose key left memory.
    ///
    /// # Errors
    /// The store's. Rows dropped so far are gone; the rest stays.
    ///
    /// Cost: reads every row of the vBucket, without any lock.
    pub fn compact(&self, vb: VbId, rules: CompactionRules) -> Result<Compacted, StoreError> {
        let now_s = u64::from(self.clock.now().unix_s());
        let old_s = now_s.saturating_sub(self.purge_age_s());
        let before_s = rules.before_s.max(old_s);
        if self.store.may_have_history()? {
            self.trim_history(vb, None)?;
        }
        self.look_through(vb, CompactionRules { before_s, ..rules })
    }

    fn look_through(&self, vb: VbId, rules: CompactionRules) -> Result<Compacted, StoreError> {
        self.check_quarantine(vb, "compacting")?;
        let stats = self.compaction();
        let _running = stats.begin();
        let now_s = self.clock.now().unix_s();
        let history_from = self.history_from(vb)?;
        let last_of_default = self.last_of_default(vb);
        let mut total = Compacted::default();
        let mut first = true;
        loop {
            let mut purged: Vec<(Box<[u8]>, Seqno)> = Vec::new();
            let mut expired: Vec<Box<[u8]>> = Vec::new();
            let mut tombstones = 0;
            let done = self.store.compact(vb, &mut |meta, key| {
                if self.is_stopping() {
                    return Keep::Keep;
                }
                Counters::add(&stats.rows_read, 1);
                if first && is_expired(meta, now_s) && expired.len() < PURGED_PER_WALK {
                    expired.push(key.into());
                }
                let kept = self.is_event_kept(vb, key, meta)
                    || Some(meta.seqno) == last_of_default
                    || history_from.is_some_and(|from| meta.seqno >= from);
                if kept || !goes(meta, rules) || purged.len() >= PURGED_PER_WALK {
                    tombstones += u64::from(meta.kind.is_tombstone() && !meta.kind.is_prepared());
                    return Keep::Keep;
                }
                purged.push((key.into(), meta.seqno));
                Keep::Drop
            });
            let done = done.inspect_err(|_| Counters::add(&stats.failed, 1))?;
            Counters::add(&stats.rows_purged, done.dropped);
            total.dropped += done.dropped;
            total.kept = done.kept;
            total.purge_seqno = done.purge_seqno;
            // The store ends early if the vBucket was replaced. Then the tombstones stay in memory:
            // some of their rows may still be in the store.
            if done.dropped == purged.len() as u64 {
                self.forget(vb, &purged);
                self.with_vbucket(vb, |vbucket| vbucket.bound_tombstones(tombstones));
            }
            self.expire_keys(vb, &expired);
            first = false;
            if purged.len() < PURGED_PER_WALK || self.is_stopping() {
                return Ok(total);
            }
        }
    }

    /// Whether the row is an event that stays. Without their end events some collections would exist again. A replica
    /// that is filled while rows of dropped collections are not erased yet needs the end events to know these rows.
    fn is_event_kept(&self, vb: VbId, key: &[u8], meta: &Meta) -> bool {
        SystemEvent::is_kept(key, meta)
            || SystemEvent::is_key(key)
                && self.with_vbucket(vb, |vbucket| vbucket.has_dead()) == Some(true)
    }

    /// Returns the last seqno of the default collection. Its row stays: snapshots end there for clients that know
    /// neither collections nor durable writes. Without the row these would wait for the end of a snapshot, and begin
    /// at seqno 0 after each break.
    fn last_of_default(&self, vb: VbId) -> Option<Seqno> {
        self.with_vbucket(vb, |vbucket| {
            vbucket.collection_high_seqno(CollectionId::DEFAULT)
        })?
    }

    /// Returns the seqno at which the history of a vBucket begins. From there on tombstones stay: the history may
    /// have an older version of the document, and no deletion if its collection has no history any more.
    fn history_from(&self, vb: VbId) -> Result<Option<Seqno>, StoreError> {
        if !self.store.may_have_history()? {
            return Ok(None);
        }
        self.store.snapshot(vb)?.history_from()
    }

    /// Expires documents whose rows are expired; the vBucket itself checks each one. Ends early
    /// while checkpoints have no headroom for more changes; the next pass finds the rest.
    fn expire_keys(&self, vb: VbId, keys: &[Box<[u8]>]) {
        for key in keys {
            // A document that is not in memory is fetched first, once; if it is evicted again, it is skipped.
            for _ in 0..2 {
                if self.is_stopping() || !self.may_expire() {
                    return;
                }
                let now = self.clock.now();
                let looked = self.with_vbucket_for(Hold::Expire, vb, |vbucket| {
                    if !self.may_change(vb, now) {
                        return Outcome::Done(false);
                    }
                    vbucket.expire_key(key, now)
                });
                match looked {
                    Some(Outcome::NeedsFetch(wanted)) if self.fetch_now(vb, &wanted) => {}
                    Some(Outcome::Done(true)) => {
                        Counters::add(&self.compaction().expired, 1);
                        break;
                    }
                    _ => break,
                }
            }
        }
    }

    fn forget(&self, vb: VbId, purged: &[(Box<[u8]>, Seqno)]) {
        for some in purged.chunks(FORGOTTEN_PER_HOLD) {
            self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                for (key, seqno) in some {
                    vbucket.forget_tombstone(key, *seqno);
                }
            });
        }
    }
}

/// Whether a row may be purged.
fn goes(meta: &Meta, rules: CompactionRules) -> bool {
    let in_reach = rules.up_to == Seqno::ZERO || meta.seqno <= rules.up_to;
    let dropped = rules.drop_deletes && meta.kind.is_tombstone() && !meta.kind.is_prepared();
    in_reach && (dropped || is_tombstone_before(meta, rules.before_s))
}

/// Whether a document is expired.
fn is_expired(meta: &Meta, now_s: u32) -> bool {
    meta.kind == Kind::Mutation && meta.expiry != 0 && meta.expiry <= now_s
}

/// Whether a row is a tombstone or an abort from before `before_s`.
fn is_tombstone_before(meta: &Meta, before_s: u64) -> bool {
    match meta.kind {
        Kind::Mutation => false,
        // A tombstone's `expiry` is its time of deletion.
        kind if kind.is_tombstone() && !kind.is_prepared() => u64::from(meta.expiry) < before_s,
        Kind::Abort => meta.cas.0 / 1_000_000_000 < before_s,
        _ => false,
    }
}

impl CompactionStats {
    fn begin(&self) -> CompactionPass<'_> {
        self.running.store(1, std::sync::atomic::Ordering::Relaxed);
        CompactionPass(self)
    }
}

/// A pass under way.
struct CompactionPass<'a>(&'a CompactionStats);

impl Drop for CompactionPass<'_> {
    fn drop(&mut self) {
        Counters::add(&self.0.walks, 1);
        self.0
            .running
            .store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A walk over all vBuckets: first for tombstones, then for too much history.
#[derive(Clone, Copy)]
struct Walk {
    histories: bool,
    vb: u16,
}

/// The worker that runs requested compactions, then erases dropped collections, then checks for due
/// work: one vBucket in each step.
pub(super) struct Compactor<S> {
    bucket: Arc<Bucket<S>>,
    /// Time of each vBucket's last pass, in seconds of the wall clock.
    last_s: Vec<u64>,
    /// Time of the next attempt to erase what had to wait.
    erase_at_ns: Option<u64>,
    /// Time of the next summary of events.
    summarize_at_ns: Option<u64>,
    /// Merges of the store at the end of the last walk.
    merges: u64,
    walk: Option<Walk>,
}

impl<S: KvStore> Compactor<S> {
    pub(super) fn new(bucket: Arc<Bucket<S>>) -> Self {
        let started_s = u64::from(bucket.clock.now().unix_s());
        Self {
            last_s: vec![started_s; usize::from(bucket.vbuckets())],
            bucket,
            erase_at_ns: None,
            summarize_at_ns: None,
            merges: 0,
            walk: None,
        }
    }

    /// Writes the summary of events if it is due. Returns whether it was.
    fn summarize(&mut self, now_ns: u64) -> bool {
        let later = now_ns + SUMMARY_AFTER_NS;
        let bucket = &self.bucket;
        if bucket
            .collections
            .unsummarized
            .swap(false, Ordering::SeqCst)
        {
            self.summarize_at_ns.get_or_insert(later);
        }
        let due = self.summarize_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if due {
            self.summarize_at_ns = (!bucket.write_summary()).then_some(later);
        }
        due
    }

    /// Returns this time, or that of the next summary if it is earlier.
    fn at(&self, at_ns: u64) -> Next {
        Next::At(at_ns.min(self.summarize_at_ns.unwrap_or(u64::MAX)))
    }

    /// Continues until a vBucket was processed; `false` at the end of the walk. An error of the
    /// store ends this part of the walk: then the vBucket is due again.
    fn go_on(&mut self) -> bool {
        let bucket = &self.bucket;
        let walk = self.walk.get_or_insert(Walk {
            histories: false,
            vb: 0,
        });
        while walk.vb < bucket.vbuckets() {
            let vb = VbId(walk.vb);
            walk.vb += 1;
            let done = if walk.histories {
                bucket.trim_if_due(vb)
            } else {
                bucket.purge_if_due(vb, &mut self.last_s[usize::from(vb.0)])
            };
            match done {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => {
                    bucket.log_compaction_failure(&error);
                    break;
                }
            }
        }
        self.walk = (!walk.histories).then_some(Walk {
            histories: true,
            vb: 0,
        });
        self.walk.is_some()
    }
}

impl<S: KvStore> Worker for Compactor<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let bucket = &self.bucket;
        if bucket.is_stopping() {
            return Next::Done;
        }
        if bucket.warmup().stage() != WarmupStage::Done {
            return Next::OnSignal;
        }
        if bucket.serve_compaction() {
            return Next::Again;
        }
        if self.summarize(now_ns) {
            return Next::Again;
        }
        let bucket = &self.bucket;
        let due = self.erase_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if bucket.collections.erase.swap(false, Ordering::SeqCst) || due {
            let again = bucket.erase_step();
            self.erase_at_ns = again.map(|after| now_ns + after.as_nanos() as u64);
            return Next::Again;
        }
        if let Some(at_ns) = self.erase_at_ns {
            return self.at(at_ns);
        }
        if self.go_on() {
            return Next::Again;
        }
        let pause_s = pause_s(self.bucket.purge_age_s());
        let history_pause_s = self.bucket.history_pause_s().unwrap_or(pause_s);
        let merges = self.bucket.store.upkeep().merges;
        if merges != std::mem::replace(&mut self.merges, merges) {
            // Events may lie beside later rows now, and would be read with these.
            self.summarize_at_ns
                .get_or_insert(now_ns + SUMMARY_AFTER_NS);
        }
        self.at(now_ns + pause_s.min(history_pause_s) * 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purge_is_due_sooner_with_more_tombstones() {
        let day = 86_400;
        // items, tombstones, hours since the last pass; whether a pass is due
        let table = [
            (100, 0, 1000, false),
            (0, 0, 1000, false),
            (100, 9, 23, false),
            (100, 9, 24, true),
            (100, 10, 2, false),
            (100, 10, 3, true),
            (100, 99, 2, false),
            (100, 100, 1, true),
            (100, 100, 0, false),
            (0, 1, 1, true),
        ];
        for (items, tombstones, since_h, due) in table {
            let input = PurgeInput {
                items,
                tombstones,
                since_s: since_h * 3600,
                purge_age_s: 3 * day,
            };
            assert_eq!(is_due(input), due, "{input:?}");
        }
    }

    #[test]
    fn pause_is_bounded() {
        assert_eq!([0, 60, 3600, 3 * 86_400].map(pause_s), [1, 1, 50, 600]);
    }

    #[test]
    fn only_old_tombstones_are_purged() {
        let meta = |kind, expiry, cas| Meta {
            kind,
            expiry,
            cas: model::Cas(cas),
            ..Meta::default()
        };
        let second = 1_000_000_000;
        let table = [
            (meta(Kind::Mutation, 5, 5 * second), false),
            (meta(Kind::Deletion, 99, 0), true),
            (meta(Kind::Deletion, 100, 0), false),
            (meta(Kind::Expiration, 99, 0), true),
            (meta(Kind::Prepare, 0, 5 * second), false),
            (meta(Kind::PrepareDeletion, 0, 5 * second), false),
            (meta(Kind::Abort, 0, 99 * second), true),
            (meta(Kind::Abort, 0, 100 * second), false),
        ];
        for (meta, goes) in table {
            assert_eq!(is_tombstone_before(&meta, 100), goes, "{meta:?}");
        }
    }
}
