//! A vBucket with its store and its streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{FlushBatch, FlushBudget, StoreMode, VBucket, VbConfig, Write};
use model::{Cas, Draft, Meta, Now, Seqno, SnapshotRange, VbState, VbUuid};

use super::reader::Reader;
use crate::store::{ModelStore, new_vbucket};

/// Every change, including replaced ones.
#[derive(Clone, Default)]
pub(super) struct History {
    changes: BTreeMap<Seqno, (Vec<u8>, bool)>,
}

impl History {
    pub(super) fn newest(&self, key: &[u8], at: Seqno) -> Option<Seqno> {
        let mut older = self.changes.range(..=at).rev();
        let found = older.find(|(_, (other, _))| other == key);
        found.map(|(seqno, _)| *seqno)
    }

    pub(super) fn is_gone(&self, seqno: Seqno) -> bool {
        self.changes[&seqno].1
    }

    pub(super) fn state(&self, at: Seqno) -> BTreeMap<Vec<u8>, Seqno> {
        let changes = self.changes.range(..=at);
        changes
            .map(|(seqno, (key, _))| (key.clone(), *seqno))
            .collect()
    }
}

pub(super) struct Node {
    pub(super) vbucket: VBucket,
    pub(super) store: ModelStore,
    pub(super) history: History,
    pub(super) now: Now,
    batch: Option<FlushBatch>,
    readers: Vec<Reader>,
    readers_made: u32,
    config: Arc<VbConfig>,
    uuids: u64,
    memory: i64,
}

impl Node {
    fn new(state: VbState, checkpoint_bytes_max: usize) -> Self {
        let config = VbConfig {
            checkpoint_bytes_max,
            ..VbConfig::default()
        };
        let (vbucket, config) = new_vbucket(state, config);
        let mut node = Self {
            vbucket,
            store: ModelStore::default(),
            history: History::default(),
            now: Now {
                unix_ns: 1_700_000_000_000_000_000,
                mono_ns: 1,
            },
            batch: None,
            readers: Vec::new(),
            readers_made: 0,
            config,
            uuids: 1,
            memory: 0,
        };
        node.flush_begin(1);
        node.flush_end(true, true);
        node
    }

    pub(super) fn active(checkpoint_bytes_max: usize) -> Self {
        Self::new(VbState::Active, checkpoint_bytes_max)
    }

    pub(super) fn replica(checkpoint_bytes_max: usize) -> Self {
        Self::new(VbState::Replica, checkpoint_bytes_max)
    }

    pub(super) fn set(&mut self, key: &[u8]) {
        let draft = Some(Draft::new(key, b"value", &Meta::default()));
        let mut write = Write {
            mode: StoreMode::Set,
            draft,
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
        };
        self.vbucket.store(&mut write, self.now).unwrap();
        let seqno = self.vbucket.high_seqno();
        self.history.changes.insert(seqno, (key.into(), false));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        if self.vbucket.delete(key, Cas::ANY, None, self.now).is_ok() {
            let seqno = self.vbucket.high_seqno();
            self.history.changes.insert(seqno, (key.into(), true));
        }
    }

    pub(super) fn flush_begin(&mut self, items: usize) {
        let batch = self.vbucket.begin_flush(
            FlushBudget {
                items,
                bytes: usize::MAX,
            },
            &mut engine::SpareBuffers::default(),
        );
        assert!(batch.is_none() || self.batch.is_none());
        self.batch = batch.or(self.batch.take());
    }

