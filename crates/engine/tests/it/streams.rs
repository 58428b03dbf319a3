//! A model of a change producer's stream: reads the store first for changes that left memory, then
//! memory; returns to the store when its cursor was dropped.

use std::fmt::Write as _;

use engine::{CheckpointKind, CursorId, CursorRead, FlushBudget, VBucket};
use model::{Document, Seqno, SnapshotRange};

use crate::store::ModelStore;

/// One stream of one vBucket.
pub(crate) struct Stream {
    name: String,
    pub(crate) cursor: Option<CursorId>,
    /// Whether the store must be read before memory.
    gap: bool,
    /// Seqno of the last change that was sent or skipped.
    pub(crate) last: Seqno,
}

/// Result of a read.
pub(crate) struct Sent {
    /// Snapshot marker before the changes; `None` if they belong to the last snapshot.
    pub(crate) marker: Option<SnapshotRange>,
    pub(crate) kind: &'static str,
    pub(crate) checkpoint: bool,
    pub(crate) documents: Vec<Document>,
}

impl Stream {
    pub(crate) fn open(vbucket: &mut VBucket, name: &str, after: Seqno) -> Self {
        let mut stream = Self {
            name: name.into(),
            cursor: None,
            gap: false,
            last: after,
        };
        stream.register(vbucket);
        stream
    }

    /// Registers a cursor after the last change; returns the range that left memory.
    pub(crate) fn register(&mut self, vbucket: &mut VBucket) -> Option<SnapshotRange> {
        let registered = vbucket.register_cursor(&self.name, self.last);
        if let Some(gap) = registered.gap {
            assert_eq!(gap.start, self.last.next());
            assert!(gap.start <= gap.end, "{gap:?}");
        }
        self.cursor = Some(registered.cursor);
        self.gap = registered.gap.is_some();
        registered.gap
    }

    /// Returns the next changes; `None` if there are none.
    pub(crate) fn read(
        &mut self,
        vbucket: &mut VBucket,
        store: &ModelStore,
        items: usize,
    ) -> Option<Sent> {
        if self.cursor.is_none() {
            self.register(vbucket);
        }
        if self.gap {
            return Some(self.backfill(vbucket, store));
        }
        let budget = FlushBudget {
            items,
            bytes: usize::MAX,
        };
        match vbucket.take_from(self.cursor?, budget) {
            CursorRead::Nothing => None,
            CursorRead::Dropped => {
                self.cursor = None;
                self.read(vbucket, store, items)
            }
            CursorRead::Changes(batch) => {
                assert!(self.last < batch.last && batch.last <= batch.snapshot.end);
                assert_eq!(batch.more, changes_behind(vbucket, self.cursor?) > 0);
                let mut place = engine::BatchPlace::default();
                let mut documents = Vec::new();
                while let Some(document) = batch.next(&mut place) {
                    documents.push(document.clone());
                }
                assert_eq!(documents.len(), batch.documents().count());
                self.last = batch.last;
                Some(Sent {
                    marker: batch.new_snapshot.then_some(batch.snapshot),
                    kind: match batch.checkpoint_kind {
                        CheckpointKind::Memory => "memory",
                        CheckpointKind::Disk | CheckpointKind::InitialDisk => "disk",
                    },
                    checkpoint: batch.new_checkpoint,
                    documents,
                })
            }
        }
    }

    /// Returns all later changes of the store, as one snapshot.
    fn backfill(&mut self, vbucket: &mut VBucket, store: &ModelStore) -> Sent {
        let record = store
            .record
            .as_ref()
            .expect("what left memory is in the store");
        let marker = SnapshotRange {
            start: self.last.next(),
            end: record.high_seqno.max(record.snapshot.end),
        };
        let rows = store.rows.range(self.last.next()..);
        let documents = rows.map(|(_, row)| row.clone()).collect();
        self.last = record.high_seqno;
        let gap = self.register(vbucket);
        assert_eq!(gap, None, "memory goes on where the store ends");
        Sent {
            marker: Some(marker),
            kind: "disk",
            checkpoint: true,
            documents,
        }
    }
}

impl Sent {
    /// Shows the result as a line of a script: `marker 1..2 memory checkpoint; a@1; b!@2`.
    pub(crate) fn told(&self, named: impl Fn(&Document) -> String) -> String {
        let mut parts = Vec::new();
        if let Some(marker) = self.marker {
            let mut text = format!("marker {}..{} {}", marker.start, marker.end, self.kind);
            if self.checkpoint {
                write!(text, " checkpoint").unwrap();
            }
            parts.push(text);
        }
        parts.extend(self.documents.iter().map(named));
        parts.join("; ")
    }
}

/// Maximum number of changes that the cursor has still to read; zero without such a cursor.
pub(crate) fn changes_behind(vbucket: &VBucket, cursor: CursorId) -> u64 {
    let mut cursors = vbucket.cursor_stats();
    let found = cursors.find(|stats| stats.cursor == cursor);
    found.map_or(0, |stats| stats.behind)
}
