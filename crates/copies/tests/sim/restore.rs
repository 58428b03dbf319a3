//! Restores of etcd from a backup.

use cluster::agreed::View;
use cluster::coord::{Answer, KeyStore, Range, Request};

use cluster::{BucketId, Vb};

use crate::node::{CLUSTER, Node, settings};
use crate::world::{Event, World};

/// State at a restore of etcd.
pub(crate) struct Restored {
    /// Nodes that have on disk a controller's transaction which etcd lost.
    know: Vec<usize>,
}

fn view_of(store: &mut KeyStore) -> View {
    let mut view = View::default();
    let range = Range::Prefix(CLUSTER.prefix());
    if let Answer::Got { revision, found } = store.answer(&Request::Get(range)) {
        view.load(CLUSTER, revision, &found);
    }
    view
}

impl World {
    /// Returns the data of etcd.
    pub(crate) fn agreed(&mut self) -> View {
        view_of(&mut self.etcd.store)
    }

    /// Stops etcd, and replaces its data by a backup. Its revision may grow beyond the lost one.
    pub(crate) fn restore(&mut self, backup: &KeyStore) {
        let was = self.etcd.store.revision();
        let lost = self.agreed();
        self.tell(|| format!("etcd is restored from {} to {was}", backup.revision()));
        let mut store = backup.clone();
        let kept = view_of(&mut store);
        let nodes = self.nodes.iter().enumerate();
        let knows = |node: &Node| {
            let mut mark = node.kept.mark.iter();
            mark.any(|mark| !kept.history.value.has(mark))
        };
        let know = nodes.filter(|(_, node)| knows(node));
        let know: Vec<usize> = know.map(|(index, _)| index).collect();
        self.etcd.store = store;
        self.failed_over.clear();
        let more = self.rng.range(0, 3) * (was - self.etcd.store.revision() + 10);
        for _ in 0..more {
            self.etcd.put("/settee/other".to_owned(), String::new());
        }
        let settings = settings();
        let down_ms = settings.lease_ms + settings.margin_ms + self.rng.range(100, 3_000);
        self.etcd.down_until_ms = self.now_ms + down_ms;
        self.etcd.life += 1;
        self.etcd.store.restart(self.etcd.down_until_ms);
        for (node, boot, id) in self.etcd.end_watches() {
            self.at(
                self.now_ms + 1,
                Event::Answer(node, boot, id, Answer::Unavailable),
            );
        }
        for index in 0..self.nodes.len() {
            // State of a node from before its start does not count.
            self.checks.forget_rows(index);
            for vb in self.vbs.clone().iter().filter(|_| self.nodes[index].up) {
                self.checks.rows_grow(index, &self.nodes[index], *vb);
            }
        }
        // Nodes that saw none of the lost transactions do not start before the adoption.
        let gone = !kept.has(&lost.seen());
        for index in 0..self.nodes.len() {
            let seen = self.nodes[index].kept;
            let old = seen.mark.is_none_or(|mark| kept.history.value.has(&mark));
            if gone && old && self.nodes[index].up {
                self.crash(index);
            }
            self.nodes[index].held = gone && old;
        }
        self.restored = Some(Restored { know });
    }

    /// Ends the restore: the buckets are those in etcd.
    pub(crate) fn end_restore(&mut self) {
        let agreed = self.agreed();
        self.restored = None;
        let there = |vb: &Vb| agreed.specs.contains_key(&vb.bucket);
        let gone: Vec<Vb> = self.vbs.iter().filter(|vb| !there(vb)).copied().collect();
        for vb in gone {
            self.checks.forget(vb.bucket);
        }
        let vbs = |bucket: BucketId| (0..2).map(move |number| Vb { bucket, number });
        self.vbs = agreed
            .specs
            .keys()
            .flat_map(|bucket| vbs(*bucket))
            .collect();
        self.see_collections(&agreed);
        self.unknown = agreed.history.value.unknown;
    }

    /// Whether a node follows a restored etcd: it has seen none of the lost transactions.
    pub(crate) fn is_astray(&self, index: usize) -> bool {
        let participant = &self.nodes[index].participant;
        self.restored.is_some() && !participant.etcd_went_back()
    }

    /// Checks that the etcd of a node's step contains the state behind earlier steps.
    pub(crate) fn check_step(&mut self, index: usize) {
        let node = &self.nodes[index];
        let (id, kept) = (node.id, node.kept);
        let view = node.participant.view();
        // Nodes that follow no etcd seal copies for an adoption.
        let adopts = node.participant.etcd_went_back() && view.revision == 0;
        if !adopts && !view.has(&kept) {
            self.checks
                .fail(format!("{id:?} makes a step by an etcd without {kept:?}"));
        }
    }

    /// Checks that nodes which know of lost transactions detected the restore.
    pub(crate) fn check_restored(&mut self) {
        let Some(restored) = &self.restored else {
            return;
        };
        for index in &restored.know {
            let node = &self.nodes[*index];
            if !node.participant.etcd_went_back() {
                let (id, kept) = (node.id, node.kept);
                self.checks
                    .fail(format!("{id:?} follows an etcd without {kept:?}"));
            }
        }
    }
}
