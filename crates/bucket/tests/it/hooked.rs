//! A store with hooks: it forwards all calls, and tests and benchmarks observe or refuse some.

use std::collections::BTreeMap;
use std::ops::Deref;

use model::{Document, Meta, Seqno, VbId, VbRecord};
use storage::{
    CommitInfo, Compacted, DamagedRow, DiskUsage, DocumentRequest, HistoryKept, HistoryLimits,
    Keep, KvStore, Snapshot, StoreError, VbBatch,
};

pub(crate) type Answer<T> = Result<T, StoreError>;

/// The hooks of a store.
pub(crate) trait Hooks: Send + Sync + 'static {
    type Inner: KvStore;

    /// Returns the store to which calls are forwarded.
    fn inner(&self) -> &Self::Inner;

    /// Runs before a read of a vBucket's rows. Its error is the result of the read.
    fn before_read(&self, _vb: VbId) -> Answer<()> {
        Ok(())
    }

    /// Runs before a write other than a commit. Its error is the result of the write.
    fn before_write(&self) -> Answer<()> {
        Ok(())
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Answer<CommitInfo> {
        self.inner().commit(batches)
    }

    fn fetch(&self, vb: VbId, wants: &[DocumentRequest<'_>]) -> Answer<Vec<Option<Document>>> {
        self.inner().fetch(vb, wants)
    }

    fn may_have_large(&self) -> bool {
        self.inner().may_have_large()
    }

    fn remove(&self, vbs: &[VbId]) -> Answer<()> {
        self.inner().remove(vbs)
    }

    fn close(&self) -> Answer<()> {
        self.inner().close()
    }

    /// Runs while damage of a vBucket is located.
    fn locating(&self) {}
}

/// A store with the hooks `H`.
#[derive(Clone, Default)]
pub(crate) struct Hooked<H>(pub(crate) H);

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H: Hooks> Hooked<H> {
    fn reading(&self, vb: VbId) -> Answer<&H::Inner> {
        self.0.before_read(vb)?;
        Ok(self.0.inner())
    }

    fn writing(&self) -> Answer<&H::Inner> {
        self.0.before_write()?;
        Ok(self.0.inner())
    }
}

impl<H: Hooks> KvStore for Hooked<H> {
    fn load(&self) -> Answer<BTreeMap<VbId, VbRecord>> {
        self.0.inner().load()
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Answer<CommitInfo> {
        self.0.commit(batches)
    }

    fn fetch(&self, vb: VbId, wants: &[DocumentRequest<'_>]) -> Answer<Vec<Option<Document>>> {
        self.0.before_read(vb)?;
        self.0.fetch(vb, wants)
    }

    fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        self.0.inner().may_have(vb, key)
    }

    fn may_have_large(&self) -> bool {
        self.0.may_have_large()
    }

    fn snapshot(&self, vb: VbId) -> Answer<Box<dyn Snapshot>> {
        self.reading(vb)?.snapshot(vb)
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Answer<VbRecord> {
        self.writing()?.rollback(vb, to)
    }

    fn rollback_point(&self, vb: VbId, to: Seqno) -> Answer<Seqno> {
        self.reading(vb)?.rollback_point(vb, to)
    }

    fn compact(&self, vb: VbId, keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep) -> Answer<Compacted> {
        self.writing()?.compact(vb, keep)
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Answer<HistoryKept> {
        self.writing()?.trim_history(vb, limits, dead)
    }

    fn may_have_history(&self) -> Answer<bool> {
        self.0.inner().may_have_history()
    }

    fn remove(&self, vbs: &[VbId]) -> Answer<()> {
        self.0.before_write()?;
        self.0.remove(vbs)
    }

    fn locate(&self, vb: VbId, after: Seqno) -> DamagedRow {
        self.0.locating();
        self.0.inner().locate(vb, after)
    }

    fn manifest(&self) -> Answer<Option<Vec<u8>>> {
        self.0.inner().manifest()
    }

    fn set_manifest(&self, text: &[u8]) -> Answer<()> {
        self.writing()?.set_manifest(text)
    }

    fn disk_usage(&self) -> Answer<DiskUsage> {
        self.0.inner().disk_usage()
    }

    fn close(&self) -> Answer<()> {
        self.0.close()
    }
}