    pub(super) fn flush_end(&mut self, ok: bool, written: bool) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        self.store.end_flush(&mut self.vbucket, batch, ok, written);
    }

    pub(super) fn open(&mut self, from_high: bool) {
        if self.readers.len() >= 4 {
            return;
        }
        let name = format!("reader {}", self.readers_made);
        self.readers_made += 1;
        let after = if from_high {
            self.vbucket.high_seqno()
        } else {
            Seqno(0)
        };
        let mut reader = Reader::open(&mut self.vbucket, &name, after);
        reader.state = self.history.state(after);
        self.readers.push(reader);
    }

    pub(super) fn read(&mut self, which: u8, items: usize, history: &History) {
        let count = self.readers.len().max(1);
        if let Some(reader) = self.readers.get_mut(usize::from(which) % count) {
            reader.read_from(&mut self.vbucket, &self.store, items);
            reader.check_if_whole(history);
        }
    }

    pub(super) fn drop_cursor(&mut self, which: u8) {
        let count = self.readers.len().max(1);
        if let Some(reader) = self.readers.get_mut(usize::from(which) % count) {
            reader.drop_cursor(&mut self.vbucket);
        }
    }

    pub(super) fn drop_slowest(&mut self) {
        let before = self.vbucket.checkpoint_pressure();
        let Some(engine::SlowestCursor {
            cursor,
            pinned_bytes: pinned,
        }) = before.slowest
        else {
            return;
        };
        let alone = self.vbucket.checkpoint_stats().cursors == 1;
        drop(self.vbucket.drop_cursor(cursor));
        let after = self.vbucket.checkpoint_pressure();
        assert!(pinned > 0 && after.bytes <= before.bytes);
        assert_ne!(after.slowest.map(|slowest| slowest.cursor), Some(cursor));
        if alone {
            assert!(after.bytes + pinned <= before.bytes + 4096, "freed as told");
        }
    }

    pub(super) fn close(&mut self, which: u8) {
        let count = self.readers.len().max(1);
        let index = usize::from(which) % count;
        if index < self.readers.len() {
            let reader = self.readers.swap_remove(index);
            if let Some(cursor) = reader.stream.cursor {
                drop(self.vbucket.remove_cursor(cursor));
            }
        }
    }

    /// Restarts from the store, without streams. Returns the seqno from which others may continue.
    pub(super) fn restart(&mut self, unclean: bool) -> Seqno {
        self.uuids += 1;
        let uuid = VbUuid(self.uuids);
        let (vbucket, resumes_at) = self.store.restart(&self.config, unclean, uuid);
        self.vbucket = vbucket;
        self.batch = None;
        self.memory = 0;
        self.readers.clear();
        // Lost changes are removed from the history.
        let high = self.vbucket.high_seqno();
        self.history.changes.retain(|seqno, _| *seqno <= high);
        let snapshot = self.store.record.as_ref().expect("a record").snapshot;
        self.forget_what_was_replaced(snapshot, high);
        // The first flush declares the rest of an active vBucket complete.
        self.flush_begin(1);
        self.flush_end(true, true);
        resumes_at
    }

    /// In a snapshot that was lost in part, removes changes whose replacement was lost.
    fn forget_what_was_replaced(&mut self, snapshot: SnapshotRange, high: Seqno) {
        if snapshot.end > high {
            let rows = &self.store.rows;
            self.history
                .changes
                .retain(|seqno, _| *seqno <= snapshot.start || rows.contains_key(seqno));
        }
    }

    /// Resets to an empty vBucket.
    pub(super) fn reset(&mut self) {
        let zero = SnapshotRange::default();
        let record = model::VbRecord {
            high_seqno: Seqno(0),
            snapshot: zero,
            purge_seqno: Seqno(0),
            ..self.vbucket.record()
        };
        self.store = ModelStore::default();
        let old = self.vbucket.rollback_to(record);
        drop(old);
        self.readers.clear();
        self.flush_end(true, false);
        self.flush_begin(1);
        self.flush_end(true, true);
    }

    pub(super) fn check(&mut self) {
        self.memory += self.vbucket.take_memory_delta().bytes;
        let bytes = self.vbucket.memory_bytes();
        assert_eq!(self.memory, i64::try_from(bytes).unwrap());
        let pressure = self.vbucket.checkpoint_pressure();
        assert!(pressure.undurable_bytes <= pressure.bytes);
        assert!(
            self.vbucket.expel().is_empty(),
            "what was passed left already"
        );
        let record = self.store.record.as_ref().unwrap();
        assert!(self.vbucket.persisted_seqno() <= record.high_seqno);
    }

    /// Lets every reader read everything; then the log is empty.
    pub(super) fn drain(&mut self, history: &History) {
        self.flush_end(false, false);
        while self.vbucket.is_dirty() {
            self.flush_begin(7);
            self.flush_end(true, true);
        }
        for mut reader in std::mem::take(&mut self.readers) {
            while reader.stream.last < self.vbucket.high_seqno() {
                let sent = reader.read_from(&mut self.vbucket, &self.store, 5);
                assert!(sent.is_some(), "there is more");
                reader.check_if_whole(history);
            }
            reader.check(history, self.vbucket.high_seqno());
            if let Some(cursor) = reader.stream.cursor {
                drop(self.vbucket.remove_cursor(cursor));
            }
        }
    }

    /// Activates a replica in the middle of a snapshot.
    pub(super) fn promote(&mut self) {
        let at = self.vbucket.snapshot_progress().start;
        self.vbucket.set_state(VbState::Active, None, VbUuid(99));
        let newest = self.vbucket.failover_log().newest();
        assert_eq!((newest.uuid, newest.seqno), (VbUuid(99), at));
        self.set(b"\0new");
        self.flush_begin(usize::MAX);
        self.flush_end(true, true);
        assert_eq!(self.vbucket.persisted_seqno(), self.vbucket.high_seqno());
    }
}
