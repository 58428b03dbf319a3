//! The node in a cluster: what its part asks of it.

use std::sync::Arc;

use ::member::{Host, JoinError, Member, MemberOptions};
use cluster::agreed::Address;
use identity::Administrator;
use management::BucketsError;
use registry::cluster::CLUSTER_USER;
use registry::{BucketSettings, Ports};

use super::state::NodeState;
use crate::config::{NodeConfig, StartError};

impl Host for NodeState {
    fn admit_peers(&self, secret: &str) {
        self.identity.admit_peers(Administrator {
            name: CLUSTER_USER.to_owned(),
            password: secret.into(),
        });
    }

    fn make_bucket(&self, uuid: &str, settings: BucketSettings) -> Result<(), String> {
        let name = settings.bucket.name.clone();
        if self.bucket(&name).is_some_and(|served| served.uuid != uuid) {
            // It was dropped and made anew while this node was away.
            self.drop_bucket(&name).map_err(|error| told(&error))?;
        }
        match self.make_bucket_as(settings, Some(uuid)) {
            Ok(()) | Err(BucketsError::Exists) => Ok(()),
            Err(error) => Err(told(&error)),
        }
    }

    fn adjust_bucket(&self, settings: BucketSettings) -> Result<(), String> {
        NodeState::adjust_bucket(self, settings).map_err(|error| told(&error))
    }

    fn drop_bucket(&self, name: &str) -> Result<(), String> {
        match NodeState::drop_bucket(self, name) {
            Ok(()) | Err(BucketsError::Unknown) => Ok(()),
            Err(error) => Err(told(&error)),
        }
    }
}

fn told(error: &BucketsError) -> String {
    error.to_string()
}

fn address(host: String, ports: Ports) -> Address {
    Address {
        host,
        kv: ports.kv,
        http: ports.http,
        kv_tls: ports.kv_tls,
        https: ports.https,
    }
}

/// Joins the cluster, where that is configured.
pub(super) fn start_member(
    state: &Arc<NodeState>,
    config: &NodeConfig,
) -> Result<Option<Arc<Member>>, StartError> {
    let Some(cluster) = &config.cluster else {
        return Ok(None);
    };
    let host = config.advertise.as_ref().map(|at| at.host.clone());
    let host = host.unwrap_or_else(|| config.listen.to_string());
    let outside = cluster.outside.as_ref();
    let options = MemberOptions {
        etcd: cluster.etcd.clone(),
        cluster: cluster.name.clone(),
        name: cluster.node_name.clone(),
        zone: cluster.zone,
        inside: address(host, state.told_ports()),
        outside: outside.map(|at| address(at.host.clone(), at.ports(state.ports))),
    };
    let host = Arc::clone(state) as Arc<dyn Host>;
    let member = Member::start(&state.registry, host, &options).map_err(|error| match error {
        JoinError::Etcd(reason) => StartError::Etcd(reason),
        JoinError::Refused(reason) => StartError::Cluster(reason),
        JoinError::System(reason) => StartError::System(reason),
    })?;
    let shared = Arc::clone(&member) as Arc<dyn registry::cluster::ClusterMember>;
    if state.registry.cluster.set(shared).is_err() {
        return Err(StartError::System(
            "the node is in a cluster already".into(),
        ));
    }
    Ok(Some(member))
}
