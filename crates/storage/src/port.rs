//! The port: calls of a bucket to the store of its history.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use model::{CollectionId, Document, Meta, Seqno, SnapshotRange, VbId, VbRecord, split_key};

use crate::StoreError;
use crate::history::{HistoryKept, HistoryLimits};
use crate::key_range::KeyRange;

/// The durable history of every vBucket of one bucket.
///
/// A vBucket is a sequence of rows, one per key, in the order of their seqnos, and one
/// [`VbRecord`]. Only the newest version of a key is kept; a deletion is a row as well (a
/// tombstone) until [`KvStore::compact`] drops it. In addition it has a history, a second sequence
/// of rows: every version that a commit asked to keep, until [`KvStore::trim_history`] drops it.
/// Rollbacks and removals concern both, everything else only the first sequence.
///
/// All calls block and may be made from any thread at the same time. Commits, rollbacks and
/// removals of one store run one after the other.
pub trait KvStore: Send + Sync + 'static {
    /// Returns the records of all vBuckets.
    ///
    /// # Errors
    /// `Corrupt` if a record cannot be read, `Io`, `Closed`.
    ///
    /// Cost: one point read per vBucket; no document is read.
    fn load(&self) -> Result<BTreeMap<VbId, VbRecord>, StoreError>;

    /// Makes all batches durable with one sync.
    ///
    /// Each vBucket's batch is atomic: after a crash all of it exists, or nothing. Several vBuckets
    /// are not atomic together. Of two batches of the same vBucket the later one wins. After an
    /// error nothing may be acknowledged, although a part may exist after a restart.
    ///
    /// `purge_seqno` never decreases: the greater of the record's and the stored one is written.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: retry later. `Poisoned`: this store acknowledges nothing until a restart. `Closed`.
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError>;

    /// Returns the stored documents of some keys, in the order of `wants`; `None` for a key that
    /// does not exist, or not at the wanted seqno. Tombstones are returned.
    ///
    /// # Errors
    /// `Corrupt` if the bytes read are not those written, `Io`, `Closed`.
    ///
    /// Cost: about one read for each that exists; mostly none for others.
    fn fetch(
        &self,
        vb: VbId,
        wants: &[DocumentRequest<'_>],
    ) -> Result<Vec<Option<Document>>, StoreError>;

    /// Whether a document or a tombstone of a key may exist. `false` is certain for everything
    /// committed before the call.
    ///
    /// Cost: no read.
    fn may_have(&self, vb: VbId, key: &[u8]) -> bool;

    /// Whether documents of a MiB and more may exist. These must not be read concurrently, because
    /// a document is counted only after it is in memory.
    fn may_have_large(&self) -> bool {
        false
    }

    /// Returns a consistent view of one vBucket, which later commits do not change. A vBucket
    /// without a record has an empty view.
    ///
    /// # Errors
    /// `Corrupt` if its record cannot be read, `Io`, `Closed`.
    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError>;

    /// Returns a snapshot for looks at ranges of keys: they do not read all recent commits.
    ///
    /// # Errors
    /// As [`KvStore::snapshot`].
    ///
    /// Cost: after a certain number of new rows of all vBuckets together, one read of these.
    fn snapshot_by_key(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        self.snapshot(vb)
    }

    /// Rolls a vBucket back durably to a state that it had at or before seqno `to`. Returns its
    /// record there; the `high_seqno` of that record is the actual position.
    ///
    /// Only the newest version of a key is stored, so not every past state can be restored. The
    /// store remembers the last commits that ended at the end of their snapshot and of which no row
    /// has been overwritten or dropped since. It goes back to the latest of them at or below `to`,
    /// or to the empty vBucket (seqno 0) if there is none. `to` at or above the high seqno changes
    /// nothing. The caller handles the failover log and the state.
    ///
    /// # Errors
    /// As [`KvStore::commit`]; `Corrupt` for a vBucket without a record. After an error the vBucket
    /// may have the old or the new state: roll back again before anything else.
    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError>;

    /// Returns the seqno to which [`KvStore::rollback`] would take a vBucket; zero without a record.
    ///
    /// # Errors
    /// `Corrupt` if its record cannot be read, `Io`, `Closed`.
    fn rollback_point(&self, vb: VbId, to: Seqno) -> Result<Seqno, StoreError>;

    /// Drops the rows for which `keep` says so; it gets metadata and key of each row.
    ///
    /// The row at the high seqno always stays. The purge seqno becomes that of the highest
    /// tombstone dropped. Runs concurrently with commits; it ends early if the vBucket is rolled
    /// back or removed meanwhile.
    ///
    /// # Errors
    /// As [`KvStore::commit`] and [`Snapshot::by_seqno`].
    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError>;

    /// Drops the rows for which `is_dead` returns true, among those with keys in `ranges`, which
    /// ascend. No reader may need these rows: the purge seqno stays. Returns their number.
    /// Otherwise as [`KvStore::compact`].
    ///
    /// # Errors
    /// As [`KvStore::compact`].
    ///
    /// Cost: reads the rows in the ranges, if the store has rows by key.
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

    /// Drops the oldest rows of the history until `limits` hold, and those for which `dead` returns
    /// true. Returns the remaining size. Runs concurrently with commits, as [`KvStore::compact`].
    ///
    /// # Errors
    /// As [`KvStore::compact`].
    ///
    /// Cost: reads the vBucket's history, twice if its bytes are limited.
    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError>;

    /// Whether rows of a history may exist.
    ///
    /// # Errors
    /// `Closed`.
    fn may_have_history(&self) -> Result<bool, StoreError>;

    /// Removes vBuckets, rows and records, durably, with one sync for all of them. A missing vBucket is no error.
    ///
    /// # Errors
    /// As [`KvStore::commit`]. Then each may exist or not: remove them again.
    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError>;

    /// Returns the text of the last [`KvStore::set_manifest`]; `None` without one.
    ///
    /// # Errors
    /// `Corrupt` if it is not as it was written, `Io`, `Closed`.
    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces the manifest, a text of the bucket, durably: after a crash the old or the new one exists.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the old one is still there. `Closed`.
    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError>;

    /// Returns the vBucket's epoch: another one after each [rollback](KvStore::rollback) and when it
    /// is made anew. Those of a store differ between vBuckets. Cost: no read.
    fn epoch(&self, vb: VbId) -> u64 {
        let _ = vb;
        0
    }

    /// Returns the text of the last [`KvStore::set_summary`]; `None` if it was lost, which may happen at any time.
    fn summary(&self) -> Option<Vec<u8>> {
        None
    }

    /// Replaces the summary: a text about rows that are in the store, kept so that a start need not read them.
    /// The calls must not be concurrent.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the old one may be there. `Closed`.
    fn set_summary(&self, text: &[u8]) -> Result<(), StoreError> {
        let _ = text;
        Ok(())
    }

    /// Searches the first damaged row of a vBucket after seqno `after`, and the files of the damage, for messages.
    ///
    /// Cost: up to a read of all runs.
    fn locate(&self, vb: VbId, after: Seqno) -> DamagedRow {
        let (_, _) = (vb, after);
        DamagedRow::default()
    }

    /// Returns the disk space of the store.
    ///
    /// # Errors
    /// `Io`, `Closed`.
    fn disk_usage(&self) -> Result<DiskUsage, StoreError>;

    /// Returns the totals of background work since the store was opened. Cost: none.
    fn upkeep(&self) -> WorkTotals {
        WorkTotals::default()
    }

    /// Syncs everything and records a clean stop. All later calls return `Closed`; a second close is no error.
    ///
    /// # Errors
    /// `Io`, `NoSpace` or `Poisoned` if that failed; then the stop counts as unclean, and the store
    /// is closed all the same.
    fn close(&self) -> Result<(), StoreError>;
}

