//! The store as a bucket calls it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::{Document, Meta, Seqno, VbId, VbRecord};
use parking_lot::{Mutex, RwLock};

use super::compaction::CompactionWorker;
use super::current::LogNote;
use super::fault::{read_error, read_error_of};
use super::file_lock::FileLock;
use super::files::Files;
use super::flush::FlushWorker;
use super::log::EntryKind;
use super::maintain;
use super::open::{self, StoreContent};
use super::options::DiskOptions;
use super::tail::LastStop;
use super::view::{self, DiskSnapshot};
use super::writer::{Core, Flushing, Writer};
use super::{commit, locate, summary};
use crate::history::{HistoryKept, HistoryLimits};
use crate::key_range::KeyRange;
use crate::port::{
    CommitInfo, Compacted, DamagedRow, DiskUsage, DocumentRequest, Keep, KvStore, Snapshot,
    VbBatch, WorkTotals,
};
use crate::work::{RunningWorker, Threads, WorkKind};
use crate::{ErrorKind, StoreError};

/// Approximate memory of the workers in bytes: rows being sorted, a filter being built, blocks of runs being merged.
const WORK_BYTES: u64 = 16 << 20;

/// Result of opening a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedStore {
    /// Whether the store is new.
    pub fresh: bool,
    /// Whether the last stop was clean; otherwise every active vBucket begins a new history. A new store is clean.
    pub clean: bool,
    /// Whether the last stop came after a failed sync. The content read at the opening is durable.
    pub poisoned: bool,
}

/// A [`KvStore`] on disk.
pub struct DiskStore {
    core: Arc<Core>,
    merging: Arc<dyn RunningWorker>,
    /// The lock of its directory, until the store is closed or dropped.
    pub(super) lock: Mutex<Option<FileLock>>,
}

impl DiskStore {
    /// Opens the store in `files`, or creates one if there is none.
    ///
    /// # Errors
    /// `InvalidData` if a file is damaged or missing: then nothing was changed. Those of the system.
    pub(crate) fn open_files(
        files: Arc<dyn Files>,
        threads: &dyn Threads,
        options: DiskOptions,
    ) -> io::Result<(Self, OpenedStore)> {
        let StoreContent {
            current,
            log,
            tail,
            next_epoch,
            dead_rows,
            has_history,
            fresh,
            left,
        } = open::open(&*files, &options)?;
        let flushing = Flushing::default();
        flushing.state.lock().waiting = current.sealed.is_some();
        let core = Arc::new(Core {
            files,
            options,
            next_file: AtomicU64::new(current.version.manifest.contents.next_file),
            next_epoch: AtomicU64::new(next_epoch),
            dead_rows: AtomicU64::new(dead_rows),
            removed: AtomicBool::new(false),
            has_history: AtomicBool::new(has_history),
            committed: AtomicU64::new(log.last_group),
            // The sizes of existing documents are unknown.
            has_large: AtomicBool::new(!fresh),
            renewing: AtomicBool::new(false),
            writer: Mutex::new(Writer::new(log, tail)),
            switch: Mutex::new(()),
            current: RwLock::new(current),
            flushing,
            stopping: AtomicBool::new(false),
            upkeep: Mutex::default(),
        });
        let compaction = CompactionWorker::new(Arc::clone(&core));
        let compaction = threads.start(WorkKind::Merge, Box::new(compaction))?;
        let merging: Arc<dyn RunningWorker> = Arc::from(compaction);
        let flusher = FlushWorker::new(Arc::clone(&core), Arc::clone(&merging));
        let store = Self {
            core,
            merging,
            lock: Mutex::new(None),
        };
        let flusher = threads.start(WorkKind::Drain, Box::new(flusher))?;
        *store.core.flushing.worker.lock() = Some(flusher);
        store.core.flushing.ring();
        let opened = OpenedStore {
            fresh,
            clean: left == LastStop::Clean,
            poisoned: left == LastStop::Poisoned,
        };
        Ok((store, opened))
    }

    /// Returns its memory in bytes: indexes of logs, filters and indexes of runs, walks over
    /// vBuckets, and the workers at work.
    pub fn memory_bytes(&self) -> u64 {
        let current = self.core.current.read();
        let logs = current.logs().map(|log| log.index.memory_bytes());
        let runs = current.version.runs.iter().map(|run| run.memory_bytes());
        (logs.sum::<usize>() + runs.sum::<usize>() + current.walks.get()) as u64 + WORK_BYTES
    }

