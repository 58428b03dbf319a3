//! The node as a member of a cluster: the services that the member needs from the node.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::member::{BucketNotMade, CleanStop, Host, JoinError, Member, MemberOptions, MemberRecord};
use cluster::Version;
use cluster::agreed::{Address, Mark, Seen};
use identity::Administrator;
use management::BucketsError;
use registry::cluster::CLUSTER_USER;
use registry::collections::of_json;
use registry::{BucketSettings, Ports};
use serde::{Deserialize, Serialize};
use tls::{PeerTls, Trust};

use super::identities::MemberOf;
use super::sealed_file::SEEN;
use super::state::NodeState;
use crate::config::{ClusterConfig, NodeConfig, StartError};

/// Version of the file with the seen state.
const SEEN_VERSION: u32 = 1;

/// The newest state of the cluster that the node has seen. An etcd with an older state was restored from a backup.
#[derive(Debug, Serialize, Deserialize)]
struct KeptSeen {
    version: u32,
    /// UUID of the cluster, 32 hex digits.
    cluster: String,
    epoch: u64,
    revision: u64,
    /// The newest transaction of a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
    /// The last stop, if it was clean and nothing was stored since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop: Option<CleanStop>,
    /// Number of the last start; earlier releases wrote none.
    #[serde(default)]
    starts: u64,
}

impl Host for NodeState {
    fn keep_record(&self, cluster: &str, record: MemberRecord) -> Result<(), String> {
        let path = self.record_path();
        path.map_or(Ok(()), |path| write_record(&path, cluster, record))
    }

    fn kept_record(&self, cluster: &str) -> Result<MemberRecord, String> {
        let path = self.record_path();
        let kept = path.map_or(Ok(MemberRecord::default()), |path| {
            read_record(&path, cluster)
        });
        kept.map_err(|error| error.to_string())
    }

    fn note_cluster(&self, name: &str, uuid: &str) -> Result<(), String> {
        let of = MemberOf {
            name: name.to_owned(),
            uuid: uuid.to_owned(),
        };
        let noted = self.world.kept().update(|kept| kept.member_of = Some(of));
        noted.map_err(|error| error.to_string())
    }

    fn admit_peers(&self, secret: &str) {
        self.identity.admit_peers(Administrator {
            name: CLUSTER_USER.to_owned(),
            password: secret.into(),
        });
    }

    fn make_bucket(
        &self,
        uuid: &str,
        settings: BucketSettings,
        manifest: Option<&str>,
    ) -> Result<(), BucketNotMade> {
        let name = settings.bucket.name.clone();
        if self.bucket(&name).is_some_and(|served| served.uuid != uuid) {
            // The bucket was dropped and created again while this node was away.
            self.drop_bucket(&name).map_err(|error| not_made(&error))?;
        }
        let manifest = manifest.map(|text| of_json(text.as_bytes())).transpose();
        let manifest = manifest.map_err(|error| BucketNotMade::from(error.to_string()))?;
        match self.make_bucket_as(settings, Some(uuid), manifest) {
            Ok(()) | Err(BucketsError::Exists) => Ok(()),
            Err(error) => Err(not_made(&error)),
        }
    }

    fn adjust_bucket(&self, settings: BucketSettings) -> Result<(), String> {
        let name = settings.bucket.name.clone();
        let adjusted = NodeState::adjust_bucket(self, &name, &|_| Ok(settings.clone()));
        adjusted.map_err(|error| error.to_string())
    }

