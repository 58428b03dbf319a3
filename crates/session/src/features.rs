//! Features that HELLO grants: only those that the node implements.

use wire::{Feature, FeatureSet};

/// Every feature that this node implements.
pub(crate) const GRANTED: [Feature; 29] = [
    Feature::TCP_NODELAY,
    Feature::MUTATION_SEQNO,
    Feature::XATTR,
    Feature::XERROR,
    Feature::SELECT_BUCKET,
    Feature::SNAPPY,
    Feature::JSON,
    Feature::DUPLEX,
    Feature::CLUSTERMAP_CHANGE_NOTIFICATION,
    Feature::UNORDERED_EXECUTION,
    Feature::TRACING,
    Feature::ALT_REQUEST_SUPPORT,
    Feature::SYNC_REPLICATION,
    Feature::COLLECTIONS,
    Feature::SNAPPY_EVERYWHERE,
    Feature::PRESERVE_TTL,
    Feature::VATTR,
    Feature::SUBDOC_CREATE_AS_DELETED,
    Feature::SUBDOC_DOCUMENT_MACRO_SUPPORT,
    Feature::SUBDOC_REPLACE_BODY_WITH_XATTR,
    Feature::SUBDOC_REPLICA_READ,
    Feature::GET_CLUSTER_CONFIG_WITH_KNOWN_VERSION,
    Feature::DEDUPE_NOT_MY_VBUCKET_CLUSTERMAP,
    Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF,
    Feature::SUBDOC_ALLOWS_ACCESS_ON_MULTIPLE_XATTR_KEYS,
    Feature::SUBDOC_BINARY_XATTR,
    Feature::RANGE_SCAN_INCLUDE_XATTR,
    Feature::SUBDOC_ALLOW_REPLICA_READ_ON_DELETED_DOCS,
    Feature::DCP_SKIP_DELETES_IN_INITIAL_BACKFILL,
];

/// Returns the features of a request that are granted.
pub(crate) fn grant(asked: FeatureSet) -> FeatureSet {
    let mut granted = FeatureSet::EMPTY;
    for feature in GRANTED {
        if asked.contains(feature) {
            granted.insert(feature);
        }
    }
    // If both are requested, the peer gets only notices with revisions.
    if granted.contains(Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF) {
        granted.remove(Feature::CLUSTERMAP_CHANGE_NOTIFICATION);
    }
    granted
}
