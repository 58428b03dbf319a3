//! A stop of a node after which everything is on disk.
//!
//! Active copies of such a node have all that they acknowledged, so that its next start needs no other copies to elect
//! them again. The number of the start that ended is written to the data directory and to etcd, and the next start
//! removes it from etcd. So neither a data directory nor an etcd that was restored from a backup counts.

use std::time::Duration;

use cluster::agreed::Node;

use crate::host::{CleanStop, MemberRecord};
use crate::join::put_node;
use crate::shared::{REPLACED, Shared};

/// Longest wait of a node that stops for an answer of etcd.
const PATIENCE: Duration = Duration::from_secs(1);

impl CleanStop {
    /// Records that the present start of the node has ended with everything on disk.
    ///
    /// # Errors
    /// The reason why it is not recorded; then the next start elects as after a crash.
    pub(crate) fn record(shared: &Shared) -> Result<(), String> {
        if shared.status.read().replaced {
            return Err(REPLACED.to_owned());
        }
        let all = shared.table.all();
        let complete = all
            .iter()
            .map(|hosted| (hosted.id.to_string(), hosted.copies.complete()));
        let stop = Self {
            boot: shared.boot,
            complete: complete.collect(),
        };
        let uuid = shared.cluster.uuid();
        let kept = shared.host.kept_record(&uuid)?;
        let record = MemberRecord {
            stop: Some(stop),
            ..kept
        };
        shared.host.keep_record(&uuid, record)?;
        let view = shared.view();
        let me = view.nodes.get(&shared.me);
        let me = me.ok_or("the node is not in the cluster")?;
        let stopped = Some(shared.boot);
        let value = Node {
            stopped,
            ..me.value.clone()
        };
        let seen = (shared.me, me.mod_revision);
        let written = put_node(&shared.etcd, shared.cluster, seen, &value, PATIENCE);
        if !written.map_err(|problem| problem.to_string())? {
            return Err("etcd has another state of the node".to_owned());
        }
        Ok(())
    }

    /// Marks the complete copies.
    pub(crate) fn take(&self, shared: &Shared) {
        for hosted in shared.table.all() {
            if let Some(numbers) = self.complete.get(&hosted.id.to_string()) {
                hosted.copies.keep_complete(numbers);
            }
        }
    }
}
