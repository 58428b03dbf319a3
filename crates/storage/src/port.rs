//! The port: what a bucket may ask of the store that keeps its history.

use std::ops::ControlFlow;
use std::path::PathBuf;

use model::{CollectionId, Document, Meta, Seqno, SnapshotRange, VbId, VbRecord, split_key};

use crate::StoreError;
use crate::history::{HistoryKept, HistoryLimits};
use crate::key_range::KeyRange;

/// The durable history of every vBucket of one bucket.
///
/// A vBucket is a run of rows, one per key, in the order of their seqnos, and one
/// [`VbRecord`]. Only the newest version of a key is kept; a deletion is a row as well (a
/// tombstone) until [`KvStore::compact`] drops it. Beside it lies its history, a second run of rows:
/// every version that a commit asked to keep, until [`KvStore::trim_history`] drops it. Rollbacks
/// and removals concern both, everything else the first one alone.
///
/// All calls block and may be made from any thread at the same time. Commits, rollbacks and
/// removals of one store run one after the other.
pub trait KvStore: Send + Sync + 'static {
    /// Every vBucket that has a record, ascending, with what opening found odd about it.
    ///
    /// # Errors
    /// `Corrupt` when a record cannot be read, `Io`, `Closed`.
    ///
    /// Cost: one point read per vBucket; no document is read.
    fn load(&self) -> Result<Vec<LoadedVb>, StoreError>;

    /// Makes all batches durable with one sync.
    ///
    /// Each vBucket's batch is atomic: after a crash all of it is there, or nothing. Several
    /// vBuckets are not atomic together. Of two batches of the same vBucket the later one wins.
    /// On an error nothing may be acknowledged, although some of it may be found after a restart.
    ///
    /// `purge_seqno` never goes backwards: the greater of the record's and the stored one is
    /// written.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: try again later. `Poisoned`: this store acknowledges nothing any more.
    /// `Closed`.
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError>;

    /// The stored documents of some keys, in the order of `wants`; `None` for a key that is not
    /// there (or no longer at the seqno it was wanted at). Tombstones are returned.
    ///
    /// # Errors
    /// `Corrupt` when what is read is not what was written, `Io`, `Closed`.
    ///
    /// Cost: about one read for each that is there; mostly none for one that is not.
    fn fetch(&self, vb: VbId, wants: &[Want<'_>]) -> Result<Vec<Option<Document>>, StoreError>;

    /// Whether there may be a document or a tombstone of a key. `false` is certain, as to everything that was committed
    /// before.
    ///
    /// Cost: no read.
    fn may_have(&self, vb: VbId, key: &[u8]) -> bool;

    /// Whether there may be documents of a MiB and more: of such no two should be read at the same time, since none is
    /// counted before it is in memory.
    fn may_have_large(&self) -> bool {
        false
    }

    /// A consistent view of one vBucket, which later commits do not change. A vBucket without a
    /// record is seen as empty.
    ///
    /// # Errors
    /// `Corrupt` when its record cannot be read, `Io`, `Closed`.
    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError>;

    /// The same, for looks at ranges of keys: they do not cost a read of all that was committed of late.
    ///
    /// # Errors
    /// As [`KvStore::snapshot`].
    ///
    /// Cost: once for so many new rows of all vBuckets together, a read of these.
    fn snapshot_by_key(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        self.snapshot(vb)
    }

    /// Walks the rows from seqno `from` (included) upwards until the end or until `f` breaks.
    ///
    /// Seqnos ascend strictly; the view is that of one snapshot. `ScanEnd` tells how far that
    /// view reaches, also when `f` broke.
    ///
    /// # Errors
    /// As [`KvStore::snapshot`]; also `Corrupt` at a row that cannot be read.
    fn scan(
        &self,
        vb: VbId,
        from: Seqno,
        f: &mut dyn FnMut(Document) -> ControlFlow<()>,
    ) -> Result<ScanEnd, StoreError> {
        let snapshot = self.snapshot(vb)?;
        for document in snapshot.by_seqno(from) {
            if f(document?).is_break() {
                break;
            }
        }
        let (high_seqno, purge_seqno) = (snapshot.high_seqno(), snapshot.purge_seqno());
        Ok(ScanEnd {
            high_seqno,
            purge_seqno,
        })
    }

    /// Takes a vBucket back to a state that it had at or before seqno `to`, durably, and gives
    /// its record there; `high_seqno` of that record tells how far it truly went back.
    ///
    /// Only the newest version of a key is stored, so not every past state can be restored. The
    /// store remembers the last commits that ended at the end of their snapshot and of which no
    /// row has been overwritten or dropped since; it goes back to the latest of them at or
    /// below `to`, and to the empty vBucket (seqno 0) when there is none. `to` at or above the
    /// high seqno changes nothing. The failover log and the state are left to the caller.
    ///
    /// # Errors
    /// As [`KvStore::commit`]; a vBucket without a record answers `Corrupt`. After an error the
    /// vBucket may stand at either end: roll back again before anything else.
    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError>;

    /// The seqno at which [`KvStore::rollback`] would leave a vBucket; zero without a record.
    ///
    /// # Errors
    /// `Corrupt` when its record cannot be read, `Io`, `Closed`.
    fn rollback_point(&self, vb: VbId, to: Seqno) -> Result<Seqno, StoreError>;

    /// Drops the rows that `keep` does not want, given metadata and key of each row.
    ///
    /// The row at the high seqno always stays. The purge seqno becomes that of the highest
    /// tombstone dropped. Runs beside commits; it ends early when the vBucket is rolled back or
    /// removed meanwhile.
    ///
    /// # Errors
    /// As [`KvStore::commit`] and [`KvStore::scan`].
    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError>;

    /// Drops the rows that are `dead`, given metadata and key of each, among those with keys in `ranges`, which ascend: no reader
    /// misses them. Tells how many. For the rest as [`KvStore::compact`].
    ///
    /// # Errors
    /// As [`KvStore::compact`].
    ///
    /// Cost: reads what lies in the ranges, where rows lie by key.
    fn erase(
        &self,
        vb: VbId,
        ranges: &[KeyRange],
        is_dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<u64, StoreError> {
        let done = self.compact(vb, &mut |meta, key| {
            let inside = ranges.iter().any(|range| range.contains(key));
            Keep::erased_if(inside && is_dead(meta, key))
        });
        done.map(|done| done.dropped)
    }

    /// Drops the oldest rows of the history until `limits` hold, and those that are `dead`, given
    /// metadata and key; tells what is left of it. Runs beside commits, as [`KvStore::compact`].
    ///
    /// # Errors
    /// As [`KvStore::compact`].
    ///
    /// Cost: reads the vBucket's history, twice where its bytes are limited.
    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError>;

    /// Whether there may be rows of a history.
    ///
    /// # Errors
    /// `Closed`.
    fn may_have_history(&self) -> Result<bool, StoreError>;

    /// Forgets vBuckets, rows and records, durably, with one sync for all of them. One that is not
    /// there is no error.
    ///
    /// # Errors
    /// As [`KvStore::commit`]. Each may be there or gone then: remove them again.
    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError>;

    /// The text last given to [`KvStore::set_manifest`]; `None` when there was none.
    ///
    /// # Errors
    /// `Corrupt` when it is not as it was written, `Io`, `Closed`.
    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps a text of the bucket's own, durably, in place of the last one: after a crash the one
    /// or the other is there.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the last one is still there. `Closed`.
    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError>;

    /// Looks for what is damaged of a vBucket's rows behind seqno `after`, to tell it: the first such row, and the files.
    ///
    /// Cost: up to a read of all runs.
    fn locate(&self, vb: VbId, after: Seqno) -> DamagedRow {
        let (_, _) = (vb, after);
        DamagedRow::default()
    }

    /// Bytes that the store takes.
    ///
    /// # Errors
    /// `Io`, `Closed`.
    fn disk_usage(&self) -> Result<DiskUsage, StoreError>;

    /// What was done in the background since the store was opened. Cost: none.
    fn upkeep(&self) -> Upkeep {
        Upkeep::default()
    }

    /// Syncs everything and notes that the stop was a clean one. All later calls answer
    /// `Closed`; a second close is no error.
    ///
    /// # Errors
    /// `Io`, `NoSpace` or `Poisoned` when that could not be done; the stop then counts as
    /// unclean, and the store is closed all the same.
    fn close(&self) -> Result<(), StoreError>;
}

/// A consistent view of one vBucket. Holding it keeps old rows on disk: let go when done.
///
/// A walk is resumed by calling [`Snapshot::by_seqno`] again with the seqno after the last one.
pub trait Snapshot: Send + Sync {
    /// Highest seqno of the view.
    fn high_seqno(&self) -> Seqno;

    /// Highest seqno of a purged tombstone as of the view.
    fn purge_seqno(&self) -> Seqno;

    /// The record as of the view; `None` when the vBucket had none.
    fn record(&self) -> Option<&VbRecord>;

    /// The rows from seqno `from` (included) on, seqnos ascending. Ends after the first error.
    fn by_seqno(
        &self,
        from: Seqno,
    ) -> Box<dyn Iterator<Item = Result<Document, StoreError>> + Send + '_>;

    /// The rows that are no documents of clients, seqnos ascending: events of collections, durable writes that are
    /// undecided or were given up.
    ///
    /// # Errors
    /// As [`KvStore::scan`].
    fn beside_documents(&self) -> Result<Vec<Document>, StoreError> {
        let rows = self.by_seqno(Seqno::ZERO);
        rows.filter(|row| row.as_ref().map_or(true, is_beside))
            .collect()
    }

    /// From here on every version that was to be kept is in the history. `None` for an empty one.
    ///
    /// # Errors
    /// As [`KvStore::scan`].
    fn history_from(&self) -> Result<Option<Seqno>, StoreError>;

    /// The rows, and those of the history that are not among them, from seqno `from` on, seqnos
    /// ascending. Ends after the first error.
    fn with_history(
        &self,
        from: Seqno,
    ) -> Box<dyn Iterator<Item = Result<Document, StoreError>> + Send + '_>;

    /// Shows `f` the newest rows of the documents with keys in a range, ascending, until it breaks; only of those that it
    /// asks for a document is made. What is [beside documents](Snapshot::beside_documents) is left out, and not read.
    ///
    /// # Errors
    /// As [`Snapshot::by_seqno`], and those of `f`.
    fn look(&self, range: &KeyRange, f: &mut RowLooker<'_>) -> Result<(), StoreError> {
        self.look_from(Seqno::ZERO, range, f)
    }

    /// The same, without rows below seqno `lowest`: files that have no others are not read.
    ///
    /// # Errors
    /// As [`Snapshot::look`].
    fn look_from(
        &self,
        lowest: Seqno,
        range: &KeyRange,
        f: &mut RowLooker<'_>,
    ) -> Result<(), StoreError>;

    /// A seqno from which on there are about `rows` rows, or more where a [look](Snapshot::look_from) from there would read many
    /// others for each of them. An estimate. Cost: no read.
    fn newest(&self, rows: u64) -> Seqno;
}

/// Whether a row is no document of a client: see [`Snapshot::beside_documents`].
pub(crate) fn is_beside(row: &Document) -> bool {
    let is_event = |key| split_key(key).is_some_and(|(id, _)| id == CollectionId::SYSTEM);
    row.kind().is_prepared() || is_event(row.key())
}

/// What looks at rows.
pub type RowLooker<'f> = dyn FnMut(LookedAt<'_>) -> Result<ControlFlow<()>, StoreError> + 'f;

/// A row that is looked at.
pub struct LookedAt<'r> {
    /// What it says of itself.
    pub meta: &'r Meta,
    /// Its key with collection prefix.
    pub key: &'r [u8],
    /// Length of its value, wherever that lies.
    pub value_bytes: usize,
    /// Makes the document of it.
    pub document: &'r dyn Fn() -> Result<Document, StoreError>,
}