/// A document of a walk, or the error that ends it.
pub(crate) type DocumentResult = Result<Document, StoreError>;

/// Documents of a walk.
pub type Documents<'s> = Box<dyn Iterator<Item = DocumentResult> + Send + 's>;

/// A consistent view of one vBucket. It keeps old rows on disk: drop it after use.
///
/// A walk is resumed by calling [`Snapshot::by_seqno`] again with the seqno after the last one.
pub trait Snapshot: Send + Sync {
    /// Returns the record in the view; `None` if the vBucket had none.
    fn record(&self) -> Option<&VbRecord>;

    /// Returns the highest seqno of the view.
    fn high_seqno(&self) -> Seqno {
        self.record()
            .map_or(Seqno::ZERO, |record| record.high_seqno)
    }

    /// Returns the highest seqno of a purged tombstone in the view.
    fn purge_seqno(&self) -> Seqno {
        self.record()
            .map_or(Seqno::ZERO, |record| record.purge_seqno)
    }

    /// Iterates over the rows from seqno `from` (inclusive) on, seqnos ascending. Ends after the first error:
    /// `Io`, or `Corrupt` at a row that cannot be read.
    fn by_seqno(&self, from: Seqno) -> Documents<'_>;

    /// Returns the rows that are no documents of clients, seqnos ascending: prepares, aborts, and the events of
    /// collections above seqno `events`. Files that have only other rows are not read.
    ///
    /// # Errors
    /// As [`Snapshot::by_seqno`].
    fn beside_documents(&self, events: Seqno) -> Result<Vec<Document>, StoreError> {
        let rows = self.by_seqno(Seqno::ZERO);
        let wanted =
            |row: &Document| is_beside(row) && (row.kind().is_prepared() || row.seqno() > events);
        rows.filter(|row| row.as_ref().map_or(true, wanted))
            .collect()
    }

    /// Returns the seqno from which on the history has every version that was to be kept. `None` for an empty history.
    ///
    /// # Errors
    /// As [`Snapshot::by_seqno`].
    fn history_from(&self) -> Result<Option<Seqno>, StoreError>;

    /// Iterates over the rows and the other versions of the history from seqno `from` on, seqnos
    /// ascending. Ends after the first error.
    fn with_history(&self, from: Seqno) -> Documents<'_>;

