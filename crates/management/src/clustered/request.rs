//! The context of requests to a node of a cluster.

use std::sync::Arc;

use registry::ClusterStatus;
use registry::cluster::ClusterMember;

use crate::state::HttpState;

/// A request to a node of a cluster.
pub(super) struct ClusterRequest {
    pub(super) state: HttpState,
    pub(super) member: Arc<dyn ClusterMember>,
    /// Status of the cluster when the request arrived.
    pub(super) status: ClusterStatus,
}
