//! A stream with the state of its receiver.

use std::collections::{BTreeMap, BTreeSet};

use engine::VBucket;
use model::{Document, Seqno, SnapshotRange};

use super::node::{History, Node};
use crate::streams::{Sent, Stream};

/// A receiver.
pub(super) struct Reader {
    pub(super) stream: Stream,
    /// Newest change of each key.
    pub(super) state: BTreeMap<Vec<u8>, Seqno>,
    snapshot: Option<SnapshotRange>,
    /// Keys received in the snapshot.
    seen: BTreeSet<Vec<u8>>,
}

impl Reader {
    pub(super) fn open(vbucket: &mut VBucket, name: &str, after: Seqno) -> Self {
        Self {
            stream: Stream::open(vbucket, name, after),
            state: BTreeMap::new(),
            snapshot: None,
            seen: BTreeSet::new(),
        }
    }

    pub(super) fn read(&mut self, node: &mut Node, items: usize) -> Option<Sent> {
        self.read_from(&mut node.vbucket, &node.store, items)
    }

    pub(super) fn read_from(
        &mut self,
        vbucket: &mut VBucket,
        store: &crate::store::ModelStore,
        items: usize,
    ) -> Option<Sent> {
        let before = self.stream.last;
        let sent = self.stream.read(vbucket, store, items)?;
        if let Some(marker) = sent.marker {
            if let Some(last) = self.snapshot {
                assert!(marker.end >= last.end, "{marker:?} after {last:?}");
            }
            assert!(before < marker.end && marker.start <= marker.end);
            self.snapshot = Some(marker);
            self.seen.clear();
        }
        let snapshot = self.snapshot.expect("a marker comes first");
        let mut last = before;
        for document in &sent.documents {
            self.receive(document, snapshot, &mut last);
        }
        Some(sent)
    }

    fn receive(&mut self, document: &Document, snapshot: SnapshotRange, last: &mut Seqno) {
        let seqno = document.seqno();
        assert!(seqno > *last, "in order, and none twice");
        assert!(snapshot.start <= seqno && seqno <= snapshot.end);
        *last = seqno;
        let key = document.key().to_vec();
        assert!(self.seen.insert(key.clone()), "a key twice in a snapshot");
        self.state.insert(key, seqno);
    }

    /// Checks at the end of a snapshot that the receiver's state is the state at that seqno.
    pub(super) fn check(&self, history: &History, at: Seqno) {
        assert_eq!(self.state, history.state(at), "at {at}");
    }

    pub(super) fn check_if_whole(&self, history: &History) {
        let last = self.stream.last;
        if self.snapshot.is_some_and(|snapshot| snapshot.end == last) {
            self.check(history, last);
        }
    }

    pub(super) fn drop_cursor(&mut self, vbucket: &mut VBucket) {
        if let Some(cursor) = self.stream.cursor {
            drop(vbucket.drop_cursor(cursor));
        }
    }
}