    fn check_open(&self, during: &'static str) -> Result<(), StoreError> {
        if self.core.stopping.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::Closed, during));
        }
        Ok(())
    }

    /// Stops the workers.
    fn stop(&self) {
        self.core.stopping.store(true, Ordering::SeqCst);
        self.core.flushing.changed.notify_all();
        let flusher = self.core.flushing.worker.lock().take();
        for worker in [Some(&*self.merging), flusher.as_deref()]
            .into_iter()
            .flatten()
        {
            worker.ring();
            worker.join();
        }
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl KvStore for DiskStore {
    fn load(&self) -> Result<BTreeMap<VbId, VbRecord>, StoreError> {
        let during = "loading";
        self.check_open(during)?;
        let current = self.core.current.read();
        let mut loaded = BTreeMap::new();
        for vb in current.states.keys() {
            let stored = current.stored(vb).map_err(read_error_of(vb, during))?;
            loaded.extend(stored.map(|stored| (vb, stored.record)));
        }
        Ok(loaded)
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
        commit::commit(&self.core, batches)
    }

    fn fetch(
        &self,
        vb: VbId,
        wants: &[DocumentRequest<'_>],
    ) -> Result<Vec<Option<Document>>, StoreError> {
        let during = "fetching documents";
        self.check_open(during)?;
        let fetch = |want| view::fetch(&self.core, vb, want).map_err(read_error_of(vb, during));
        wants.iter().map(fetch).collect()
    }

    fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        view::may_have(&self.core, vb, key)
    }

    fn may_have_large(&self) -> bool {
        self.core.has_large.load(Ordering::Relaxed)
    }

    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        let during = "opening a snapshot";
        self.check_open(during)?;
        let snapshot = DiskSnapshot::open(&self.core.current.read(), vb);
        Ok(Box::new(snapshot.map_err(read_error_of(vb, during))?))
    }

    fn snapshot_by_key(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        view::order_logs(&self.core);
        self.snapshot(vb)
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
        maintain::rollback(&self.core, vb, to)
    }

    fn rollback_point(&self, vb: VbId, to: Seqno) -> Result<Seqno, StoreError> {
        maintain::rollback_point(&self.core, vb, to)
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError> {
        let compacted = maintain::compact(&self.core, (vb, &[KeyRange::default()]), keep)?;
        if !self.core.renewing.load(Ordering::Relaxed) && self.core.has_stale() {
            self.core.renewing.store(true, Ordering::Relaxed);
            self.merging.ring();
        }
        Ok(compacted)
    }

    fn erase(
        &self,
        vb: VbId,
        ranges: &[KeyRange],
        is_dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<u64, StoreError> {
        view::order_logs(&self.core);
        let keep = &mut |meta: &Meta, key: &[u8]| Keep::erased_if(is_dead(meta, key));
        maintain::compact(&self.core, (vb, ranges), keep).map(|done| done.dropped)
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError> {
        maintain::trim_history(&self.core, vb, limits, dead)
    }

    fn may_have_history(&self) -> Result<bool, StoreError> {
        self.check_open("looking for a history")?;
        Ok(self.core.has_history.load(Ordering::Relaxed))
    }

    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError> {
        maintain::remove(&self.core, vbs)?;
        self.merging.ring();
        Ok(())
    }

    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let during = "reading the manifest";
        self.check_open(during)?;
        let text = self.core.current.read().text();
        text.map_err(|error| read_error(error, during))
    }

    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError> {
        let mut changes = self.core.begin("keeping the manifest")?;
        let put = |out: &mut Vec<u8>, _| out.extend_from_slice(text);
        if let Some(place) = changes.put(EntryKind::Text, VbId(0), &[], put) {
            changes.note(LogNote::Text(place));
        }
        changes.finish()
    }

    fn epoch(&self, vb: VbId) -> u64 {
        let current = self.core.current.read();
        let state = current.states.get(vb);
        state.map_or(0, |state| state.lineage.epoch)
    }

    fn summary(&self) -> Option<Vec<u8>> {
        let files = &*self.core.files;
        let failure = match summary::read(files, self.core.committed.load(Ordering::Acquire)) {
            Ok(Some(text)) => return Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Ok(None) => None,
            Err(error) => Some(error),
        };
        // One of a later state could look valid once the store has as many groups again, and one with an old key
        // would keep that key in use.
        let removed = files.remove(summary::NAME);
        let removed = removed.and_then(|()| files.sync_names()).is_ok();
        // A change of keys is no reason for a warning.
        if let Some(error) = failure {
            tracing::warn!(%error, removed, "{} is not used", summary::NAME);
        }
        None
    }

    fn set_summary(&self, text: &[u8]) -> Result<(), StoreError> {
        let during = "writing the summary of events";
        self.check_open(during)?;
        let committed = self.core.committed.load(Ordering::Acquire);
        let written = summary::write(&*self.core.files, committed, text);
        written.map_err(|error| read_error(error, during))
    }

    fn locate(&self, vb: VbId, after: Seqno) -> DamagedRow {
        locate::locate(&self.core, vb, after)
    }

    fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        let during = "measuring";
        self.check_open(during)?;
        let (version, logs) = {
            let current = self.core.current.read();
            let logs: Vec<_> = current.logs().map(|log| Arc::clone(&log.file)).collect();
            (Arc::clone(&current.version), logs)
        };
        let mut file_bytes = 0;
        for log in logs {
            file_bytes += log
                .disk_bytes()
                .map_err(|error| read_error(error, during))?;
        }
        let runs: u64 = version.runs.iter().map(|run| run.bytes).sum();
        let values: u64 = version.values.values().map(|value| value.bytes).sum();
        let referred = version.runs.iter().flat_map(|run| run.values().values());
        let live_values: u64 = referred.sum();
        let rows: u64 = version.runs.iter().map(|run| run.rows()).sum();
        let dead = self.core.dead_rows.load(Ordering::Relaxed).min(rows);
        let all = u128::from(runs + live_values) * u128::from(rows - dead);
        let live = all.checked_div(u128::from(rows)).unwrap_or(0);
        Ok(DiskUsage {
            data_bytes: u64::try_from(live).unwrap_or(u64::MAX) + file_bytes,
            file_bytes: file_bytes + runs + values,
        })
    }

    fn upkeep(&self) -> WorkTotals {
        *self.core.upkeep.lock()
    }

    fn close(&self) -> Result<(), StoreError> {
        let ended = self.core.writer.lock().end();
        self.stop();
        let manifest = self.core.manifest_number();
        let closed = ended.and_then(|was_open| {
            let mut writer = self.core.writer.lock();
            if was_open {
                writer.mark_clean(manifest)
            } else {
                Ok(())
            }
        });
        self.lock.lock().take();
        closed
    }
}
