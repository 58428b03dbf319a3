//! The maps that clients of a bucket are told.

use std::sync::Arc;

use model::ManifestUid;

use crate::cluster_map::{
    BUCKET_CAPABILITIES, BucketMap, DISK_BUCKET_CAPABILITIES, HISTORY_BUCKET_CAPABILITIES,
    HOST_PLACEHOLDER, MapRevision, NodeAddress, TlsPorts, bucket_config, global_config,
};
use crate::group::Group;
use crate::peer::Peer;
use crate::settings::{BucketKind, BucketSettings, Ports};

/// One revision of a cluster map.
#[derive(Clone, Debug)]
pub struct MapVersion {
    /// Its revision.
    pub revision: MapRevision,
    /// Its text.
    pub json: Arc<str>,
}

fn this_node(ports: Ports) -> NodeAddress<'static> {
    NodeAddress {
        host: HOST_PLACEHOLDER,
        kv_port: ports.kv,
        http_port: ports.http,
        tls: TlsPorts {
            kv: ports.kv_tls,
            http: ports.https,
        },
    }
}

/// What a bucket is called in its map.
#[derive(Clone, Copy, Debug)]
pub struct MapOf<'a> {
    /// Its name.
    pub name: &'a str,
    /// 32 hex digits.
    pub uuid: &'a str,
    /// How many vBuckets it has.
    pub vbuckets: u16,
    /// Of its collections.
    pub manifest: ManifestUid,
    /// What it was made with.
    pub settings: &'a BucketSettings,
}

/// The map of a bucket.
pub fn bucket_map(of: MapOf<'_>, ports: Ports, group: &Group, revision: MapRevision) -> MapVersion {
    let peers: Vec<_> = group.peers.iter().map(Peer::address).collect();
    let map = BucketMap {
        name: of.name,
        uuid: of.uuid,
        revision,
        vbuckets: of.vbuckets,
        replicas: peers.len() as u8,
        manifest_uid: of.manifest.0,
        capabilities: match of.settings.bucket.kind {
            BucketKind::Couchbase if of.settings.history.magma => HISTORY_BUCKET_CAPABILITIES,
            BucketKind::Couchbase => DISK_BUCKET_CAPABILITIES,
            BucketKind::Ephemeral => BUCKET_CAPABILITIES,
        },
        node: this_node(ports),
        peers: &peers,
        place: group.place,
    };
    MapVersion {
        revision,
        json: bucket_config(&map).into(),
    }
}

/// The map that names no bucket.
pub fn global_map(ports: Ports, group: &Group, revision: MapRevision) -> MapVersion {
    let peers: Vec<_> = group.peers.iter().map(Peer::address).collect();
    let json = global_config(revision, this_node(ports), (&peers, group.place));
    MapVersion {
        revision,
        json: json.into(),
    }
}
