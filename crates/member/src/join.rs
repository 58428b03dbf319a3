//! Registration of a node in its cluster.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;
use cluster::agreed::{Address, ClusterId, FEATURE_LEVEL, Key, Meta, Node, Orders, Seen, View};
use cluster::coord::{Answer, Compare, KeyValue, LeaseId, Op, Range, Request, Txn};
use etcd::{Etcd, Problem};
use registry::Registry;
use tls::PeerTls;

use crate::certificate_check::check_certificates;
use crate::host::{CleanStop, Host};

/// Longest wait for an answer of etcd.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts to get a node number: nodes that join at the same time compete for it.
const TRIES: usize = 20;
/// Report of users that cannot be put in force, or not be written.
pub(crate) const USERS_NOT_TAKEN: &str = "the users of the cluster are not taken";

/// Options with which a node joins a cluster.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// Addresses of etcd.
    pub etcd: etcd::Options,
    /// The cluster's name.
    pub cluster: String,
    /// Name of the node, unique in the cluster.
    pub name: String,
    /// Number of the zone with which the node fails.
    pub zone: u16,
    /// Address for other nodes and for clients.
    pub inside: Address,
    /// Address for clients of another network.
    pub outside: Option<Address>,
    /// TLS settings for connections to other nodes, for a cluster with TLS between its nodes; or the reason
    /// why there are none.
    pub peer_tls: Result<Arc<PeerTls>, String>,
    /// Whether any option for TLS between nodes was given.
    pub wants_tls: bool,
}

/// Reason why a node did not join. `Display` is one line that names the setting to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// etcd does not answer, or the server is no etcd.
    #[error("{0}")]
    Etcd(Problem),
    /// The cluster does not accept the node.
    #[error("{0}")]
    Refused(String),
    /// The operating system refused something.
    #[error("{0}")]
    System(String),
}

/// A registered node of a cluster.
pub(crate) struct Joined {
    pub(crate) cluster: ClusterId,
    pub(crate) me: NodeId,
    pub(crate) meta: Meta,
    pub(crate) node: Node,
    /// The newest state of etcd that the node has seen.
    pub(crate) seen: Seen,
    /// The last stop, if it was clean by its data directory and by etcd.
    pub(crate) stop: Option<CleanStop>,
    /// TLS between the nodes.
    pub(crate) tls: Option<Arc<PeerTls>>,
}

impl Joined {
    /// Finds the cluster, and the node's number in it; a new node gets a number.
    pub(crate) fn join(
        etcd: &Etcd,
        node: &Registry,
        host: &dyn Host,
        options: &MemberOptions,
    ) -> Result<Self, JoinError> {
        let cluster = etcd::find(etcd, &options.cluster).map_err(JoinError::Etcd)?;
        let meta = read_meta(etcd, cluster)?;
        let tls = peer_tls(&meta, options)?;
        let record = host.kept_record(&cluster.uuid());
        let record = record.map_err(JoinError::System)?;
        for _ in 0..TRIES {
            let found = nodes(etcd, cluster)?;
            let known = found.iter().find(|(_, node, _)| node.name == options.name);
            let same = found.iter().find(|(_, other, _)| other.uuid == node.uuid);
            if let Some((id, other, _)) = known
                && other.uuid != node.uuid
            {
                let (name, id) = (&options.name, id.0);
                return Err(JoinError::Refused(format!(
                    "the name {name} is that of node {id} with another data directory: take another name, or \
                     remove that node first"
                )));
            }
            if let Some((_, other, _)) = same
                && other.name != options.name
            {
                let name = &other.name;
                return Err(JoinError::Refused(format!(
                    "this data directory is that of node {name}: start it with --node-name {name}"
                )));
            }
            if let Some((_, known, _)) = same {
                check_age(known, record.starts)?;
            }
            if same.is_none() && !node.bucket_names().is_empty() {
                check_buckets(etcd, cluster, &record.seen)?;
            }
            let me = match same {
                Some((id, _, _)) => *id,
                None => new_number(etcd, cluster, &found)?,
            };
            if let Some(tls) = &tls {
                let others = found.iter().map(|(_, other, _)| other);
                let others = others.filter(|other| other.uuid != node.uuid);
                check_certificates(others, tls, &meta.secret).map_err(JoinError::Refused)?;
            }
            let value = described(node, options, same.map(|(_, known, _)| known));
            let seen = same.map_or(0, |(_, _, revision)| *revision);
            let is_new = same.is_none_or(|(_, known, _)| *known != value);
            if !is_new || put_node(etcd, cluster, (me, seen), &value, PATIENCE)? {
                let stopped = same.and_then(|(_, known, _)| known.stopped);
                let node = record.count_start(host, &cluster.uuid(), value);
                let is_counted = node.starts > record.starts;
                let is_clean = |stop: &CleanStop| is_counted && Some(stop.boot) == stopped;
                return Ok(Self {
                    cluster,
                    me,
                    meta,
                    node,
                    seen: record.seen,
                    stop: record.stop.filter(is_clean),
                    tls,
                });
            }
        }
        Err(JoinError::Refused(
            "other nodes joined at the same time, each time: try again".into(),
        ))
    }
}

