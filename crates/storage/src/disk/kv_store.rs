//! The port, on disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Document, Meta, Seqno, VbId, VbRecord};

use super::store::DiskStore;
use super::view::{self, DiskSnapshot, View};
use super::{commit, history, layout, locate, maintain, manifest};
use crate::port::{
    CommitInfo, Compacted, DamagedRow, DiskUsage, Keep, KvStore, LoadedVb, Snapshot, Upkeep,
    VbBatch, Want,
};
use crate::{ErrorKind, HistoryKept, HistoryLimits, StoreError};

impl KvStore for DiskStore {
    fn load(&self) -> Result<Vec<LoadedVb>, StoreError> {
        let during = "loading";
        let engine = self.reader(during)?;
        let vbs: Vec<VbId> = self.writer.lock().states().keys().collect();
        let mut loaded = Vec::with_capacity(vbs.len());
        for vb in vbs {
            let stored = View::open(Arc::clone(&engine), vb).stored_vb();
            let Some(stored) = stored.map_err(|error| error.into_store_error(during))? else {
                continue;
            };
            loaded.push(LoadedVb {
                vb,
                record: stored.record,
            });
        }
        Ok(loaded)
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
        commit::commit(self, batches)
    }

    fn fetch(&self, vb: VbId, wants: &[Want<'_>]) -> Result<Vec<Option<Document>>, StoreError> {
        let engine = self.reader("fetching documents")?;
        let fetch = |want| view::fetch(&engine, vb, want);
        wants.iter().map(fetch).collect()
    }

    fn may_have_large(&self) -> bool {
        let engine = self.engine.try_read();
        let engine = engine.as_deref().and_then(Option::as_ref);
        engine.is_none_or(|engine| engine.may_have_large())
    }

    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(DiskSnapshot::open(
            self.reader("opening a snapshot")?,
            vb,
        )?))
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
        maintain::rollback(self, vb, to)
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError> {
        maintain::compact(self, vb, keep)
    }

    fn may_have_history(&self) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let directory = writer.directory_mut();
        let directory =
            directory.ok_or_else(|| StoreError::new(ErrorKind::Closed, "looking for a history"))?;
        Ok(directory.has_history())
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError> {
        history::trim(self, vb, limits, dead)
    }

    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError> {
        maintain::remove(self, vbs)
    }

    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError> {
        manifest::read(self.open_path(manifest::READING)?)
    }

    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError> {
        // A commit holds the writer through its sync, and it is only needed for the first manifest.
        let is_open = self
            .engine
            .try_read()
            .is_some_and(|engine| engine.is_some());
        if is_open && self.manifest_noted.load(Ordering::Acquire) {
            return manifest::write(&self.path, text);
        }
        manifest::write(self.open_path(manifest::WRITING)?, text)?;
        let mut writer = self.writer.lock();
        let Some(directory) = writer.directory_mut() else {
            return Err(StoreError::new(ErrorKind::Closed, manifest::WRITING));
        };
        directory.note_manifest().map_err(manifest::not_written)?;
        self.manifest_noted.store(true, Ordering::Release);
        Ok(())
    }

    fn locate(&self, vb: VbId, after: Seqno, high: Seqno) -> DamagedRow {
        self.reader("looking for damage")
            .map(|engine| locate::locate(&engine, &self.path, vb, after, high))
            .unwrap_or_default()
    }

    fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        // The caller serves clients: it waits neither for a commit nor for the disk that holds one up.
        let during = "measuring";
        let io = |why: &dyn std::fmt::Display| {
            StoreError::new(ErrorKind::Io, during).because(why.to_string())
        };
        let opening = || io(&"the database is being opened");
        let engine = self.engine.try_read().ok_or_else(opening)?.clone();
        let engine = engine.map_or_else(|| self.reader(during), Ok)?;
        let data_bytes =
            engine.rows.disk_space() + engine.journal_bytes() + engine.value_log.bytes();
        let file_bytes = layout::bytes_below(&self.path).map_err(|error| io(&error))?;
        Ok(DiskUsage {
            data_bytes,
            file_bytes,
        })
    }

    fn upkeep(&self) -> Upkeep {
        self.background.upkeep()
    }

    fn close(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let engine = self.engine.write().take();
        writer.close(engine)
    }
}