/// The changes of one vBucket that a commit takes, walked where they lie.
pub trait Changes {
    /// Calls `f` with each change. Each key occurs at most once, but for what is kept; the order is
    /// free.
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>));

    /// How many changes there are.
    fn len(&self) -> usize;

    /// Whether rows of the history may be among them.
    fn has_history(&self) -> bool {
        let mut found = false;
        self.for_each(&mut |change| found |= matches!(change, Change::Keep { .. }));
        found
    }

    /// Whether there is none, so that only the record is written.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A slice is the simplest batch: documents with the seqno of the stored row that each replaces.
impl Changes for &[(Document, Seqno)] {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        for (document, supersedes) in *self {
            f(Change::Put {
                document,
                supersedes: *supersedes,
            });
        }
    }

    fn len(&self) -> usize {
        <[_]>::len(self)
    }
}

/// One change of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A document or tombstone becomes the row of its key.
    Put {
        /// What is stored, at its own seqno; its value must be resident.
        document: &'a Document,
        /// Seqno of the stored row of the same key, which goes; zero when there is none.
        ///
        /// It must be right: it tells which states a rollback can go back to, and how much is dead.
        supersedes: Seqno,
    },
    /// The row of a key goes, without a tombstone.
    Remove {
        /// Its key with collection prefix.
        key: &'a [u8],
        /// That of its prepare or abort, not that of its document.
        prepared: bool,
        /// The row's seqno.
        seqno: Seqno,
    },
    /// A committed document or tombstone becomes a row of the history, whatever else becomes of it.
    Keep {
        /// What is kept, at its own seqno; its value must be resident.
        document: &'a Document,
        /// Now, Unix seconds: the row's age counts from here.
        at_s: u32,
    },
}

