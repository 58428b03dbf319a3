//! Checks after every operation and after every flush.

use engine::{ObserveState, Outcome};
use model::{Document, Kind, Seqno};

use super::{KEYS, World, is_event, key_of};

impl World {
    /// Checks the store against the history, after a successful flush.
    pub(super) fn check_store(&self) {
        let record = self.store.record.as_ref().unwrap();
        let promised = self.vbucket.persisted_seqno();
        assert!(promised <= record.high_seqno && record.high_seqno <= self.expected.high);
        for row in self.store.rows.values().filter(|row| !is_event(row)) {
            let (key, known) = &self.expected.history[&row.seqno()];
            assert!(key == row.key() && known.matches(row), "{known:?} {row:?}");
            assert!(row.seqno() <= record.high_seqno && row.cas() <= record.max_cas);
        }
        self.check_history(record.high_seqno);
        let whole = record.snapshot.start == record.snapshot.end;
        assert_eq!(whole, promised == record.high_seqno);
        for key in (0..KEYS).map(key_of) {
            let newest = |limit: Seqno| {
                let mut versions = self.expected.history.range(..=limit).rev();
                versions
                    .find(|(_, (other, _))| *other == key)
                    .map(|(seqno, _)| *seqno)
            };
            let row = self.store.row(&key).map(Document::seqno);
            assert!(
                row >= newest(promised),
                "{row:?} is older than what was promised"
            );
            if whole {
                assert_eq!(row, newest(record.high_seqno));
            }
        }
    }

    /// Checks that the store has every change up to the last flush if history is kept, else none.
    fn check_history(&self, flushed: Seqno) {
        let mut kept = self.store.history.iter();
        if self.config.keeps_history {
            for (seqno, (key, known)) in self.expected.history.range(..=flushed) {
                let row = kept.next().expect("a version is missing").1;
                assert!(row.seqno() == *seqno && key == row.key() && known.matches(row));
            }
        }
        // A failed flush may have left more rows, which are written again.
        assert!(kept.all(|(seqno, _)| self.config.keeps_history && *seqno > flushed));
    }

    /// Checks everything that is visible from outside against the model.
    pub(super) fn check(&mut self) {
        let now = self.now;
        let expected = &self.expected;
        assert_eq!(self.vbucket.high_seqno(), expected.high);
        assert_eq!(self.vbucket.max_cas(), expected.max_cas);
        for (key, known) in &expected.documents {
            let Ok(Outcome::Done(found)) = self.vbucket.get_meta(key, now) else {
                panic!("{key:?} is lost");
            };
            assert_eq!(found.meta, known.meta);
            assert_eq!(found.deleted, expected.live(key, now).is_none());
            let Ok(Outcome::Done(observed)) = self.vbucket.observe(key, now) else {
                panic!("{key:?} is in memory");
            };
            let state = observed.state;
            let durable = known.meta.seqno <= expected.flushed;
            let tombstone = known.meta.kind != Kind::Mutation;
            let expected_state = match (found.deleted, durable) {
                (false, true) => ObserveState::FoundPersisted,
                (false, false) => ObserveState::FoundNotPersisted,
                (true, true) if tombstone => ObserveState::NotFound,
                (true, _) => ObserveState::Deleted,
            };
            assert_eq!(state, expected_state);
        }
        let stats = self.vbucket.stats();
        let documents = expected.documents.iter();
        let bytes: usize = documents
            .map(|(key, known)| known.memory_bytes(key, !expected.evicted.contains(key)))
            .sum();
        let tombstones = expected
            .documents
            .values()
            .filter(|known| known.meta.kind != Kind::Mutation)
            .count();
        assert_eq!(stats.document_bytes, bytes);
        assert_eq!(stats.tombstones, tombstones as u64);
        assert_eq!(stats.items, (expected.documents.len() - tombstones) as u64);
        assert_eq!(stats.non_resident, expected.evicted.len() as u64);
        let dirty = expected.documents.values();
        let dirty = dirty
            .filter(|known| known.meta.seqno > expected.flushed)
            .count();
        let checkpoints = self.vbucket.checkpoint_stats();
        assert!(checkpoints.dirty_items >= dirty as u64);
        if expected.high == expected.flushed && self.batch.is_none() {
            assert_eq!((checkpoints.dirty_items, checkpoints.dirty_bytes), (0, 0));
            assert_eq!((checkpoints.slot_bytes, checkpoints.stale_bytes), (0, 0));
        }
        self.memory += self.vbucket.take_memory_delta().bytes;
        assert_eq!(self.memory, i64::try_from(stats.memory_bytes).unwrap());
    }

    /// Flushes the rest; then the store has exactly the newest change of every key.
    pub(super) fn drain(&mut self) {
        self.flush_end(true, true);
        while self.vbucket.is_dirty() {
            self.flush_begin(1);
            self.flush_end(true, true);
        }
        self.check();
        let rows = self.store.rows.values().filter(|row| !is_event(row));
        assert_eq!(rows.count(), self.expected.documents.len());
        for (key, known) in &self.expected.documents {
            assert!(known.matches(self.store.row(key).unwrap()));
        }
    }
}
