//! Values, as JSON. Unknown fields are ignored, missing fields have their defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::coord::LeaseId;
use crate::map::{BucketId, Chain, NodeId, Phase, Row};

/// Value of a cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterName {
    /// The cluster's UUID, 32 hex digits.
    pub uuid: String,
}

/// Feature level that this version supports, and writes into each new cluster.
pub const FEATURE_LEVEL: u32 = 2;

/// Properties of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Feature level that all nodes support.
    pub feature_level: u32,
    /// Epoch; an adoption and an unsafe failover raise it.
    pub epoch: u64,
    /// Secret with which its nodes log in to each other.
    pub secret: String,
    /// Length of a node's lease, if it was configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Whether its nodes use TLS among each other; needs feature level 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
}

/// State of a node in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node came, or came back, and gets no copies yet.
    #[default]
    New,
    /// The node shall have copies.
    Active,
    /// The node shall have no copies.
    Draining,
    /// The node's active copies are replaced, and durable writes do not count its copies. The node itself
    /// ends this state after it has read the map, unless an operator [failed it over](Node::failed_over).
    Failed,
}

/// Address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Address {
    /// Name or IP address of the host.
    pub host: String,
    /// Port of the KV protocol.
    pub kv: u16,
    /// Port of HTTP management.
    pub http: u16,
    /// Port of the KV protocol over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_tls: Option<u16>,
    /// Port of HTTP management over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https: Option<u16>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Name, unique in the cluster.
    pub name: String,
    /// UUID of its data directory, 32 hex digits: a node that lost its data is another node.
    pub uuid: String,
    /// Address for other nodes, and for clients in their network.
    pub inside: Address,
    /// Address for clients of another network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<Address>,
    /// Number of the zone with which the node fails.
    pub zone: u16,
    /// Version of the program.
    pub version: String,
    /// State in the cluster.
    pub state: NodeState,
    /// Of a failed node: its lease, if it did not expire. The controller revokes it, and waits for the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<LeaseId>,
    /// Of a failed node: whether an operator ordered the failover. The node stays failed, even if it runs,
    /// until an operator recovers it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed_over: bool,
    /// Of a member: whether others take over from its active copies, after which it is failed over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hands_over: bool,
    /// Number of its start that ended with everything on disk. The next start removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<u64>,
    /// Number of its last start that joined, counted in its data directory. A directory with fewer starts is older.
    #[serde(skip_serializing_if = "is_zero")]
    pub starts: u64,
}

/// Health of a node and of its peers, as the node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Whether a sync failed: the node acknowledges nothing and serves nothing.
    pub disk_dead: bool,
    /// Whether commits fail for lack of space: the node works in memory, and no new term gets on disk.
    pub disk_full: bool,
    /// Nodes that this one has not heard for some time.
    pub unheard: Vec<NodeId>,
    /// Its copies that are not whole: vBucket numbers by bucket.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub damaged: BTreeMap<BucketId, BTreeMap<u16, Condition>>,
    /// Buckets that it cannot make: it has no copies of them, and answers no seals for them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unmade: BTreeSet<BucketId>,
    /// Buckets that have no memory for changes of other nodes.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub starved: BTreeSet<BucketId>,
}

/// A node that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alive {
    /// Number of its start, different for each one.
    pub boot: u64,
    /// Health.
    pub health: Health,
}

/// The controller; the revision of its key is its term. During an adoption there is no controller: the
/// adoption has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// Node of the controller.
    pub node: NodeId,
    /// Start of that node.
    pub boot: u64,
    /// During an adoption: the highest term at which copies are sealed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<u64>,
}

impl Controller {
    /// Makes a candidate from a node and its start.
    pub fn new(node: NodeId, boot: u64) -> Self {
        let adopts = None;
        Self { node, boot, adopts }
    }
}

/// Whether copies move to the places that the plan wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rebalance {
    /// No rebalance; moves that can be taken back are taken back.
    #[default]
    Idle,
    /// A rebalance runs.
    Running,
    /// No move begins; moves that have begun continue.
    Paused,
}

