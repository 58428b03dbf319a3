//! Documents about the nodes of a cluster.

use std::collections::BTreeMap;

use identity::AuthenticatedUser;
use registry::NodeStatus;
use registry::cluster_map::bracketed;
use serde_json::{Value, json};

use super::request::ClusterRequest;
use crate::documents;
use crate::visible::visible;

/// Returns the name of a node for tools.
pub(super) fn otp_node(node: &NodeStatus) -> String {
    format!("{}@{}", node.name, node.host)
}

/// Returns `host:port` of a node's management.
pub(super) fn hostname(node: &NodeStatus) -> String {
    format!("{}:{}", bracketed(&node.host), node.http)
}

fn membership(node: &NodeStatus) -> &'static str {
    match &*node.state {
        "new" => "inactiveAdded",
        "failed" | "failed_over" => "inactiveFailed",
        _ => "active",
    }
}

impl ClusterRequest {
    /// Returns all nodes in the form of a list of nodes. Only this node has figures.
    pub(super) fn entries(&self, user: Option<&AuthenticatedUser>) -> Value {
        let nodes = self.status.nodes.iter();
        nodes.map(|node| self.entry(node, user)).collect()
    }

    /// The nodes of a bucket, as its map lists them: those with copies, a failed one only while it is the active one of
    /// some. The Java SDK waits until each of them is healthy.
    pub(super) fn nodes_of(&self, bucket: &str) -> Value {
        let mut buckets = self.status.buckets.iter();
        let bucket = buckets.find(|one| one.name == bucket);
        let is_listed = |node: &&NodeStatus| {
            let copies = bucket.and_then(|bucket| bucket.nodes.get(&node.name));
            copies.is_some_and(|copies| copies.active > 0 || membership(node) != "inactiveFailed")
        };
        let nodes = self.status.nodes.iter().filter(is_listed);
        nodes.map(|node| self.entry(node, None)).collect()
    }

    fn is_here(&self, node: &NodeStatus) -> bool {
        node.name == self.status.node
    }

    fn entry(&self, node: &NodeStatus, user: Option<&AuthenticatedUser>) -> Value {
        let view = &self.state.view;
        let here = self.is_here(node);
        let summary = view.node();
        let mut entry = if here {
            let buckets = user.map(|user| visible(&self.state, &user.access));
            documents::node_entry(&summary, view.ready().is_ok(), &buckets.unwrap_or_default())
        } else {
            json!({
                "recoveryType": "none",
                "version": summary.compatible_version,
                "os": "unknown",
                "clusterCompatibility": documents::cluster_compatibility(&summary.compatible_version),
                "services": ["kv"],
                "thisNode": false,
                "uptime": "0",
                "memoryTotal": 0,
                "memoryFree": 0,
                "mcdMemoryReserved": 0,
                "mcdMemoryAllocated": 0,
                "systemStats": {},
                "interestingStats": {},
            })
        };
        let well = node.alive && !node.disk_dead;
        if !here || !well {
            entry["status"] = if well { "healthy" } else { "unhealthy" }.into();
        }
        entry["hostname"] = hostname(node).into();
        entry["configuredHostname"] = hostname(node).into();
        entry["otpNode"] = otp_node(node).into();
        entry["clusterMembership"] = membership(node).into();
        entry["ports"] = json!({ "direct": node.kv });
        entry["nodeUUID"] = node.uuid.as_str().into();
        entry["serverGroup"] = node.group.as_str().into();
        entry
    }

    pub(super) fn this_node(&self, user: Option<&AuthenticatedUser>) -> Value {
        let view = &self.state.view;
        let buckets = user.map(|user| visible(&self.state, &user.access));
        let summary = view.node();
        let ready = view.ready().is_ok();
        let mut value = documents::this_node(&summary, ready, &buckets.unwrap_or_default());
        let mut nodes = self.status.nodes.iter();
        let entry = nodes.find(|node| self.is_here(node));
        let entry = entry.map(|node| self.entry(node, user));
        if let (Some(Value::Object(entry)), Value::Object(value)) = (entry, &mut value) {
            value.extend(entry);
        }
        value
    }

    pub(super) fn server_groups(&self) -> Value {
        let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for node in &self.status.nodes {
            let group = groups.entry(&node.group).or_default();
            group.push(self.entry(node, None));
        }
        let groups = groups.into_iter().enumerate().map(|(at, (name, nodes))| {
            json!({ "name": name, "uri": format!("/pools/default/serverGroups/{at}"), "nodes": nodes })
        });
        let uri = format!("/pools/default/serverGroups?rev={}", self.status.revision);
        json!({ "groups": groups.collect::<Vec<_>>(), "uri": uri })
    }

    pub(super) fn node_statuses(&self) -> Value {
        let status = self.status.nodes.iter().map(|node| {
            let well = node.alive && !node.disk_dead;
            let value = json!({
                "status": if well { "healthy" } else { "unhealthy" },
                "gracefulFailoverPossible": node.can_hand_over,
                "otpNode": otp_node(node),
                "replication": f64::from(u8::from(well)),
            });
            (hostname(node), value)
        });
        Value::Object(status.collect())
    }

    /// Returns the node that runs the controller.
    pub(super) fn orchestrator(&self) -> String {
        let controller = self.status.controller.as_ref();
        let mut nodes = self.status.nodes.iter();
        let node = nodes.find(|node| Some(&node.name) == controller);
        node.map_or_else(|| "undefined".to_owned(), otp_node)
    }

    pub(super) fn rebalance_status(&self) -> &'static str {
        let moving = self.status.moves + self.status.moves_left.unwrap_or(0) > 0;
        let running = self.status.rebalance == "running" || moving;
        if running { "running" } else { "none" }
    }

    /// Returns the share of vBuckets that do not move. Only the controller knows moves that have not begun.
    fn settled(&self) -> f64 {
        let all = self
            .status
            .buckets
            .iter()
            .map(|bucket| usize::from(bucket.vbuckets));
        let all: usize = all.sum();
        let moving = self.status.moves + self.status.moves_left.unwrap_or(0);
        let number = |of: usize| f64::from(u32::try_from(of).unwrap_or(u32::MAX));
        1.0 - number(moving.min(all)) / number(all.max(1))
    }

    pub(super) fn rebalance_task(&self) -> Value {
        if self.rebalance_status() == "none" {
            return json!({ "type": "rebalance", "status": "notRunning", "statusIsStale": false });
        }
        let progress = self.settled() * 100.0;
        let nodes = self.status.nodes.iter();
        let per_node = nodes.map(|node| (otp_node(node), json!({ "progress": progress })));
        json!({
            "type": "rebalance",
            "subtype": "rebalance",
            "status": "running",
            "statusIsStale": false,
            "progress": progress,
            "perNode": Value::Object(per_node.collect()),
            "detailedProgress": {},
            "moves": self.status.moves,
            "movesLeft": self.status.moves_left,
        })
    }

    pub(super) fn rebalance_progress(&self) -> Value {
        let mut value = json!({ "status": self.rebalance_status() });
        if self.rebalance_status() == "running" {
            for node in &self.status.nodes {
                value[otp_node(node)] = json!({ "progress": self.settled() });
            }
        }
        value
    }
}