/// One vBucket's part of a commit.
#[derive(Clone, Copy)]
pub struct VbBatch<'a> {
    /// The vBucket.
    pub vb: VbId,
    /// Its record as of the end of the batch; `high_seqno` covers all changes.
    pub record: &'a VbRecord,
    /// The changes.
    pub changes: &'a (dyn Changes + 'a),
}

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitInfo {
    /// Rows written, tombstones included.
    pub rows: usize,
    /// Bytes of rows and records as encoded, before the store's own overhead.
    pub bytes: u64,
    /// Whether it had to wait, because the store had not yet put away what came before.
    pub waited: bool,
}

/// A document that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// Its key with collection prefix.
    pub key: &'a [u8],
    /// Only if it is at that seqno, as a document or as a prepare.
    pub seqno: Option<Seqno>,
}

/// A vBucket as the store found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedVb {
    /// The vBucket.
    pub vb: VbId,
    /// Its record.
    pub record: VbRecord,
}

/// Where something is damaged, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedRow {
    /// The row.
    pub seqno: Option<Seqno>,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// How far a scan's view reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// Highest seqno of the view.
    pub high_seqno: Seqno,
    /// Highest seqno of a purged tombstone as of the view.
    pub purge_seqno: Seqno,
}

/// What becomes of a row in a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It stays.
    Keep,
    /// It goes. If it is a tombstone, the purge seqno tells.
    Drop,
    /// It goes, and no reader misses it: the purge seqno stays.
    Erase,
}

