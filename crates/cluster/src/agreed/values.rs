//! Values, as JSON. A field that is not known is ignored, one that is missing has its default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::coord::LeaseId;
use crate::map::{BucketId, Chain, NodeId, Phase, Row};

/// What a name of a cluster stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The cluster's UUID, 32 hex digits.
    pub uuid: String,
}

/// What a version must understand to be a node of each cluster that this one makes.
pub const FEATURE_LEVEL: u32 = 2;

/// The cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// What all of its nodes understand.
    pub feature_level: u32,
    /// Raised after a restore of etcd, and by an unsafe failover.
    pub epoch: u64,
    /// With this its nodes log in to each other.
    pub secret: String,
    /// How long a node's lease lasts, if that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Whether its nodes speak to each other over TLS; of feature level 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
}

/// What a node is for the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It came, or came back, and is not counted on.
    #[default]
    New,
    /// It shall have copies.
    Active,
    /// It shall have none.
    Draining,
    /// Its active copies are replaced, and durable writes count on no copy of it. The node itself ends this state when it has
    /// read the map, unless an operator [failed it over](Node::failed_over).
    Failed,
}

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Address {
    /// Name or address of its host.
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
    /// Its name, that no other node has.
    pub name: String,
    /// What it is called by its data directory, 32 hex digits: a node that lost its data is another one.
    pub uuid: String,
    /// Address for other nodes, and for clients in their network.
    pub inside: Address,
    /// Address for clients of another network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<Address>,
    /// Number of the zone that it fails with.
    pub zone: u16,
    /// Its version.
    pub version: String,
    /// What it is for the cluster.
    pub state: NodeState,
    /// Of a failed node: the lease that did not end by time. It is revoked, and its node's clock waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<LeaseId>,
    /// Of a failed node: an operator ordered it. The node stays failed, though it may run, until an operator recovers it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed_over: bool,
    /// Of a member: others take over from its active copies, and then it is failed over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hands_over: bool,
}

/// What a node says of itself and of its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// A sync failed: it acknowledges nothing and serves nothing.
    pub disk_dead: bool,
    /// Commits find no space: it works in memory, and no new term gets on disk.
    pub disk_full: bool,
    /// Nodes that it has not heard for some time.
    pub unheard: Vec<NodeId>,
    /// Its copies that are not whole: numbers of vBuckets, by bucket.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub damaged: BTreeMap<BucketId, BTreeMap<u16, Condition>>,
}

/// A node that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alive {
    /// Different for each start.
    pub boot: u64,
    /// How it is.
    pub health: Health,
}

/// The controller; the revision of its key is its term. While copies are adopted there is none: the adoption has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// The node.
    pub node: NodeId,
    /// Its start.
    pub boot: u64,
    /// The highest term that copies are sealed at for the adoption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<u64>,
}

impl Controller {
    /// A node that may be elected, with its start.
    pub fn new(node: NodeId, boot: u64) -> Self {
        let adopts = None;
        Self { node, boot, adopts }
    }
}

/// Whether copies are moved to where the plan wants them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rebalance {
    /// No; moves that can be taken back are.
    #[default]
    Idle,
    /// Yes.
    Running,
    /// No move begins; those that began go on.
    Paused,
}

/// What operators want, and what is counted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// Whether there is a rebalance.
    pub rebalance: Rebalance,
    /// Failovers without an operator since one reset the count.
    pub failovers: u32,
}

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketSpec {
    /// Its name.
    pub name: String,
    /// Its vBuckets.
    pub vbuckets: u16,
    /// Copies of each.
    pub copies: usize,
    /// Its settings, as nodes know them.
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
}

/// Rows of a map: [`CHUNK_VBUCKETS`](super::CHUNK_VBUCKETS) of them, fewer in the last chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<RowValue>", into = "Vec<RowValue>")]
pub struct Chunk {
    /// In the order of vBuckets.
    pub rows: Vec<Row>,
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
        };
        Self {
            rows: rows.into_iter().map(row).collect(),
        }
    }
}

impl From<Chunk> for Vec<RowValue> {
    fn from(chunk: Chunk) -> Self {
        let row = |row: Row| RowValue {
            chain: row.chain,
            term: row.term,
            intent: row.intent,
            change: row.change.map(|(to, phase)| MoveValue { to, phase }),
            without: row.without,
            renew: row.renew,
        };
        chunk.rows.into_iter().map(row).collect()
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
            rows: vec![
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
            ],
        };
        let text = serde_json::to_string(&chunk).unwrap();
        let rows = r#"[{"chain":[1,2],"term":3},{"chain":[2],"term":1,"intent":2,"move":{"to":[3],"phase":"take_over"}},{"chain":[2,3,1],"term":3,"intent":4,"without":[2,3]},{"chain":[1,2],"term":3,"renew":[3]}]"#;
        assert_eq!(text, rows);
        assert_eq!(serde_json::from_str::<Chunk>(&text).unwrap(), chunk);
        assert!(serde_json::from_str::<Chunk>(r#"[{"chain":[1,1],"term":1}]"#).is_err());
    }

    #[test]
    fn damaged_copies_are_told_by_bucket_and_number() {
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