/// Orders of operators, and the count of failovers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// State of the rebalance.
    pub rebalance: Rebalance,
    /// Automatic failovers since the last reset by an operator.
    pub failovers: u32,
    /// Highest number of a removed node. Such a node may run on, so no other one gets its number.
    pub removed: u16,
}

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketSpec {
    /// Name.
    pub name: String,
    /// Number of vBuckets.
    pub vbuckets: u16,
    /// Number of copies of each vBucket.
    pub copies: usize,
    /// Settings, in the form that nodes use.
    pub settings: serde_json::Value,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct MoveValue {
    to: Chain,
    phase: Phase,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RowValue {
    chain: Chain,
    term: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intent: Option<u64>,
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    change: Option<MoveValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    without: Option<Chain>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renew: Option<Chain>,
    #[serde(default, skip_serializing_if = "is_zero")]
    adopted: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Rows of a map: [`CHUNK_VBUCKETS`](super::CHUNK_VBUCKETS) of them, fewer in the last chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<RowValue>", into = "Vec<RowValue>")]
pub struct Chunk {
    /// Rows in the order of vBuckets, shared by the copies of a view.
    pub rows: Arc<[Row]>,
}

impl From<Vec<RowValue>> for Chunk {
    fn from(rows: Vec<RowValue>) -> Self {
        let row = |row: RowValue| Row {
            chain: row.chain,
            term: row.term,
            intent: row.intent,
            change: row.change.map(|change| (change.to, change.phase)),
            without: row.without,
            renew: row.renew,
            adopted: row.adopted,
        };
        Self {
            rows: rows.into_iter().map(row).collect(),
        }
    }
}

impl From<Chunk> for Vec<RowValue> {
    fn from(chunk: Chunk) -> Self {
        let row = |row: &Row| RowValue {
            chain: row.chain,
            term: row.term,
            intent: row.intent,
            change: row.change.map(|(to, phase)| MoveValue { to, phase }),
            without: row.without,
            renew: row.renew,
            adopted: row.adopted,
        };
        chunk.rows.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lists_of_small_objects() {
        let chain = |nodes: &[u16]| {
            let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
            Chain::new(&nodes).unwrap()
        };
        let chunk = Chunk {
            rows: [
                Row::new(chain(&[1, 2]), 3),
                Row {
                    intent: Some(2),
                    change: Some((chain(&[3]), Phase::TakeOver)),
                    ..Row::new(chain(&[2]), 1)
                },
                Row {
                    intent: Some(4),
                    without: Some(chain(&[2, 3])),
                    ..Row::new(chain(&[2, 3, 1]), 3)
                },
                Row {
                    renew: Some(chain(&[3])),
                    ..Row::new(chain(&[1, 2]), 3)
                },
                Row {
                    adopted: 1003,
                    ..Row::new(chain(&[1, 2]), 1004)
                },
            ]
            .into(),
        };
        let text = serde_json::to_string(&chunk).unwrap();
        let rows = r#"[{"chain":[1,2],"term":3},{"chain":[2],"term":1,"intent":2,"move":{"to":[3],"phase":"take_over"}},{"chain":[2,3,1],"term":3,"intent":4,"without":[2,3]},{"chain":[1,2],"term":3,"renew":[3]},{"chain":[1,2],"term":1004,"adopted":1003}]"#;
        assert_eq!(text, rows);
        assert_eq!(serde_json::from_str::<Chunk>(&text).unwrap(), chunk);
        assert!(serde_json::from_str::<Chunk>(r#"[{"chain":[1,1],"term":1}]"#).is_err());
    }

    #[test]
    fn health_lists_damaged_copies_by_bucket_and_vbucket() {
        let mut health = Health::default();
        let of_bucket = BTreeMap::from([(7, Condition::Damaged), (9, Condition::Unreadable)]);
        health.damaged.insert(BucketId(u128::MAX), of_bucket);
        let text = serde_json::to_string(&health).unwrap();
        let damaged = format!(
            r#""damaged":{{"{}":{{"7":"damaged","9":"unreadable"}}}}"#,
            u128::MAX
        );
        assert!(text.contains(&damaged), "{text}");
        assert_eq!(serde_json::from_str::<Health>(&text).unwrap(), health);
    }

    #[test]
    fn fields_of_a_newer_version_are_ignored() {
        let node: Node = serde_json::from_str(r#"{"zone":2,"state":"active","gpu":1}"#).unwrap();
        assert_eq!((node.zone, node.state), (2, NodeState::Active));
    }
}
