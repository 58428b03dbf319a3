//! Each commit of a short run fails in each way, and the process ends then or later. The store must
//! have a prefix of the changes, with all that were reported durable, each key once; and a next run
//! continues from there.

use std::collections::BTreeMap;

use bucket::{Bucket, Flushed};
use model::{Seqno, VbId};
use storage::KvStore;

use crate::world::{Fault, FaultyStore, Kept, Ops, ROOMY, disk, options, rows, stored, warm};

const VBUCKETS: u16 = 2;
const ROUNDS: usize = 8;

/// Changes of a vBucket.
#[derive(Default)]
struct Happened {
    /// Key and value of each seqno from 1 on; no value for a deletion.
    changes: Vec<(String, Option<String>)>,
    /// The last seqno that was reported durable.
    told: Seqno,
}

#[derive(Default)]
struct Story([Happened; VBUCKETS as usize]);

impl Story {
    /// Makes a round of changes: new keys, changed ones, deletions, rewritten keys.
    fn round<S: KvStore>(&mut self, bucket: &Bucket<S>, round: usize) {
        for step in 0..4 {
            let vb = (round + step) % usize::from(VBUCKETS);
            let key = format!("k{}", (round * 3 + step * 5) % 6);
            let value = format!("{round}.{step}");
            let done = if (round + step) % 3 == 2 {
                let deleted = bucket.try_delete(vb as u16, &key);
                deleted.ok().map(|seqno| (seqno, None))
            } else {
                let seqno = bucket.set(vb as u16, &key, value.as_bytes());
                Some((seqno, Some(value)))
            };
            let Some((seqno, value)) = done else { continue };
            let changes = &mut self.0[vb].changes;
            changes.push((key, value));
            assert_eq!(changes.len() as u64, seqno.0);
        }
    }

    /// Records the persisted seqno of each vBucket.
    fn hear<S: KvStore>(&mut self, bucket: &Bucket<S>) {
        for (vb, happened) in (0..).zip(&mut self.0) {
            let persisted = bucket.persisted(vb);
            assert!(persisted >= happened.told, "it is not taken back");
            happened.told = persisted;
        }
    }

    /// Returns the rows after the first `high` changes: one a key, with the seqno of its newest change.
    fn rows_at(&self, vb: usize, high: Seqno) -> Vec<(u64, Vec<u8>, Option<Vec<u8>>)> {
        let changes = &self.0[vb].changes[..high.0 as usize];
        let newest: BTreeMap<&str, u64> = changes
            .iter()
            .zip(1..)
            .map(|((key, _), seqno)| (&**key, seqno))
            .collect();
        let mut rows: Vec<_> = newest
            .into_iter()
            .map(|(key, seqno)| {
                let value = changes[seqno as usize - 1].1.as_ref();
                (
                    seqno,
                    stored(key),
                    value.map(|value| value.clone().into_bytes()),
                )
            })
            .collect();
        rows.sort();
        rows
    }

    /// Checks the content of the store after a crash.
    fn check(&self, store: &impl KvStore, what: &str) {
        let loaded = store.load().unwrap();
        for (vb, happened) in self.0.iter().enumerate() {
            let found = loaded.get(&VbId(vb as u16));
            let high = found.map_or(Seqno::ZERO, |found| found.high_seqno);
            assert!(
                high >= happened.told,
                "{what}: vb {vb} was told {}",
                happened.told
            );
            let there: Vec<_> = rows(store, vb as u16)
                .iter()
                .map(|row| {
                    let value = !row.kind().is_tombstone();
                    (
                        row.seqno().0,
                        row.key().to_vec(),
                        value.then(|| row.value().to_vec()),
                    )
                })
                .collect();
            assert_eq!(there, self.rows_at(vb, high), "{what}: vb {vb} at {high}");
        }
    }
}

/// Runs rounds of which `count` commits from `at` on fail, and ends `later` rounds after the first
/// failure; then runs two rounds on the remaining store.
fn live<S: KvStore>(open: &dyn Fn() -> S, (fault, at, count): (Fault, usize, usize), later: usize) {
    let what = format!("{fault:?} at {at}, {count} times, ended {later} rounds later");
    let mut story = Story::default();
    let mut unclean = options(VBUCKETS, ROOMY);
    unclean.clean = false;
    {
        let bucket = warm(options(VBUCKETS, ROOMY), FaultyStore::new(open()), 1);
        // The warmup of a new bucket commits nothing.
        bucket.store().fail_commits(at..at + count, fault);
        for round in 0..ROUNDS.min(at + 1 + later) {
            story.round(&bucket, round);
            let failed = (at..at + count).contains(&bucket.store().commits());
            let flushed = bucket.flush_step();
            assert_eq!(failed, flushed != Flushed::Clean, "{what}: round {round}");
            story.hear(&bucket);
            if flushed == Flushed::Failed {
                break;
            }
        }
    }
    let left = open();
    story.check(&left, &what);
    let bucket = warm(unclean, left, 100);
    let loaded = bucket.store().load().unwrap();
    for (vb, happened) in (0..).zip(&mut story.0) {
        let found = loaded.get(&VbId(vb));
        happened.told = found.map_or(Seqno::ZERO, |found| found.high_seqno);
        happened.changes.truncate(happened.told.0 as usize);
    }
    for (vb, happened) in (0..).zip(&story.0) {
        let live = story.rows_at(usize::from(vb), happened.told);
        let live = live.iter().filter(|row| row.2.is_some()).count();
        let items = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.items());
        assert_eq!(items, Some(live as u64), "{what}: documents of vb {vb}");
    }
    for round in ROUNDS..ROUNDS + 2 {
        story.round(&bucket, round);
        assert_eq!(bucket.flush_step(), Flushed::Clean);
        story.hear(&bucket);
    }
    drop(bucket);
    story.check(&open(), &what);
}

#[test]
fn failing_commits_lose_nothing_durable_and_duplicate_nothing() {
    for fault in [Fault::NoSpace, Fault::Io, Fault::Unanswered, Fault::Sync] {
        for at in 0..ROUNDS {
            for (count, later) in [(1, 0), (1, 1), (2, 0), (2, 4), (3, 2)] {
                let kept = Kept::default();
                live(&|| kept.clone(), (fault, at, count), later);
            }
        }
    }
}

#[test]
fn failing_commits_lose_nothing_durable_on_disk() {
    for (fault, at, count, later) in [
        (Fault::Unanswered, 0, 1, 0),
        (Fault::Unanswered, 3, 2, 3),
        (Fault::NoSpace, 2, 3, 2),
        (Fault::Sync, 4, 1, 0),
    ] {
        let dir = tempfile::tempdir().unwrap();
        live(&|| disk(dir.path()).0, (fault, at, count), later);
    }
}
