//! Nodes for tests.

use std::path::Path;
use std::sync::LazyLock;

use server::{BucketConfig, BucketKind, MemcachedPort, Node, NodeConfig};
use wire::Opcode;

use crate::client::{self, Client, PASSWORD, Request, USER};

fn config(data_dir: Option<&Path>) -> NodeConfig {
    NodeConfig {
        data_dir: data_dir.map(Path::to_owned),
        listen: "127.0.0.1".parse().unwrap(),
        advertise: None,
        kv_port: 0,
        http_port: 0,
        memcached: Some(MemcachedPort {
            port: 0,
            bucket: "default".into(),
            login: false,
        }),
        kv_tls_port: over_tls().then_some(0),
        https_port: None,
        certificate: None,
        client_cert: None,
        client_ca: None,
        provisionable: None,
        username: USER.into(),
        password: PASSWORD.into(),
        buckets: ["default", "other"].map(bucket).to_vec(),
        replica_of: None,
        cluster: None,
        threads: 2,
        purge_age_s: 259_200,
        journal_bytes: 32 << 20,
        encryption_keys: None,
        buckets_max: 100,
    }
}

/// Checks whether connections use TLS where they can: all tests must pass over TLS as well.
fn over_tls() -> bool {
    std::env::var_os("SETTEE_TEST_OVER_TLS").is_some()
}

fn bucket(name: &str) -> BucketConfig {
    BucketConfig {
        name: name.into(),
        quota_bytes: 1 << 30,
        kind: BucketKind::Couchbase,
        eviction: server::EvictionPolicy::Values,
        durability_min: None,
        vbuckets: None,
    }
}

fn start(data_dir: Option<&Path>) -> Node {
    started(config(data_dir))
}

fn started(config: NodeConfig) -> Node {
    let node = Node::start(config).expect("the node starts");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .unwrap()
        .block_on(node.warmed_up())
        .expect("it loads");
    if let (Some(sealed), Some(pem)) = (node.ports().kv_tls, node.authority()) {
        client::seal(node.ports().kv, (sealed, &pem));
    }
    node
}

static SHARED: LazyLock<Node> = LazyLock::new(|| start(None));

/// Returns the KV port of a node in memory that all tests share. Each test uses its own keys and leaves vBuckets as
/// they are.
pub(crate) fn shared() -> u16 {
    SHARED.ports().kv
}

/// Returns the shared node's port for classic clients.
pub(crate) fn shared_classic() -> u16 {
    SHARED
        .ports()
        .memcached
        .expect("a port for classic clients")
}

/// Starts a node in memory for one test.
pub(crate) fn own() -> Node {
    start(None)
}

/// Starts a node in memory for one test, all of whose connections share a thread.
pub(crate) fn with_one_worker() -> Node {
    let mut config = config(None);
    config.threads = 1;
    started(config)
}

/// Starts a node in memory whose port for classic clients requires a login.
pub(crate) fn asking_for_logins() -> Node {
    let mut config = config(None);
    config.memcached = config.memcached.map(|memcached| MemcachedPort {
        login: true,
        ..memcached
    });
    started(config)
}

/// Starts a node that follows `default` of the one at `port`.
pub(crate) fn replica_of(port: u16, data_dir: Option<&Path>) -> Node {
    replica_of_bucket(port, "default", data_dir)
}

/// Starts a node that follows one bucket of the one at `port`, and has no other.
pub(crate) fn replica_of_bucket(port: u16, name: &str, data_dir: Option<&Path>) -> Node {
    let mut config = config(data_dir);
    config.buckets = vec![bucket(name)];
    config.replica_of = Some(server::ReplicaOf {
        host: "127.0.0.1".into(),
        port,
        username: USER.into(),
        password: PASSWORD.into(),
        bucket: name.into(),
        tls: None,
        demote: false,
    });
    started(config)
}

/// Starts a node with its data in `place` and this lowest durability level of every write.
pub(crate) fn with_least(place: &Path, least: model::DurabilityLevel) -> Node {
    let mut config = config(Some(place));
    for bucket in &mut config.buckets {
        bucket.durability_min = Some(least);
    }
    started(config)
}

/// Starts a node for one test with its data in `place`.
pub(crate) fn on_disk(place: &Path) -> Node {
    start(Some(place))
}

/// Starts a node with its data in `place` and full eviction: keys leave memory, too.
pub(crate) fn with_full_eviction(place: &Path) -> Node {
    let mut config = config(Some(place));
    for bucket in &mut config.buckets {
        bucket.eviction = server::EvictionPolicy::Documents;
    }
    started(config)
}

/// Runs a test against both kinds of store.
pub(crate) fn on_both(test: impl Fn(u16)) {
    test(shared());
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    test(node.ports().kv);
    node.shutdown().expect("everything becomes durable");
}

/// Changes the state of a vBucket.
pub(crate) fn set_vbucket(client: &mut Client, vbucket: u16, state: u8) {
    let request = Request::new(Opcode::SET_VBUCKET).vbucket(vbucket);
    client.call(&request.extras(&[state])).ok();
}