/// Refuses a data directory that lacks starts of its node: a copy, or one that was restored. It lacks what the node
/// acknowledged since, so that an election could lose it.
fn check_age(known: &Node, starts: u64) -> Result<(), JoinError> {
    if starts == 0 || starts >= known.starts {
        return Ok(());
    }
    let (name, last) = (&known.name, known.starts);
    Err(JoinError::Refused(format!(
        "the data directory is from start {starts} of node {name}, which has started {last} times: it is a copy, or was \
         restored, and may lack what the node acknowledged; start the node on its own directory, or remove it from the \
         cluster and start on an empty one (a restore of all nodes needs etcd of the same time)"
    )))
}

/// The cluster does not know a node that has buckets. They are its own if the node was a member until it was removed.
fn check_buckets(etcd: &Etcd, cluster: ClusterId, seen: &Seen) -> Result<(), JoinError> {
    if *seen == Seen::default() {
        return Err(JoinError::Refused(
            "the data directory has buckets that are not the cluster's: start with another directory, and copy them \
             with settee replicate"
                .into(),
        ));
    }
    if !read_view(etcd, cluster)?.has(seen) {
        return Err(JoinError::Refused(
            "etcd was restored from a backup that lacks this node: it starts again once settee cluster adopt has \
             written it"
                .into(),
        ));
    }
    Ok(())
}

/// Puts the agreed users in force, before clients connect: users may have been removed while this node was away. Those of
/// an etcd that was restored from a backup are not taken.
pub(crate) fn take_users(
    etcd: &Etcd,
    cluster: ClusterId,
    seen: &Seen,
    node: &Registry,
) -> Result<(), JoinError> {
    let view = read_view(etcd, cluster)?;
    if let Some(users) = view.users.as_ref().filter(|_| view.has(seen))
        && let Err(reason) = registry::take_users(node, users.value.as_bytes())
    {
        tracing::error!(reason, "{USERS_NOT_TAKEN}");
    }
    Ok(())
}

fn read_view(etcd: &Etcd, cluster: ClusterId) -> Result<View, JoinError> {
    let (revision, found) = get(etcd, Range::Prefix(cluster.prefix()))?;
    let mut view = View::default();
    view.load(cluster, revision, &found);
    Ok(view)
}

/// The node as the cluster is to know it.
fn described(node: &Registry, options: &MemberOptions, known: Option<&Node>) -> Node {
    let known = known.cloned().unwrap_or_default();
    Node {
        name: options.name.clone(),
        uuid: node.uuid.clone(),
        inside: options.inside.clone(),
        outside: options.outside.clone(),
        zone: options.zone,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        stopped: None,
        ..known
    }
}

