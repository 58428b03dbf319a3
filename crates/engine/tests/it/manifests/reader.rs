//! A receiver of a change stream; its state comes only from the stream.

use std::collections::{BTreeSet, VecDeque};

use collections::Manifest;
use engine::VBucket;
use engine::dcp::{
    ClaimedPosition, Event, FillResult, RollbackRules, Snapshot, StoreRows, StoreView, Stream,
    StreamAsk, StreamEnd, StreamFilter, StreamOptions,
};
use model::{CollectionId, Document, ScopeId, Seqno, SnapshotRange, VbUuid};

use super::history::{Change, History, State, id_of};
use crate::store::{ModelStore, reread};

struct Chunk(Vec<Document>);

impl StoreRows for Chunk {
    fn documents(&self) -> &[Document] {
        &self.0
    }
}

/// Kind of a stream request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wanted {
    /// All changes, as a replica.
    Replica,
    All,
    /// The default collection, as a peer without collections.
    Default,
    Collections(Vec<u32>),
    Scope(u32),
}

pub(super) struct Reader {
    name: String,
    pub(super) wanted: Wanted,
    /// UUID of the history that it follows.
    uuid: VbUuid,
    stream: Stream,
    /// Requested range of a backfill; below, the rows of its view that are left.
    asked: Option<SnapshotRange>,
    rows: Option<VecDeque<Document>>,
    pub(super) known: State,
    snapshot: Option<Snapshot>,
    /// Seqno at which its state becomes consistent again: it stopped inside a snapshot.
    owed: Seqno,
    /// Keys seen in the snapshot; a prepare and a document of one key are separate.
    seen: BTreeSet<(bool, Vec<u8>)>,
    last: Seqno,
    pub(super) end: Option<StreamEnd>,
}

/// Result of one step.
pub(super) enum Step {
    Marker(Snapshot),
    Change(Document),
    Other,
}

fn ask(wanted: &Wanted, uuid: VbUuid, seqno: Seqno, snapshot: SnapshotRange) -> StreamAsk {
    StreamAsk {
        position: ClaimedPosition {
            uuid,
            seqno,
            snapshot,
            purge_seqno: Seqno::ZERO,
        },
        end: Seqno(u64::MAX),
        options: StreamOptions {
            rules: RollbackRules::default(),
            sync_writes: *wanted == Wanted::Replica,
            wants_advances: *wanted != Wanted::Default,
            ..StreamOptions::default()
        },
    }
}

fn limit(wanted: &Wanted, vbucket: &VBucket) -> Option<StreamFilter> {
    match wanted {
        Wanted::Collections(ids) => Some(StreamFilter::Collections(
            ids.iter().map(|id| CollectionId(*id)).collect(),
        )),
        Wanted::Scope(scope) => Some(StreamFilter::scope(ScopeId(*scope), vbucket)),
        _ => None,
    }
}

/// Removes from `state` what the stream does not send.
fn narrow(wanted: &Wanted, state: &mut State) {
    let State {
        documents, open, ..
    } = state;
    open.retain(|id, open| match wanted {
        Wanted::Replica | Wanted::All => true,
        Wanted::Default => *id == 0,
        Wanted::Collections(ids) => ids.contains(id),
        Wanted::Scope(scope) => open.scope == *scope,
    });
    documents.retain(|key, _| open.contains_key(&id_of(key)));
}

impl Reader {
    /// Opens a stream after `after`, with the state at that seqno.
    pub(super) fn open(
        vbucket: &mut VBucket,
        name: String,
        wanted: Wanted,
        (after, mut known): (Seqno, State),
    ) -> Self {
        let at = SnapshotRange {
            start: after,
            end: after,
        };
        let uuid = vbucket.failover_log().newest().uuid;
        let opened = Stream::open(vbucket, &name, ask(&wanted, uuid, after, at));
        let mut stream = opened.expect("it may go on").stream;
        if let Some(filter) = limit(&wanted, vbucket) {
            stream.limit_to(filter);
        }
        narrow(&wanted, &mut known);
        Self {
            name,
            wanted,
            uuid,
            stream,
            asked: None,
            rows: None,
            known,
            snapshot: None,
            owed: Seqno::ZERO,
            seen: BTreeSet::new(),
            last: after,
            end: None,
        }
    }

