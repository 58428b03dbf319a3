//! Statistics of the cluster, as the node sees it.

use super::row::{ClusterRow, rows};

const CLUSTER_GROUP: &[&str] = &["cluster"];

/// Rows in the order of the output.
pub(crate) static CLUSTER: &[ClusterRow] = rows! {
    CLUSTER_GROUP "nodes" Count "Nodes of the cluster" Gauge "cluster_nodes", |s| s.nodes.len();
    CLUSTER_GROUP "nodes_alive" Count "Nodes that renew their lease" Gauge "cluster_nodes_alive",
        |s| s.nodes.iter().filter(|node| node.alive).count();
    CLUSTER_GROUP "nodes_failed" Count "Nodes that are marked as failed, or were failed over by an operator"
        Gauge "cluster_nodes_failed",
        |s| s.nodes.iter().filter(|node| node.state.starts_with("failed")).count();
    CLUSTER_GROUP "nodes_disk_full" Count "Nodes whose disk is full" Gauge "cluster_nodes_disk_full",
        |s| s.nodes.iter().filter(|node| node.disk_full).count();
    CLUSTER_GROUP "controls" Bool "Whether this node runs the controller" Gauge "cluster_controls",
        |s| s.controller.as_ref() == Some(&s.node);
    CLUSTER_GROUP "vbuckets_unserved" Count
        "vBuckets without an active copy that serves, as far as this node knows"
        Gauge "cluster_vbuckets_unserved",
        |s| s.buckets.iter().map(|one| usize::from(one.vbuckets).saturating_sub(one.served)).sum::<usize>();
    CLUSTER_GROUP "copies_missing" Count "Copies that vBuckets lack" Gauge "cluster_copies_missing",
        |s| s.buckets.iter().map(|one| one.lacking).sum::<usize>();
    CLUSTER_GROUP "copies_damaged" Count "Copies with rows that cannot be read" Gauge "cluster_copies_damaged",
        |s| s.damaged.iter().map(|one| one.vbuckets).sum::<usize>();
    CLUSTER_GROUP "elections" Count "Elections in progress" Gauge "cluster_elections", |s| s.elections;
    CLUSTER_GROUP "moves" Count "Moves of vBuckets in progress" Gauge "cluster_moves", |s| s.moves;
    CLUSTER_GROUP "rebalances" Bool "Whether a rebalance runs" Gauge "cluster_rebalances",
        |s| s.rebalance == "running";
    CLUSTER_GROUP "failovers" Count "Automatic failovers since an operator reset their count"
        Gauge "cluster_failovers", |s| s.failovers;
    CLUSTER_GROUP "etcd_silent_ms" Millis "Time since etcd last answered this node"
        Gauge "cluster_etcd_silence", |s| s.etcd_silent_ms;
    CLUSTER_GROUP "etcd_went_back" Bool "Whether etcd holds an older state than this node has seen"
        Gauge "cluster_etcd_went_back", |s| s.etcd_went_back;
    CLUSTER_GROUP "lease_left_ms" Millis "Time that is left of this node's lease"
        Gauge "cluster_lease_left", |s| s.lease_left_ms;
};
