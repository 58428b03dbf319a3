//! What answers about a cluster go by.

use std::sync::Arc;

use registry::ClusterStatus;
use registry::cluster::ClusterMember;

use crate::state::HttpState;

/// A request to a node of a cluster.
pub(super) struct Asked {
    pub(super) state: HttpState,
    pub(super) member: Arc<dyn ClusterMember>,
    /// The cluster as it was when the request came.
    pub(super) status: ClusterStatus,
}
