//! Messages of a node about itself and a bucket, to clients and other nodes.

use serde_json::{Value, json};

use crate::cluster_map::MapRevision;
use crate::clustered::publish_cluster;
use crate::maps::global_map;
use crate::registry::Registry;
use crate::served::ServedBucket;

/// Publishes a map with the changed collections of a bucket; in a cluster with the revision at which all nodes have
/// them.
pub fn manifest_changed(node: &Registry, served: &ServedBucket) {
    publish(node, served, served.map().revision.next());
}

/// Publishes the maps of this revision, with the current group of the bucket; in a cluster the maps that the nodes
/// agreed on.
pub fn publish(node: &Registry, served: &ServedBucket, revision: MapRevision) {
    if node.cluster.get().is_some() {
        return publish_cluster(node, served);
    }
    let group = served.group();
    let uuid = served.shown_uuid();
    node.env.remember(served.name(), &uuid, revision.epoch);
    let external = node.external.read().clone();
    let at = node.reached(external.as_ref());
    let map = served.current_map(&group, at, revision);
    node.publish_global_map(global_map(at, &group, revision));
    node.publish_map(served, map);
}

/// Describes this node, with the epoch and revision of the bucket's map.
pub fn about_bucket(node: &Registry, served: &ServedBucket) -> Value {
    let MapRevision { epoch, rev } = served.map().revision;
    let mut about = about_this(node);
    about["epoch"] = epoch.into();
    about["rev"] = rev.into();
    about["uuid"] = served.shown_uuid().as_ref().into();
    about
}

/// Describes this node for other nodes. `host` is left out if the node listens on every address: others see the source
/// address of its connections.
pub(crate) fn about_this(node: &Registry) -> Value {
    let ports = node.shown_ports();
    let mut about = json!({
        "node": node.uuid,
        "kv": ports.kv,
        "http": ports.http,
        "kv_tls": ports.kv_tls,
        "https": ports.https,
    });
    let listen = Some(node.listen).filter(|listen| !listen.is_unspecified());
    let listen = listen.map(|listen| listen.to_string());
    let advertised = node.advertise.as_ref().map(|at| at.host.clone());
    if let Some(host) = advertised.or(listen) {
        about["host"] = host.into();
        about["advertised"] = node.advertise.is_some().into();
    }
    about
}
