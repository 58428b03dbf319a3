//! The rows of the map that a node follows.

use std::collections::BTreeMap;

use super::steps::{Copy, Role, Step, needs_election, next};
use crate::agreed::{CHUNK_VBUCKETS, Chunk, View};
use crate::map::{BucketId, NodeId, Row, Vb, Version};
use crate::message::{CopyReport, Need};

/// The part of the map that a node follows. Chunks only get newer, or are removed with their bucket.
#[derive(Clone, Debug)]
pub struct Agent {
    me: NodeId,
    chunks: BTreeMap<(BucketId, u16), (Version, Chunk)>,
    /// Whether the whole map is known. Then a copy without a row belongs to a bucket that was dropped.
    complete: bool,
    /// Buckets of which an adoption found only copies; these copies stay.
    unknown: Vec<BucketId>,
}

impl Agent {
    /// Creates the agent of a node that does not know the map.
    pub fn new(me: NodeId) -> Self {
        let (chunks, complete, unknown) = (BTreeMap::new(), false, Vec::new());
        Self {
            me,
            chunks,
            complete,
            unknown,
        }
    }

    /// Takes the list of buckets from a view that is not older than the known state: all other buckets were
    /// dropped. A view with unreadable keys proves of no bucket that it was dropped.
    pub fn keep_buckets(&mut self, view: &View) {
        self.complete = view.unreadable.is_empty();
        self.unknown.clone_from(&view.history.value.unknown);
        if self.complete {
            self.chunks.retain(|at, _| view.maps.contains_key(at));
        }
    }

    /// Forgets a chunk of a map that was removed with its bucket; returns the vBuckets that it had.
    pub fn forget(&mut self, at: (BucketId, u16)) -> Vec<Vb> {
        let gone = self.chunks.remove(&at);
        let rows = gone.iter().flat_map(|(_, chunk)| numbered(at, chunk));
        rows.map(|(vb, _)| vb).collect()
    }

    /// Takes a chunk of a bucket's map; returns the vBuckets whose rows changed. An older chunk changes nothing.
    pub fn apply(&mut self, at: (BucketId, u16), version: Version, chunk: &Chunk) -> Vec<Vb> {
        let held = self.chunks.get(&at);
        if held.is_some_and(|(held, _)| *held >= version) {
            return Vec::new();
        }
        let changed = numbered(at, chunk).filter(|(vb, row)| {
            let held = self.row(*vb);
            held.is_none_or(|(_, held)| held != *row)
        });
        let changed = changed.map(|(vb, _)| vb).collect();
        self.chunks.insert(at, (version, chunk.clone()));
        changed
    }

    /// Returns the row of a vBucket and its version.
    pub fn row(&self, vb: Vb) -> Option<(Version, &Row)> {
        let at = (vb.bucket, vb.number / CHUNK_VBUCKETS);
        let (version, chunk) = self.chunks.get(&at)?;
        let row = chunk.rows.get(usize::from(vb.number % CHUNK_VBUCKETS));
        Some((*version, row?))
    }

    /// Returns the vBuckets of which this node has, or shall have, a copy.
    pub fn vbuckets(&self) -> impl Iterator<Item = Vb> {
        let chunks = self.chunks.iter();
        let rows = chunks.flat_map(|(at, (_, chunk))| numbered(*at, chunk));
        rows.filter(|(_, row)| row.has_copy(self.me))
            .map(|(vb, _)| vb)
    }

    /// Returns the next step of a copy towards the map; `None` if it has arrived, or the map is unknown. A
    /// copy of a dropped bucket is removed.
    pub fn step(&self, vb: Vb, copy: Option<&Copy>) -> Option<Step> {
        if let Some((_, row)) = self.row(vb) {
            return next(self.me, vb, row, copy);
        }
        let dropped = self.complete && !self.unknown.contains(&vb.bucket);
        copy.filter(|_| dropped).map(|_| Step::Remove { vb })
    }

    /// Returns the report for the controller, if the copy needs something.
    pub fn report(&self, vb: Vb, copy: &Copy) -> Option<CopyReport> {
        let (version, row) = self.row(vb)?;
        let term = copy.term;
        let need = if needs_election(self.me, row, copy) {
            Need::Election { term }
        } else {
            let works = copy.role == Role::Active && row.term == term && copy.ready;
            let phase = copy.topology.and_then(|topology| topology.change)?.1;
            (works && row.phase() == Some(phase)).then_some(Need::NextPhase(phase))?
        };
        let revision = version.revision;
        Some(CopyReport { vb, revision, need })
    }
}

/// Returns the rows of a chunk with their vBuckets.
fn numbered((bucket, chunk): (BucketId, u16), rows: &Chunk) -> impl Iterator<Item = (Vb, &Row)> {
    let vbs = (chunk * CHUNK_VBUCKETS..).map(move |number| Vb { bucket, number });
    vbs.zip(rows.rows.iter())
}
