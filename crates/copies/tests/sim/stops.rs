//! Stops of nodes with everything on disk, as `member` records them.

use std::collections::BTreeMap;

use cluster::BucketId;
use cluster::agreed::Key;

use crate::buckets::SimBucket;
use crate::bugs::Bug;
use crate::node::{CLUSTER, Node};
use crate::world::World;

/// A clean stop, as the node's disk has it: the number of the start that ended, and the copies that are complete.
#[derive(Clone)]
pub(crate) struct CleanStop {
    boot: u64,
    complete: BTreeMap<BucketId, Vec<u16>>,
}

impl Node {
    /// Writes everything to disk, and records this; returns whether it is there.
    fn stop_cleanly(&mut self) -> bool {
        let buckets = self.vbs.buckets.iter();
        let complete = buckets.map(|(id, bucket)| (*id, bucket.copies.complete()));
        let complete = complete.collect();
        let stopped = self.vbs.buckets.values().all(SimBucket::flush);
        if stopped {
            let boot = self.boot;
            self.stop = Some(CleanStop { boot, complete });
        }
        stopped
    }
}

impl World {
    /// Stops a node: everything gets on its disk, and etcd is told if the node reaches it.
    pub(crate) fn shut_down(&mut self, index: usize) {
        if !self.nodes[index].stop_cleanly() {
            self.crash_at_once(index);
            return;
        }
        self.tell(|| format!("n{index} stops with everything on disk"));
        self.nodes[index].crash();
        if self.restored.is_some() {
            self.checks.forget_rows(index);
        }
        let boot = self.nodes[index].boot;
        self.put_stopped(index, Some(boot));
    }

    /// Marks copies of a node that starts as complete, if its disk and etcd have the same stop.
    pub(crate) fn take_stop(&mut self, index: usize) {
        let Some(stop) = self.nodes[index].stop.clone() else {
            return;
        };
        let id = self.nodes[index].id;
        let in_etcd = self
            .agreed()
            .nodes
            .get(&id)
            .and_then(|node| node.value.stopped);
        let stays = self.bug == Some(Bug::StopNotRemoved);
        if !stays {
            self.nodes[index].stop = None;
        }
        if stays || self.put_stopped(index, None) && in_etcd == Some(stop.boot) {
            let buckets = &self.nodes[index].vbs.buckets;
            for (bucket, numbers) in &stop.complete {
                if let Some(bucket) = buckets.get(bucket) {
                    bucket.copies.keep_complete(numbers);
                }
            }
        }
    }

    /// Writes the last stop of a node to etcd; returns whether the node reaches it.
    fn put_stopped(&mut self, index: usize, stopped: Option<u64>) -> bool {
        let (id, etcd) = (self.nodes[index].id, self.nodes.len());
        let apart = [(index, etcd), (etcd, index)];
        let cut_off = apart.iter().any(|link| self.blocked.contains(link));
        if cut_off || self.now_ms < self.etcd.down_until_ms {
            return false;
        }
        if let Some(entry) = self.agreed().nodes.get(&id) {
            let mut value = entry.value.clone();
            value.stopped = stopped;
            let value = serde_json::to_string(&value).expect("JSON");
            self.etcd.put(Key::Node(id).text(CLUSTER), value);
        }
        true
    }
}