impl Keep {
    /// Erases, or keeps.
    pub(crate) fn erased_if(dead: bool) -> Self {
        if dead { Self::Erase } else { Self::Keep }
    }
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Rows that stay.
    pub kept: u64,
    /// Rows dropped.
    pub dropped: u64,
    /// Highest seqno of a purged tombstone afterwards.
    pub purge_seqno: Seqno,
}

/// Bytes that a store takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Rows and records that are alive, as last estimated; no file overhead.
    pub data_bytes: u64,
    /// All files of the store.
    pub file_bytes: u64,
}

/// What a store did in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Merges of what lay side by side.
    pub merges: u64,
    /// Merges that failed; each is tried again.
    pub merges_failed: u64,
    /// Attempts to put away what commits left that failed; each is tried again.
    pub runs_failed: u64,
}

/// What a rollback to `point` makes of a record, whatever the store.
pub(crate) fn rolled_back(record: &mut VbRecord, point: Seqno) {
    record.high_seqno = point;
    record.snapshot = SnapshotRange {
        start: point,
        end: point,
    };
    record.high_prepared = record.high_prepared.min(point);
    record.high_completed = record.high_completed.min(point);
    record.counts = None;
    if point == Seqno::ZERO {
        record.purge_seqno = Seqno::ZERO;
    }
}