    /// Calls `f` with the newest rows of documents with keys in a range and seqnos from `lowest` on, by key,
    /// until it breaks. A document is made only if `f` asks for it. Rows [beside
    /// documents](Snapshot::beside_documents) are skipped, and not read; files that have only lower seqnos are not read.
    ///
    /// # Errors
    /// As [`Snapshot::by_seqno`], and those of `f`.
    fn look(
        &self,
        lowest: Seqno,
        range: &KeyRange,
        f: &mut RowLooker<'_>,
    ) -> Result<(), StoreError>;

    /// Returns an estimated seqno from which on there are about `rows` rows, or more if a
    /// [look](Snapshot::look) from there would read many other rows for each of them. Cost: no
    /// read.
    fn newest(&self, rows: u64) -> Seqno;
}

/// Whether a row is no document of a client: see [`Snapshot::beside_documents`].
pub(crate) fn is_beside(row: &Document) -> bool {
    let is_event = |key| split_key(key).is_some_and(|(id, _)| id == CollectionId::SYSTEM);
    row.kind().is_prepared() || is_event(row.key())
}

/// Callback for rows.
pub type RowLooker<'f> = dyn FnMut(ScannedRow<'_>) -> Result<ControlFlow<()>, StoreError> + 'f;

/// A row in a look.
pub struct ScannedRow<'r> {
    /// Its metadata.
    pub meta: &'r Meta,
    /// Its key with collection prefix.
    pub key: &'r [u8],
    /// Length of its value, also if that is stored apart.
    pub value_bytes: usize,
    /// Function that makes the document.
    pub document: &'r dyn Fn() -> Result<Document, StoreError>,
}

/// The changes of one vBucket for a commit, read in place.
pub trait Changes {
    /// Calls `f` with each change. Each key occurs at most once, except in `Change::Keep`; the order is free.
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>));
}

/// A slice is the simplest batch: documents, each with the seqno of the stored row that it replaces.
impl Changes for &[(Document, Seqno)] {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        for (document, supersedes) in *self {
            f(Change::Put {
                document,
                supersedes: *supersedes,
            });
        }
    }
}

/// One change of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A document or tombstone becomes the row of its key.
    Put {
        /// The document, at its own seqno; its value must be resident.
        document: &'a Document,
        /// Seqno of the replaced row of the same key; zero without one.
        ///
        /// It must be right: restore points and the amount of dead data depend on it.
        supersedes: Seqno,
    },
    /// The row of a key is removed, without a tombstone.
    Remove {
        /// Its key with collection prefix.
        key: &'a [u8],
        /// Whether the row is a prepare or abort, not a document.
        prepared: bool,
        /// The row's seqno.
        seqno: Seqno,
    },
    /// A committed document or tombstone becomes a row of the history, independent of later changes.
    Keep {
        /// The document, at its own seqno; its value must be resident.
        document: &'a Document,
        /// The current time in Unix seconds: the row's age counts from here.
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

/// Result of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitInfo {
    /// Rows written, tombstones included.
    pub rows: usize,
    /// Bytes of rows and records as encoded, before the store's own overhead.
    pub bytes: u64,
    /// Whether the commit waited until the store had written earlier ones from its log to runs.
    pub waited: bool,
}

/// Request for a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentRequest<'a> {
    /// Its key with collection prefix.
    pub key: &'a [u8],
    /// If set, only the document or prepare at this seqno.
    pub seqno: Option<Seqno>,
}

/// Position of damage, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedRow {
    /// Seqno of the row.
    pub seqno: Option<Seqno>,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// Decision about a row in a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The row stays.
    Keep,
    /// The row is dropped. If it is a tombstone, the purge seqno rises.
    Drop,
    /// The row is dropped, and no reader needs it: the purge seqno stays.
    Erase,
}

impl Keep {
    /// Returns `Erase` if `dead`, otherwise `Keep`.
    pub(crate) fn erased_if(dead: bool) -> Self {
        if dead { Self::Erase } else { Self::Keep }
    }
}

/// Result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Rows that stay.
    pub kept: u64,
    /// Rows dropped.
    pub dropped: u64,
    /// Highest seqno of a purged tombstone afterwards.
    pub purge_seqno: Seqno,
}

/// Disk space of a store in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Estimated bytes of live rows and records, without file overhead.
    pub data_bytes: u64,
    /// Bytes of all files of the store.
    pub file_bytes: u64,
}

/// Totals of a store's background work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkTotals {
    /// Merges of runs.
    pub merges: u64,
    /// Failed merges; each is retried.
    pub merges_failed: u64,
    /// Failed attempts to write runs from logs; each is retried.
    pub runs_failed: u64,
}

/// Changes a record for a rollback to `point`; common to all stores.
pub(crate) fn rolled_back(record: &mut VbRecord, point: Seqno) {
    record.high_seqno = point;
    record.snapshot = SnapshotRange {
        start: point,
        end: point,
    };
    record.high_prepared = record.high_prepared.min(point);
    record.high_completed = record.high_completed.min(point);
    record.counts = None;
    // A replica learns its active node's, which may be above the point.
    record.purge_seqno = record.purge_seqno.min(point);
}
