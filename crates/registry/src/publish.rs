//! What a node tells clients and other nodes of itself and of a bucket.

use serde_json::{Value, json};

use crate::cluster_map::MapRevision;
use crate::clustered::publish_cluster;
use crate::maps::global_map;
use crate::registry::Registry;
use crate::served::ServedBucket;

/// The collections of a bucket changed: clients are told a map that says so, in a cluster with the revision at which
/// all nodes have them.
pub fn manifest_changed(node: &Registry, served: &ServedBucket) {
    publish(node, served, served.map().revision.next());
}

/// Tells clients the maps of this revision, as the group of the bucket is now; in a cluster those that it agreed on.
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

/// This node and where its bucket stands.
pub fn about_bucket(node: &Registry, served: &ServedBucket) -> Value {
    let MapRevision { epoch, rev } = served.map().revision;
    let mut about = about_this(node);
    about["epoch"] = epoch.into();
    about["rev"] = rev.into();
    about["uuid"] = served.shown_uuid().as_ref().into();
    about
}

/// What a node tells others about itself. `host` is left out where it listens on every address:
/// others see where its connections come from.
pub(crate) fn about_this(node: &Registry) -> Value {
    let ports = node.told_ports();
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