    fn drop_bucket(&self, name: &str) -> Result<(), String> {
        match NodeState::drop_bucket(self, name) {
            Ok(()) | Err(BucketsError::Unknown) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn write_record(path: &Path, cluster: &str, record: MemberRecord) -> Result<(), String> {
    let MemberRecord { seen, stop, starts } = record;
    let Version { epoch, revision } = seen.version;
    let seen = KeptSeen {
        version: SEEN_VERSION,
        cluster: cluster.to_owned(),
        epoch,
        revision,
        mark: seen.mark,
        stop,
        starts,
    };
    SEEN.replace(path, &seen).map_err(|error| error.to_string())
}

fn read_record(path: &Path, cluster: &str) -> Result<MemberRecord, StartError> {
    let read = SEEN.read::<KeptSeen>(path, SEEN_VERSION);
    let without = "the node does not know an etcd that was restored from a backup";
    let seen = read.map_err(|why| why.refusal(path, without))?;
    let seen = seen.filter(|seen| seen.cluster == cluster);
    Ok(seen.map_or_else(Default::default, |kept| {
        let (epoch, revision) = (kept.epoch, kept.revision);
        let seen = Seen {
            version: Version { epoch, revision },
            mark: kept.mark,
        };
        MemberRecord {
            seen,
            stop: kept.stop,
            starts: kept.starts,
        }
    }))
}

impl NodeState {
    fn record_path(&self) -> Option<PathBuf> {
        let kept = self.world.kept();
        kept.dir.as_ref().map(|dir| dir.path().join(SEEN.name))
    }
}

fn not_made(error: &BucketsError) -> BucketNotMade {
    BucketNotMade {
        reason: error.to_string(),
        no_space: matches!(error, BucketsError::NoSpace(_)),
    }
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

/// Returns the TLS of links to other nodes, or the reason why there is none.
fn peer_tls(
    state: &NodeState,
    cluster: &ClusterConfig,
    host: &str,
) -> Result<Arc<PeerTls>, String> {
    let served = state.tls.as_ref().filter(|_| state.ports.kv_tls.is_some());
    let served = served.ok_or("start this one with --kv-tls-port, --peer-ca and a certificate")?;
    PeerTls::open(cluster.peers.clone(), served, host).map(Arc::new)
}

/// Joins the cluster, if one is configured.
pub(super) fn start_member(
    state: &Arc<NodeState>,
    config: &NodeConfig,
) -> Result<Option<Arc<Member>>, StartError> {
    let Some(cluster) = &config.cluster else {
        return Ok(None);
    };
    if let Some(path) = state.record_path() {
        read_record(&path, "")?;
    }
    let host = config.advertise.as_ref().map(|at| at.host.clone());
    let host = host.unwrap_or_else(|| config.listen.to_string());
    let outside = cluster.outside.as_ref();
    let peer_tls = peer_tls(state, cluster, &host);
    let options = MemberOptions {
        etcd: cluster.etcd.clone(),
        cluster: cluster.name.clone(),
        name: cluster.node_name.clone(),
        zone: cluster.zone,
        peer_tls,
        wants_tls: cluster.peers != Trust::default(),
        inside: address(host, state.shown_ports()),
        outside: outside.map(|at| address(at.host.clone(), at.ports(state.ports))),
    };
    let host = Arc::clone(state) as Arc<dyn Host>;
    let member = Member::start(&state.registry, host, &options).map_err(|error| match error {
        JoinError::Etcd(problem) => StartError::Etcd(problem),
        JoinError::Refused(reason) => StartError::Cluster(reason),
        JoinError::System(reason) => StartError::System(reason),
    })?;
    if let Some(tls) = member.tls() {
        state.peer_tls.get_or_init(|| Arc::clone(tls));
    }
    let shared = Arc::clone(&member) as Arc<dyn registry::cluster::ClusterMember>;
    if state.registry.cluster.set(shared).is_err() {
        return Err(StartError::System(
            "the node is in a cluster already".into(),
        ));
    }
    Ok(Some(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::access;
    use cluster::NodeId;
    use cluster::agreed::History;

    #[test]
    fn f6_the_seen_state_of_a_cluster_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SEEN.name);
        assert_eq!(read_record(&path, "c1").unwrap(), MemberRecord::default());
        let (epoch, revision) = (2, 77);
        let history = History::default().with((NodeId(3), u64::MAX), 9);
        let seen = Seen {
            version: Version { epoch, revision },
            mark: history.newest(),
        };
        for stop in [Some(CleanStop::default()), None] {
            let record = MemberRecord {
                seen,
                stop,
                starts: 4,
            };
            write_record(&path, "c1", record.clone()).unwrap();
            assert_eq!(read_record(&path, "c1").unwrap(), record);
        }
        // Revisions of another cluster mean nothing here.
        assert_eq!(read_record(&path, "c2").unwrap(), MemberRecord::default());
        std::fs::write(&path, "{}").unwrap();
        match read_record(&path, "c1") {
            Err(StartError::DataFormat(line)) => {
                assert!(line.contains("cluster.json: damaged"), "{line}");
                assert!(line.contains("remove it"), "{line}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bucket_without_space_on_the_disk_is_told_apart() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let refused = |error: &std::io::Error| not_made(&access(Path::new("data"), error).into());
        assert!(refused(&full).no_space);
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(!refused(&denied).no_space);
    }
}
