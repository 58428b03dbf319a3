//! The rows that a node goes by.

use std::collections::BTreeMap;

use super::steps::{Copy, Role, Step, needs_election, next};
use crate::agreed::{CHUNK_VBUCKETS, Chunk, View};
use crate::map::{BucketId, NodeId, Row, Vb, Version};
use crate::message::{CopyReport, Need};

/// The part of the map that a node goes by. Rows only become newer, or go with their bucket.
#[derive(Clone, Debug)]
pub struct Agent {
    me: NodeId,
    rows: BTreeMap<Vb, (Version, Row)>,
    /// Everything that etcd has is known, so that a copy without a row is of a bucket that was dropped.
    complete: bool,
    /// Buckets of which an adoption found copies alone, which stay.
    unknown: Vec<BucketId>,
}

impl Agent {
    /// For a node that knows no map yet.
    pub fn new(me: NodeId) -> Self {
        let (rows, complete, unknown) = (BTreeMap::new(), false, Vec::new());
        Self {
            me,
            rows,
            complete,
            unknown,
        }
    }

    /// All of the map was read, which is not older than what was known: buckets that are not in it were dropped. One that
    /// cannot be read in part says of no bucket that it was dropped.
    pub fn keep_buckets(&mut self, view: &View) {
        self.complete = view.unreadable.is_empty();
        self.unknown.clone_from(&view.history.value.unknown);
        if self.complete {
            let chunk = |vb: &Vb| (vb.bucket, vb.number / CHUNK_VBUCKETS);
            self.rows.retain(|vb, _| view.maps.contains_key(&chunk(vb)));
        }
    }

    /// A chunk of a map is gone with its bucket; returns the vBuckets that it had.
    pub fn forget(&mut self, (bucket, chunk): (BucketId, u16)) -> Vec<Vb> {
        let gone = |vb: &Vb| vb.bucket == bucket && vb.number / CHUNK_VBUCKETS == chunk;
        self.rows
            .extract_if(.., |vb, _| gone(vb))
            .map(|(vb, _)| vb)
            .collect()
    }

    /// Takes a chunk of a bucket's map; returns the vBuckets whose rows changed. An older chunk changes nothing.
    pub fn apply(
        &mut self,
        (bucket, chunk): (BucketId, u16),
        version: Version,
        rows: &Chunk,
    ) -> Vec<Vb> {
        let mut changed = Vec::new();
        for (number, row) in (chunk * CHUNK_VBUCKETS..).zip(&rows.rows) {
            let vb = Vb { bucket, number };
            let held = self.rows.get(&vb);
            if held.is_none_or(|(held, _)| *held < version) {
                if held.is_none_or(|(_, held)| held != row) {
                    changed.push(vb);
                }
                self.rows.insert(vb, (version, *row));
            }
        }
        changed
    }

    /// The row of a vBucket and its version.
    pub fn row(&self, vb: Vb) -> Option<&(Version, Row)> {
        self.rows.get(&vb)
    }

    /// The vBuckets of which this node has, or shall have, a copy.
    pub fn vbuckets(&self) -> impl Iterator<Item = Vb> {
        let mine = self
            .rows
            .iter()
            .filter(|(_, (_, row))| row.has_copy(self.me));
        mine.map(|(vb, _)| *vb)
    }

    /// The next step of a copy to what the map says; `None` when it is there, or the map is not known. A copy of a bucket
    /// that was dropped goes.
    pub fn step(&self, vb: Vb, copy: Option<&Copy>) -> Option<Step> {
        if let Some((_, row)) = self.rows.get(&vb) {
            return next(self.me, vb, row, copy);
        }
        let dropped = self.complete && !self.unknown.contains(&vb.bucket);
        copy.filter(|_| dropped).map(|_| Step::Remove { vb })
    }

    /// What a copy needs of the controller.
    pub fn report(&self, vb: Vb, copy: &Copy) -> Option<CopyReport> {
        let (version, row) = self.rows.get(&vb)?;
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