/// Returns the TLS settings between nodes: all nodes use TLS, or none does.
fn peer_tls(meta: &Meta, options: &MemberOptions) -> Result<Option<Arc<PeerTls>>, JoinError> {
    let name = &meta.name;
    match (&options.peer_tls, meta.tls) {
        (Ok(tls), true) => Ok(Some(Arc::clone(tls))),
        (Err(reason), true) => Err(JoinError::Refused(format!(
            "the nodes of cluster {name} speak to each other over TLS: {reason}"
        ))),
        (_, false) if options.wants_tls => Err(JoinError::Refused(format!(
            "the nodes of cluster {name} speak to each other without TLS: leave --peer-ca and --peer-cert out, or make a \
             cluster with settee cluster init --tls"
        ))),
        (_, false) => Ok(None),
    }
}

/// Reads keys; returns them and the revision of etcd.
fn get(etcd: &Etcd, keys: Range) -> Result<(u64, Vec<KeyValue>), JoinError> {
    etcd.read(keys, PATIENCE).map_err(JoinError::Etcd)
}

fn read_meta(etcd: &Etcd, cluster: ClusterId) -> Result<Meta, JoinError> {
    let key = Key::Meta.text(cluster);
    let (_, found) = get(etcd, Range::Key(key))?;
    let broken = || JoinError::Refused("what etcd has of the cluster makes no sense".into());
    let found = found.first().ok_or_else(broken)?;
    let meta: Meta = serde_json::from_str(&found.value).map_err(|_| broken())?;
    if meta.feature_level > FEATURE_LEVEL {
        let level = meta.feature_level;
        return Err(JoinError::Refused(format!(
            "the cluster is of feature level {level}, this version knows {FEATURE_LEVEL}: take a newer one"
        )));
    }
    if meta.secret.is_empty() {
        return Err(broken());
    }
    Ok(meta)
}

/// Reads the nodes, each with the revision of its key.
fn nodes(etcd: &Etcd, cluster: ClusterId) -> Result<Vec<(NodeId, Node, u64)>, JoinError> {
    let prefix = cluster.prefix() + "nodes/";
    let (_, found) = get(etcd, Range::Prefix(prefix))?;
    let read = |kv: &KeyValue| {
        let Some(Key::Node(node)) = Key::parse(cluster, &kv.key) else {
            return None;
        };
        Some((node, serde_json::from_str(&kv.value).ok()?, kv.mod_revision))
    };
    Ok(found.iter().filter_map(read).collect())
}

/// Returns a number that no node of the cluster has, or had until it was removed: such a node may run on. `found` was
/// read before.
fn new_number(
    etcd: &Etcd,
    cluster: ClusterId,
    found: &[(NodeId, Node, u64)],
) -> Result<NodeId, JoinError> {
    let key = Key::Orders.text(cluster);
    let (_, orders) = get(etcd, Range::Key(key))?;
    let orders = orders
        .first()
        .and_then(|kv| serde_json::from_str::<Orders>(&kv.value).ok());
    let present = found.iter().map(|(node, _, _)| node.0);
    let highest = present.chain(orders.map(|orders| orders.removed)).max();
    let next = highest.unwrap_or_default().checked_add(1).map(NodeId);
    next.ok_or_else(|| JoinError::Refused("there are no numbers left for nodes".into()))
}

/// Writes the state of a node if nothing changed it since revision `seen`; returns whether it is written.
///
/// # Errors
/// etcd gave no answer in `patience`.
pub(crate) fn put_node(
    etcd: &Etcd,
    cluster: ClusterId,
    (node, seen): (NodeId, u64),
    value: &Node,
    patience: Duration,
) -> Result<bool, JoinError> {
    let key = Key::Node(node).text(cluster);
    let value = serde_json::to_string(value).expect("values of ours have no maps");
    let compare = vec![Compare::ModRevision(key.clone(), seen)];
    let lease = LeaseId(0);
    let then = vec![Op::Put { key, value, lease }];
    let answer = etcd.ask(Request::Txn(Txn { compare, then }), patience);
    let answer = answer.map_err(JoinError::Etcd)?;
    Ok(matches!(answer, Answer::Committed(_)))
}