    /// Requests the stream again from its position; `false` if it may not continue.
    pub(super) fn resume(&mut self, vbucket: &mut VBucket, manifest: &Manifest) -> bool {
        let known = |id: &u32| manifest.collection(CollectionId(*id)).is_some();
        let there = match &self.wanted {
            Wanted::Collections(ids) => ids.iter().all(known),
            Wanted::Scope(scope) => manifest.scope(ScopeId(*scope)).is_some(),
            _ => true,
        };
        if !there || self.end.is_some() {
            return false;
        }
        let whole = SnapshotRange {
            start: self.last,
            end: self.last,
        };
        self.owed = self
            .snapshot
            .map_or(self.owed, |snapshot| snapshot.range.end.max(self.owed));
        let inside = self.snapshot.map(|snapshot| snapshot.range);
        let inside = inside.filter(|range| range.start <= self.last && self.last < range.end);
        let ask = ask(&self.wanted, self.uuid, self.last, inside.unwrap_or(whole));
        let Ok(opened) = Stream::open(vbucket, &self.name, ask) else {
            return false;
        };
        let mut stream = opened.stream;
        if let Some(filter) = limit(&self.wanted, vbucket) {
            stream.limit_to(filter);
        }
        self.stream = stream;
        self.uuid = vbucket.failover_log().newest().uuid;
        (self.asked, self.rows, self.snapshot) = (None, None, None);
        true
    }

    pub(super) fn close(&mut self, vbucket: &mut VBucket) {
        if let Some(cursor) = self.stream.take_cursor() {
            drop(vbucket.remove_cursor(cursor));
        }
    }

    pub(super) fn drop_cursor(&mut self, vbucket: &mut VBucket) {
        if let Some(cursor) = self.stream.figures().cursor {
            drop(vbucket.drop_cursor(cursor));
        }
    }

    /// Returns the next message; `None` if there is none yet. Chunks of backfills have `rows` rows.
    pub(super) fn step(
        &mut self,
        vbucket: &mut VBucket,
        store: &ModelStore,
        history: &History,
        rows: usize,
    ) -> Option<Step> {
        if let Some(event) = self.stream.next_event() {
            let (step, seqno) = match event {
                Event::Snapshot(snapshot) => (Step::Marker(snapshot), None),
                Event::Change(document) => (Step::Change(document.clone()), None),
                Event::Advanced(seqno) => (Step::Other, Some(seqno)),
                Event::OutOfOrder { .. } => panic!("it was not asked for"),
                Event::State(_) => panic!("nothing is handed over"),
                Event::End(end) => {
                    self.end = Some(end);
                    (Step::Other, None)
                }
            };
            self.receive(&step, seqno, history);
            return Some(step);
        }
        if self.asked.take().is_some() {
            self.open_view(vbucket, store);
            return Some(Step::Other);
        }
        if let Some(left) = &mut self.rows {
            if left.is_empty() {
                self.rows = None;
                self.stream.backfill_done();
            } else {
                let some = left.drain(..rows.clamp(1, left.len())).collect();
                self.stream.backfill_rows(Box::new(Chunk(some)));
            }
            return Some(Step::Other);
        }
        let (filled, garbage) = self.stream.fill(vbucket, &self.name);
        drop(garbage);
        match filled {
            FillResult::Ready | FillResult::Latest if !self.stream.is_over() => Some(Step::Other),
            FillResult::Ready | FillResult::Latest | FillResult::Idle => None,
            FillResult::HandOver => panic!("nothing is handed over"),
            FillResult::Backfill(range) => {
                self.asked = Some(range);
                Some(Step::Other)
            }
        }
    }

    fn open_view(&mut self, vbucket: &mut VBucket, store: &ModelStore) {
        let record = store.record.as_ref().expect("it was flushed once");
        let mut visible = store.rows.values().filter(|row| !row.kind().is_prepared());
        let last = visible.next_back().map(Document::seqno);
        let view = StoreView {
            high: record.high_seqno,
            visible_end: last.unwrap_or(Seqno::ZERO),
            purge_seqno: Seqno::ZERO,
            snapshot: record.snapshot,
            high_completed: record.high_completed,
            high_prepared: record.high_prepared,
            by_key: false,
            history_from: None,
        };
        drop(self.stream.backfill_opened(&view, vbucket, &self.name));
        let after = self.stream.figures().read.next();
        let rows = store.rows.range(after..).map(|(_, row)| reread(row));
        self.rows = Some(rows.collect());
    }

    fn receive(&mut self, step: &Step, advanced: Option<Seqno>, history: &History) {
        match step {
            Step::Marker(snapshot) => {
                let before = self.snapshot.map_or(Seqno::ZERO, |last| last.range.end);
                assert!(snapshot.range.end >= before && snapshot.range.end > self.last);
                self.snapshot = Some(*snapshot);
                self.seen.clear();
            }
            Step::Change(document) => {
                let range = self.snapshot.expect("a marker comes first").range;
                let seqno = document.seqno();
                assert!(seqno > self.last, "in order, and none twice");
                assert!(range.start <= seqno && seqno <= range.end);
                self.last = seqno;
                self.take(document, history);
            }
            Step::Other => {}
        }
        if let Some(seqno) = advanced {
            assert!(self.last < seqno && self.wanted != Wanted::Default);
            assert_ne!(self.wanted, Wanted::Replica, "it gets everything");
            self.last = seqno;
        }
        let whole = self
            .snapshot
            .is_some_and(|snapshot| snapshot.range.end == self.last);
        if whole && self.owed <= self.last {
            self.check(history, self.last);
        }
    }

