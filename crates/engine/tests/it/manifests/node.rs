//! A vBucket with its store.

use std::sync::Arc;

use engine::{FlushBatch, FlushBudget, VBucket, VbConfig};
use model::{Seqno, SnapshotRange, VbRecord, VbState, VbUuid};

use super::history::State;
use crate::script::erase;
use crate::store::{ModelStore, new_vbucket};

pub(super) struct Node {
    pub(super) vbucket: VBucket,
    pub(super) store: ModelStore,
    batch: Option<FlushBatch>,
    config: Arc<VbConfig>,
    uuids: u64,
    memory: i64,
}

impl Node {
    pub(super) fn new(state: VbState, checkpoint_bytes_max: usize) -> Self {
        let config = VbConfig {
            checkpoint_bytes_max,
            ..VbConfig::default()
        };
        let (vbucket, config) = new_vbucket(state, config);
        let mut node = Self {
            vbucket,
            store: ModelStore::default(),
            batch: None,
            config,
            uuids: 1,
            memory: 0,
        };
        node.flush(usize::MAX);
        node
    }

    pub(super) fn flush_begin(&mut self, items: usize) {
        if self.batch.is_none() {
            self.batch = self.vbucket.begin_flush(
                FlushBudget {
                    items,
                    bytes: usize::MAX,
                },
                &mut engine::SpareBuffers::default(),
            );
        }
    }

    pub(super) fn flush_end(&mut self, ok: bool, written: bool) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        self.store.end_flush(&mut self.vbucket, batch, ok, written);
    }

    pub(super) fn flush(&mut self, items: usize) {
        self.flush_end(true, true);
        while self.vbucket.is_dirty() {
            self.flush_begin(items);
            self.flush_end(true, true);
        }
    }

    pub(super) fn erase(&mut self) {
        erase(&mut self.vbucket, &mut self.store);
    }

    /// Restarts from the store. Returns the seqno from which followers may continue.
    pub(super) fn restart(&mut self, unclean: bool) -> Seqno {
        self.uuids += 1;
        let uuid = VbUuid(self.uuids);
        let (vbucket, resumes_at) = self.store.restart(&self.config, unclean, uuid);
        self.vbucket = vbucket;
        self.batch = None;
        self.memory = 0;
        self.flush_begin(1);
        self.flush_end(true, true);
        resumes_at
    }

    /// Resets to an empty vBucket, as a replica does if its active node cannot continue its stream.
    pub(super) fn reset(&mut self) {
        let record = VbRecord {
            high_seqno: Seqno(0),
            snapshot: SnapshotRange::default(),
            purge_seqno: Seqno(0),
            high_prepared: Seqno(0),
            high_completed: Seqno(0),
            ..self.vbucket.record()
        };
        self.store = ModelStore::default();
        drop(self.vbucket.rollback_to(record));
        self.batch = None;
        self.flush(usize::MAX);
    }

    /// Checks counters and memory figures.
    pub(super) fn check(&mut self) {
        self.memory += self.vbucket.take_memory_delta().bytes;
        let bytes = self.vbucket.memory_bytes();
        assert_eq!(self.memory, i64::try_from(bytes).unwrap());
    }

    /// Checks that the collections and their contents match `state`.
    pub(super) fn check_state(&mut self, state: &State) {
        let found = self.vbucket.collections();
        let ids: Vec<u32> = found.iter().map(|one| one.counts.id.0).collect();
        assert!(ids.iter().eq(state.open.keys()), "{ids:?} for {state:?}");
        let mut bytes = 0;
        for one in found {
            let id = one.counts.id.0;
            let expected = &state.open[&id];
            let of_it = |key: &&Vec<u8>| super::history::id_of(key) == id;
            let items = state.documents.keys().filter(of_it).count() as u64;
            assert_eq!(one.counts.items, items, "items of {id}");
            let places = (one.scope.0, one.max_ttl_s, one.start_seqno);
            assert_eq!(places, (expected.scope, expected.ttl, expected.start));
            bytes += one.counts.memory_bytes;
        }
        assert!(bytes <= self.vbucket.stats().document_bytes as u64);
    }
}
