//! Keys in etcd: `/settee/<cluster>/` and a suffix of [`Key`]; [`name_key`] finds a cluster by its name.

use crate::map::{BucketId, NodeId};

/// A cluster by its UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl ClusterId {
    /// Returns its 32 hex digits.
    pub fn uuid(self) -> String {
        format!("{:032x}", self.0)
    }

    /// Returns the prefix of all keys of the cluster.
    pub fn prefix(self) -> String {
        format!("/settee/{}/", self.uuid())
    }
}

/// Returns the key that holds the UUID of a cluster by its name, see [`ClusterName`](super::ClusterName).
pub fn name_key(name: &str) -> String {
    format!("/settee/names/{name}")
}

/// Number of vBuckets in a chunk of a map.
pub const CHUNK_VBUCKETS: u16 = 64;

/// A key of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `meta`: [`Meta`](super::Meta).
    Meta,
    /// `nodes/<id>`: [`Node`](super::Node).
    Node(NodeId),
    /// `alive/<id>`, with a lease: [`Alive`](super::Alive).
    Alive(NodeId),
    /// `controller`, with a lease: [`Controller`](super::Controller).
    Controller,
    /// `orders`: [`Orders`](super::Orders).
    Orders,
    /// `history`: [`History`](super::History), written by each transaction of a controller.
    History,
    /// `buckets/<uuid>/spec`: [`BucketSpec`](super::BucketSpec).
    Spec(BucketId),
    /// `buckets/<uuid>/manifest`: scopes and collections, as the JSON text that nodes store.
    Manifest(BucketId),
    /// `security/users`: users, as the JSON text that nodes store.
    Users,
    /// `buckets/<uuid>/map/<0..15>`: [`Chunk`](super::Chunk).
    Map(BucketId, u16),
}

impl Key {
    /// Returns the key's text in etcd.
    pub fn text(self, cluster: ClusterId) -> String {
        let tail = match self {
            Self::Meta => "meta".to_owned(),
            Self::Node(node) => format!("nodes/{}", node.0),
            Self::Alive(node) => format!("alive/{}", node.0),
            Self::Controller => "controller".to_owned(),
            Self::Orders => "orders".to_owned(),
            Self::History => "history".to_owned(),
            Self::Spec(bucket) => format!("buckets/{bucket}/spec"),
            Self::Manifest(bucket) => format!("buckets/{bucket}/manifest"),
            Self::Users => "security/users".to_owned(),
            Self::Map(bucket, chunk) => format!("buckets/{bucket}/map/{chunk}"),
        };
        cluster.prefix() + &tail
    }

    /// Parses a key; `None` for a key of another cluster, or an unknown key.
    pub fn parse(cluster: ClusterId, text: &str) -> Option<Self> {
        let tail = text.strip_prefix(&cluster.prefix())?;
        let parts: Vec<&str> = tail.split('/').collect();
        let node = |id: &str| id.parse().ok().map(NodeId);
        let bucket = |uuid: &str| u128::from_str_radix(uuid, 16).ok().map(BucketId);
        match parts.as_slice() {
            ["meta"] => Some(Self::Meta),
            ["controller"] => Some(Self::Controller),
            ["orders"] => Some(Self::Orders),
            ["history"] => Some(Self::History),
            ["nodes", id] => Some(Self::Node(node(id)?)),
            ["alive", id] => Some(Self::Alive(node(id)?)),
            ["buckets", uuid, "spec"] => Some(Self::Spec(bucket(uuid)?)),
            ["buckets", uuid, "manifest"] => Some(Self::Manifest(bucket(uuid)?)),
            ["security", "users"] => Some(Self::Users),
            ["buckets", uuid, "map", chunk] => Some(Self::Map(bucket(uuid)?, chunk.parse().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let (cluster, bucket) = (ClusterId(7), BucketId(0xab));
        let node = NodeId(3);
        for key in [
            Key::Meta,
            Key::Node(node),
            Key::Alive(node),
            Key::Controller,
            Key::Orders,
            Key::History,
            Key::Spec(bucket),
            Key::Manifest(bucket),
            Key::Users,
            Key::Map(bucket, 15),
        ] {
            assert_eq!(Key::parse(cluster, &key.text(cluster)), Some(key));
            assert_eq!(Key::parse(ClusterId(8), &key.text(cluster)), None);
        }
        let unknown = cluster.prefix() + "security/keys";
        assert_eq!(Key::parse(cluster, &unknown), None);
    }
}