    fn take(&mut self, document: &Document, history: &History) {
        let change = history.change(document).clone();
        let key = document.key().to_vec();
        // A change replaced during the backfill may come from both store and memory.
        let disk = self.snapshot.is_some_and(|snapshot| snapshot.disk);
        let event = change.key().is_none();
        let prepared = change.is_prepared();
        assert!(!prepared || self.wanted == Wanted::Replica, "{change:?}");
        let new = self.seen.insert((prepared, key));
        assert!(new || disk || event, "twice in a snapshot");
        let scope_of = |id: &u32| history.scopes.get(id).copied().unwrap_or(0);
        let (id, scope) = match &change {
            Change::Document { key, .. }
            | Change::Prepared { key, .. }
            | Change::GivenUp { key } => (Some(id_of(key)), scope_of(&id_of(key))),
            Change::Begun { id, .. } | Change::Modified { id, .. } | Change::Ended(id) => {
                (Some(*id), scope_of(id))
            }
            Change::ScopeBegun(scope) | Change::ScopeEnded(scope) => (None, *scope),
        };
        let wanted = match &self.wanted {
            Wanted::Replica | Wanted::All => true,
            Wanted::Default => id == Some(0) && matches!(change, Change::Document { .. }),
            Wanted::Collections(ids) => id.is_some_and(|id| ids.contains(&id)),
            Wanted::Scope(of) => *of == scope,
        };
        assert!(wanted, "{:?} was sent {change:?}", self.wanted);
        if let Change::Document { key, .. } = &change {
            // A reader that stopped where a begin event was replaced by an end may get the changes
            // between.
            let ends = || history.ended_after(document.seqno()).contains(&id_of(key));
            let known = self.known.open.contains_key(&id_of(key));
            assert!(
                known || self.wanted == Wanted::Replica || ends(),
                "{key:?} came before its collection"
            );
        }
        self.known.follow(document.seqno(), &change);
    }

    /// Checks at the end of a snapshot that the reader has exactly the requested state. Documents
    /// of collections that end later may be missing already.
    pub(super) fn check(&self, history: &History, at: Seqno) {
        if self.wanted == Wanted::Replica {
            return;
        }
        let ending = history.ended_after(at);
        let state = history.state(at);
        // A peer without collections does not get the end of the default collection.
        let deaf = self.wanted == Wanted::Default && !state.open.contains_key(&0);
        let (mut expected, known) = (state, &self.known);
        narrow(&self.wanted, &mut expected);
        let spared = |key: &[u8]| deaf || ending.contains(&id_of(key));
        for (key, seqno) in &known.documents {
            let same = expected.documents.get(key) == Some(seqno);
            assert!(same || spared(key), "{key:?} at {at}");
        }
        for (key, seqno) in &expected.documents {
            let there = known.documents.get(key) == Some(seqno);
            assert!(there || spared(key), "{key:?} is missing at {at}");
        }
        if self.wanted == Wanted::Default {
            return;
        }
        for id in known.open.keys() {
            assert!(expected.open.contains_key(id), "{id} has ended by {at}");
        }
        for (id, open) in &expected.open {
            let there = known.open.get(id).map(|known| (known.ttl, known.scope));
            assert!(
                there == Some((open.ttl, open.scope)) || ending.contains(id),
                "{id} at {at}"
            );
        }
    }

    /// Checks that the reader has everything and gets nothing more.
    pub(super) fn check_at_end(&self, history: &History, high: Seqno) {
        let state = history.state(high);
        match (&self.wanted, self.end) {
            (Wanted::Collections(ids), Some(end)) => {
                assert_eq!(end, StreamEnd::FilterEmpty);
                assert!(ids.iter().all(|id| !state.open.contains_key(id)));
            }
            (Wanted::Scope(scope), Some(end)) => {
                assert_eq!(end, StreamEnd::FilterEmpty);
                assert!(!state.scopes.contains(scope));
            }
            (wanted, Some(end)) => panic!("{wanted:?} ended: {end:?}"),
            (wanted, None) => {
                assert_eq!(self.stream.figures().read, high);
                let announced = self.snapshot.map_or(self.last, |last| last.range.end);
                // A peer without collections gets nothing of a dropped default collection.
                let deaf = *wanted == Wanted::Default && !state.open.contains_key(&0);
                assert!(deaf || self.last == announced, "to {announced}");
                match wanted {
                    Wanted::Collections(ids) => {
                        assert!(ids.iter().any(|id| state.open.contains_key(id)));
                    }
                    Wanted::Scope(scope) => assert!(state.scopes.contains(scope)),
                    _ => {}
                }
                self.check(history, high);
            }
        }
    }
}
