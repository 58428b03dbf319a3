mod audit;
mod clustered;
mod doors;
mod management;
mod permits;
mod provision;
mod turns;
mod users;

use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use axum::http::{Method, Request, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use identity::{
    Administrator, AuthenticatedUser, Directory, FAILURES_PER_CONNECTION, Identity, Secrets,
};
use parking_lot::{Condvar, Mutex};
use registry::cluster::ClusterMember;
use registry::cluster_map::{
    AlternateAddress, BUCKET_CAPABILITIES, BucketMap, HOST_PLACEHOLDER, MapRevision, MapRows,
    NO_NODE, NodeAddress, SERVER_GROUP, StandInPorts, TlsPorts, bucket_config, global_config,
};
use registry::collections::CollectionsError;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time;
use tower::ServiceExt;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ::audit::{Recorder, Settings};
use ::collections::{Manifest, ManifestError};
use bucket::Reservation;
use identity::LoginTurn;
use registry::{
    BucketConfig, BucketKind, BucketSettings, ClusterSettings, EvictionPolicy, HistorySettings,
    Ports,
};
use tokio::sync::watch;

use super::*;
use crate::feed::{ChangeSelection, Feed, NoFeed};
use crate::view::UsersError;

fn settings_of_the_bucket(name: &str) -> BucketSettings {
    BucketSettings {
        bucket: BucketConfig {
            name: name.into(),
            quota_bytes: 256 << 20,
            kind: BucketKind::Couchbase,
            eviction: EvictionPolicy::Values,
            durability_min: Some(model::DurabilityLevel::PersistToMajority),
            vbuckets: None,
        },
        max_ttl_s: 0,
        flush_enabled: false,
        replicas: 0,
        history: HistorySettings::default(),
        conflicts: model::ConflictResolution::Revision,
        compression: model::CompressionMode::Passive,
        durability_falls_back: false,
        versioning: registry::Versioning {
            enabled: true,
            pruning_hours: 48,
            max_cas: vec![u64::MAX; 1024],
        },
        auto_compaction: None,
    }
}

const UUID: &str = "5f6a00112233445566778899aabbccdd";
const NODE: NodeAddress<'_> = NodeAddress {
    host: HOST_PLACEHOLDER,
    this_node: true,
    group: SERVER_GROUP,
    kv_port: Some(11210),
    http_port: 8091,
    tls: TlsPorts {
        kv: None,
        http: None,
    },
    stand_ins: StandInPorts {
        query: None,
        search: None,
        index: None,
    },
    external: None,
};

/// A node with the bucket `travel` that a test can change.
struct FakeNode {
    rev: watch::Sender<u64>,
    not_ready: Mutex<Option<String>>,
    bucket_is_gone: Mutex<bool>,
    held_bodies: Mutex<usize>,
    manifest: Mutex<Arc<Manifest>>,
    /// While this is true, changes of buckets block.
    shut: (Mutex<bool>, Condvar),
    /// Changes of buckets that have begun.
    begun: watch::Sender<Vec<BucketChange>>,
    cluster: Mutex<ClusterSettings>,
    /// Whether the node was started to be set up over HTTP.
    stands_in: Mutex<bool>,
    /// The number of times that an open node says so before another request makes its administrator.
    closes_after: Mutex<Option<usize>>,
    identity: Identity,
    /// Error of every write of users, and of settings.
    disk_error: Mutex<Option<String>>,
    audit: Arc<Recorder>,
    member: Mutex<Option<Arc<dyn ClusterMember>>>,
}

impl FakeNode {
    fn new() -> Arc<Self> {
        let (rev, _) = watch::channel(1);
        Arc::new(Self {
            rev,
            not_ready: Mutex::default(),
            bucket_is_gone: Mutex::default(),
            held_bodies: Mutex::default(),
            manifest: Mutex::default(),
            shut: Default::default(),
            begun: watch::channel(Vec::new()).0,
            cluster: Mutex::default(),
            stands_in: Mutex::default(),
            closes_after: Mutex::default(),
            identity: Identity::with_iterations(
                Administrator {
                    name: "Administrator".into(),
                    password: "pass:word".into(),
                },
                Secrets::alike([7; 32]),
                1,
            ),
            disk_error: Mutex::default(),
            member: Mutex::default(),
            audit: Arc::new(Recorder::new("host".into(), Settings::new(PathBuf::new()))),
        })
    }

    fn check_disk(&self) -> Result<(), BucketsError> {
        let error = self.disk_error.lock().clone();
        error.map_or(Ok(()), |why| Err(BucketsError::Failed(why)))
    }

    fn has(&self, bucket: &str) -> bool {
        bucket == "travel" && !*self.bucket_is_gone.lock()
    }

    fn revision(&self) -> MapRevision {
        MapRevision {
            epoch: 1,
            rev: i64::try_from(*self.rev.borrow()).unwrap(),
        }
    }
}

impl NodeView for FakeNode {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_open(&self) -> bool {
        match &mut *self.closes_after.lock() {
            Some(0) => self.cluster.lock().provisioned = true,
            Some(left) => *left -= 1,
            None => {}
        }
        *self.stands_in.lock() && !self.cluster.lock().provisioned
    }

    fn change_users(&self, edit: &mut dyn FnMut(&mut Directory) -> bool) -> Result<(), UsersError> {
        if let Some(why) = &*self.disk_error.lock() {
            return Err(UsersError::Failed(why.clone()));
        }
        let mut directory = Directory::clone(&self.identity.directory());
        if edit(&mut directory) {
            self.identity.replace_directory(directory);
        }
        Ok(())
    }

    fn audit(&self) -> &Recorder {
        &self.audit
    }

    fn change_audit(&self, settings: Settings) -> Result<(), String> {
        if let Some(why) = &*self.disk_error.lock() {
            return Err(why.clone());
        }
        self.audit.configure(settings, 0);
        Ok(())
    }

    fn users_wait(&self) -> Option<Duration> {
        None
    }

    fn login_turn(&self, _: IpAddr) -> LoginTurn {
        LoginTurn::Now
    }

    fn note_login(&self, _: IpAddr, _: bool) {}

    fn hold_body(&self, bytes: usize) -> Reservation {
        *self.held_bodies.lock() += bytes;
        Reservation::Granted
    }

    fn release_body(&self, bytes: usize) {
        *self.held_bodies.lock() -= bytes;
    }

    fn ready(&self) -> Result<(), String> {
        self.not_ready.lock().clone().map_or(Ok(()), Err)
    }

    fn unix_ms(&self) -> u64 {
        1_800_000_000_000
    }

    fn node(&self) -> NodeSummary {
        NodeSummary {
            cluster_uuid: UUID.into(),
            node_uuid: UUID.into(),
            compatible_version: "7.6.0-1-community".into(),
            settee_version: "0.1.0".into(),
            uptime_s: 123,
            ports: Ports {
                kv: 11210,
                http: 8091,
                memcached: None,
                kv_tls: None,
                https: None,
                query: self.stands_in.lock().then_some(8093),
                search: None,
            },
            cluster: self.cluster.lock().clone(),
            memory_quota_bytes: 512 << 20,
            memory_used_bytes: 10,
            disk_used_bytes: 20,
            data_path: "/data".into(),
            purge_age_s: 259_200,
            gets_per_second: 7.6,
            hits_per_second: 7.0,
            machine: Machine {
                memory: MachineMemory {
                    total: 1000,
                    available: 400,
                    swap_total: 30,
                    swap_used: 4,
                },
                cpu: MachineCpu {
                    cores: 2,
                    user: 12.5,
                    system: 3.0,
                    irq: 0.5,
                    stolen: 1.0,
                },
                files: MachineFiles {
                    total: 5000,
                    available: 1500,
                },
            },
        }
    }

    fn samples(&self, name: &str) -> Option<std::collections::BTreeMap<String, f64>> {
        let samples = [("vb_active_num", 1024.0), ("curr_items", 3.0)];
        let samples = samples.map(|(name, value)| (name.to_owned(), value));
        self.has(name).then(|| samples.into())
    }

    fn bucket_names(&self) -> Vec<String> {
        if self.has("travel") {
            vec!["travel".into()]
        } else {
            vec![]
        }
    }

    fn bucket(&self, name: &str) -> Option<BucketSummary> {
        self.has(name).then(|| BucketSummary {
            uuid: UUID.into(),
            settings: settings_of_the_bucket(name),
            items: 3,
            memory_used_bytes: 64 << 20,
            disk_used_bytes: 20,
            disk_data_bytes: 10,
            non_resident: 1,
            replica_items: 2,
            ops_per_second: 1.5,
            fetches_per_second: 0.25,
            vbuckets: 1024,
            manifest_uid: 0,
            ready: self.ready().is_ok(),
        })
    }

    fn bucket_settings(&self, _: &str) -> Option<BucketSettings> {
        None
    }

    fn change_settings(&self, _: &str, _: &EditSettings<'_>) -> Result<(), BucketsError> {
        Err(BucketsError::Unknown)
    }

    fn change_buckets(&self, change: BucketChange) -> Result<(), BucketsError> {
        self.begun.send_modify(|begun| begun.push(change));
        let (shut, opened) = &self.shut;
        let mut shut = shut.lock();
        opened.wait_while(&mut shut, |shut| *shut);
        drop(shut);
        Err(BucketsError::Unknown)
    }

    fn active_node(&self, _: Option<&str>, _: bool) -> Option<Result<ActiveNode, String>> {
        None
    }

    fn change_cluster(&self, change: ClusterChange) -> Result<(), BucketsError> {
        self.check_disk()?;
        let mut cluster = self.cluster.lock();
        if change.memory_quota_mib.is_some_and(|mib| mib < 256) {
            return Err(BucketsError::QuotaTooSmall(256));
        }
        cluster.name = change.name.unwrap_or_default();
        cluster.memory_quota_mib = change.memory_quota_mib;
        cluster.provisioned |= change.provisioned;
        cluster.auto_compaction = change.auto_compaction;
        if let Some(asked) = change.stands_in_for {
            cluster.stands_in_for = asked;
        }
        Ok(())
    }

    fn set_external_address(&self, external: Option<AlternateAddress>) -> Result<(), BucketsError> {
        self.check_disk()?;
        self.cluster.lock().external = external;
        Ok(())
    }

    fn bucket_config(&self, name: &str) -> Option<Arc<str>> {
        let revision = self.revision();
        self.has(name).then(|| {
            let map = BucketMap {
                name: "travel",
                uuid: UUID,
                revision,
                replicas: 0,
                manifest_uid: 0,
                capabilities: BUCKET_CAPABILITIES,
                nodes: &[NODE],
                rows: MapRows::Same(1024, [0, NO_NODE, NO_NODE, NO_NODE]),
            };
            bucket_config(&map).into()
        })
    }

    fn global_config(&self) -> Arc<str> {
        global_config(self.revision(), &[NODE]).into()
    }

    fn config_changes(&self, bucket: Option<&str>) -> Option<watch::Receiver<u64>> {
        bucket
            .is_none_or(|name| self.has(name))
            .then(|| self.rev.subscribe())
    }

    fn changes(&self, _: &str, _: &ChangeSelection, _: AuthenticatedUser) -> Result<Feed, NoFeed> {
        Err(NoFeed::NoBucket)
    }

    fn manifest(&self, bucket: &str) -> Option<Arc<Manifest>> {
        self.has(bucket).then(|| Arc::clone(&self.manifest.lock()))
    }

    fn change_manifest(
        &self,
        bucket: &str,
        edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
    ) -> Option<Result<Arc<Manifest>, CollectionsError>> {
        let mut manifest = self.has(bucket).then(|| self.manifest.lock())?;
        let next = edit(&manifest).map(Arc::new);
        if let Ok(next) = &next {
            *manifest = Arc::clone(next);
        }
        Some(next.map_err(CollectionsError::Refused))
    }

    fn authority(&self) -> Option<Arc<str>> {
        Some("-----BEGIN CERTIFICATE-----\n".into())
    }

    fn reload_certificate(&self) -> Result<(), String> {
        Err("key.pem holds no key".into())
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterMember>> {
        self.member.lock().clone()
    }

    fn metrics(&self) -> String {
        "# EOF\n".into()
    }
}

/// The routes around a fake node; streams end when this is dropped.
struct Fixture {
    node: Arc<FakeNode>,
    app: Router,
    closing: watch::Sender<bool>,
}

impl Fixture {
    fn new() -> Self {
        let node = FakeNode::new();
        let (closing, receiver) = watch::channel(false);
        let app = router(Arc::clone(&node) as Arc<dyn NodeView>, receiver);
        Self { node, app, closing }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.app.clone().oneshot(request).await.unwrap()
    }

    /// Sends `GET path` with the right credentials.
    async fn get(&self, path: &str) -> Response<Body> {
        self.send(request(Method::GET, path)).await
    }

    async fn get_json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(
            response.headers()[CONTENT_TYPE],
            "application/json",
            "{path}"
        );
        serde_json::from_str(&text(response).await).unwrap()
    }
}

fn credentials(name_and_password: &str) -> String {
    format!("Basic {}", STANDARD.encode(name_and_password))
}

fn request(method: Method, path: &str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "couch.example:8091")
        .header(AUTHORIZATION, credentials("Administrator:pass:word"))
        .body(Body::empty())
        .unwrap()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

const GUARDED: [&str; 22] = [
    "/",
    "/metrics",
    "/whoami",
    "/nodes/self",
    "/clusterInit",
    "/settings/web",
    "/settings/rbac/users",
    "/pools/default/buckets/travel/stats",
    "/pools/nodes",
    "/pools/default",
    "/pools/default/nodeServices",
    "/pools/default/nodeServicesStreaming",
    "/pools/default/b/travel",
    "/pools/default/bs/travel",
    "/pools/default/bucketsStreaming/travel",
    "/pools/default/buckets",
    "/pools/default/buckets/",
    "/pools/default/buckets/travel",
    "/pools/default/buckets/travel/scopes",
    "/pools/default/buckets/travel/controller/doFlush",
    "/settings/rbac/users/local/u",
    "/no/such/path",
];

#[tokio::test]
async fn nothing_but_the_probes_answers_without_credentials() {
    let fixture = Fixture::new();
    let wrong = [
        None,
        Some(credentials("Administrator:")),
        Some(credentials("Administrator:pass")),
        Some(credentials("administrator:pass:word")),
        Some(credentials("no colon")),
        Some("Basic %%%".to_owned()),
        Some("Basic".to_owned()),
        Some(credentials("Administrator:pass:word").replace("Basic", "Bearer")),
    ];
    for path in GUARDED {
        for authorization in &wrong {
            for method in [Method::GET, Method::POST] {
                let mut request = request(method, path);
                request.headers_mut().remove(AUTHORIZATION);
                if let Some(value) = authorization {
                    request
                        .headers_mut()
                        .insert(AUTHORIZATION, value.parse().unwrap());
                }
                let response = fixture.send(request).await;
                assert_eq!(
                    response.status(),
                    StatusCode::UNAUTHORIZED,
                    "{path} {authorization:?}"
                );
                assert_eq!(
                    response.headers()[WWW_AUTHENTICATE],
                    "Basic realm=\"Settee\""
                );
            }
        }
    }
}

#[tokio::test]
async fn probes_distinguish_alive_from_ready() {
    let fixture = Fixture::new();
    let probe = |path: &str| Request::builder().uri(path).body(Body::empty()).unwrap();
    for path in ["/livez", "/readyz"] {
        assert_eq!(fixture.send(probe(path)).await.status(), StatusCode::OK);
    }
    *fixture.node.not_ready.lock() = Some("travel: 10 of 1024 vBuckets are warm".into());
    assert_eq!(fixture.send(probe("/livez")).await.status(), StatusCode::OK);
    let response = fixture.send(probe("/readyz")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        text(response).await,
        "travel: 10 of 1024 vBuckets are warm\n"
    );
}

#[tokio::test]
async fn pools_carry_a_version_that_clients_parse() {
    let fixture = Fixture::new();
    let pools = fixture.get_json("/pools").await;
    assert_eq!(fixture.get_json("/pools/").await, pools);
    let pool = fixture.get_json("/pools/default").await;
    assert_eq!(fixture.get_json("/pools/default/").await, pool);
    assert_eq!(pools["implementationVersion"], "7.6.0-1-community");
    assert_eq!(pools["pools"][0]["name"], "default");
    assert_eq!(pools["uuid"], UUID);
}

/// Checks the fields without which one client family ends its process.
fn assert_is_a_node(node: &Value) {
    for field in [
        "hostname",
        "configuredHostname",
        "status",
        "os",
        "version",
        "nodeUUID",
    ] {
        assert!(
            node[field].as_str().is_some_and(|text| !text.is_empty()),
            "{field}"
        );
    }
    assert_eq!(node["hostname"], "couch.example:8091");
    assert_eq!(node["otpNode"], "ns_1@couch.example");
    assert_eq!(node["services"], serde_json::json!(["kv"]));
    assert_eq!(node["ports"]["direct"], 11210);
    assert_eq!(node["clusterMembership"], "active");
    assert_eq!(node["clusterCompatibility"], 458_758);
    assert_eq!(node["thisNode"], true);
    assert_eq!(node["uptime"], "123");
}

#[tokio::test]
async fn every_list_of_nodes_is_complete() {
    let fixture = Fixture::new();
    for path in [
        "/pools/default",
        "/pools/nodes",
        "/pools/default/buckets/travel",
    ] {
        let value = fixture.get_json(path).await;
        assert_eq!(value["nodes"].as_array().unwrap().len(), 1, "{path}");
        assert_is_a_node(&value["nodes"][0]);
        assert_eq!(value["nodes"][0]["status"], "healthy");
    }
    *fixture.node.not_ready.lock() = Some("warming up".into());
    let pool = fixture.get_json("/pools/default").await;
    assert_eq!(pool["nodes"][0]["status"], "warmup");
    assert_eq!(pool["memoryQuota"], 512);
    assert_eq!(pool["clusterName"], "");
}

#[tokio::test]
async fn a_bucket_has_what_strict_clients_parse() {
    let fixture = Fixture::new();
    let bucket = fixture.get_json("/pools/default/buckets/travel").await;
    let expected = [
        ("name", "travel"),
        ("uuid", UUID),
        ("bucketType", "membase"),
        ("storageBackend", "couchstore"),
        ("compressionMode", "passive"),
        ("evictionPolicy", "valueOnly"),
        ("durabilityMinLevel", "persistToMajority"),
        ("conflictResolutionType", "seqno"),
        ("collectionsManifestUid", "0"),
        ("nodeLocator", "vbucket"),
    ];
    for (field, value) in expected {
        assert_eq!(bucket[field], value, "{field}");
    }
    assert_eq!(bucket["quota"]["rawRAM"], 256 << 20);
    assert_eq!(bucket["basicStats"]["itemCount"], 3);
    assert_eq!(bucket["basicStats"]["quotaPercentUsed"], 25.0);
    assert_eq!(bucket["replicaIndex"], false);
    assert_eq!(bucket["enableCrossClusterVersioning"], true);
    assert_eq!(bucket["versionPruningWindowHrs"], 48);
    assert_eq!(bucket["vbucketsMaxCas"][1023], "18446744073709551615");
    assert_eq!(
        bucket["controllers"],
        serde_json::json!({}),
        "flush is not on offer"
    );
    let map = &bucket["vBucketServerMap"];
    assert_eq!(map["vBucketMap"].as_array().unwrap().len(), 1024);
    assert_eq!(map["serverList"][0], "couch.example:11210");
    for path in ["/pools/default/buckets", "/pools/default/buckets/"] {
        let all = fixture.get_json(path).await;
        assert_eq!(all, Value::Array(vec![bucket.clone()]));
    }
}

#[tokio::test]
async fn configurations_contain_the_host_that_the_client_used() {
    let fixture = Fixture::new();
    let config = fixture.get_json("/pools/default/b/travel").await;
    assert_eq!(config["nodesExt"][0].get("hostname"), None);
    assert_eq!(config["nodes"][0]["hostname"], "couch.example:8091");
    let global = fixture.get_json("/pools/default/nodeServices").await;
    assert_eq!(global["nodesExt"][0].get("hostname"), None);
    assert_eq!(global["nodesExt"][0]["thisNode"], true);
    assert_eq!(global.get("name"), None);
}

#[tokio::test]
async fn odd_host_headers_cannot_break_the_json() {
    let fixture = Fixture::new();
    let cases = [
        ("[::1]:8091", "[::1]:11210"),
        ("192.0.2.7", "192.0.2.7:11210"),
        ("a\"b:8091", "$HOST:11210"),
        ("[::1", "$HOST:11210"),
        ("[]:1", "$HOST:11210"),
        (":8091", "$HOST:11210"),
    ];
    for (header, kv) in cases {
        let mut request = request(Method::GET, "/pools/default/b/travel");
        request.headers_mut().insert(HOST, header.parse().unwrap());
        let config: Value = serde_json::from_str(&text(fixture.send(request).await).await).unwrap();
        assert_eq!(config["vBucketServerMap"]["serverList"][0], kv, "{header}");
    }
}

#[tokio::test]
async fn missing_paths_are_404_and_unbuilt_ones_have_a_reason() {
    let fixture = Fixture::new();
    for path in [
        "/no/such/path",
        "/pools/default/b/nope",
        "/pools/default/bs/nope",
        "/pools/default/bucketsStreaming/nope",
        "/pools/default/buckets/nope",
        "/pools/default/buckets/nope/scopes",
    ] {
        let response = fixture.get(path).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(
            text(response).await,
            r#""Requested resource not found.""#,
            "{path}"
        );
    }
    for (method, path) in [
        (Method::PUT, "/pools/default/buckets"),
        (
            Method::POST,
            "/pools/default/buckets/travel/controller/startRecovery",
        ),
        (Method::PUT, "/pools/default/buckets/travel"),
        (Method::POST, "/pools"),
        (Method::PUT, "/pools/default/certificate"),
    ] {
        let response = fixture.send(request(method.clone(), path)).await;
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED, "{path}");
        let expected = format!("{method} {path} is not supported by Settee yet.");
        assert_eq!(
            serde_json::from_str::<Value>(&text(response).await).unwrap()["errors"]["_"],
            expected
        );
    }
}

/// Clients parse every answer, whatever the request was.
#[tokio::test(start_paused = true)]
async fn every_refusal_is_json() {
    let fixture = Fixture::new();
    let odd = [
        "/pools/default/buckets/%ff",
        "/changes/travel?since=%ff",
        "/changes/travel?since=never",
        "/changes/travel?scope=nope",
        "/pools/default/buckets/travel/scopes/%ff/collections",
        "/pools/default/buckets/travel/scopes?valid_on_uid=x",
        "/pools/default/buckets/nope/ddocs",
        "/settings/rbac/users/local/u",
        "/node/controller/rename",
    ];
    let (mut answers, mut refusals) = (0, 0);
    for path in GUARDED.into_iter().chain(odd) {
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            for length in [0, access::BODY_BYTES_MAX + 1] {
                let mut request = request(method.clone(), path);
                let length = length.to_string().parse().unwrap();
                request.headers_mut().insert(CONTENT_LENGTH, length);
                for known in [true, false] {
                    let mut request = Request::from_parts(request_parts(&request), Body::empty());
                    if !known {
                        request.headers_mut().remove(AUTHORIZATION);
                    }
                    let response = fixture.send(request).await;
                    answers += 1;
                    if response.status().is_success() {
                        continue;
                    }
                    refusals += 1;
                    let what = format!("{method} {path} {}", response.status());
                    assert_eq!(
                        response.headers()[CONTENT_TYPE],
                        "application/json",
                        "{what}"
                    );
                    let said: Value = serde_json::from_str(&text(response).await).expect(&what);
                    assert!(!said.is_null(), "{what}");
                }
            }
        }
    }
    assert!(
        refusals < answers && refusals > 400,
        "{refusals} of {answers}"
    );
}

/// Copies the head of a request.
fn request_parts(request: &Request<Body>) -> axum::http::request::Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = request.method().clone();
    parts.uri = request.uri().clone();
    parts.headers = request.headers().clone();
    parts
}

/// Sends calls below `scopes`, each with its body, status, and a part of the answer.
async fn scope_calls(fixture: &Fixture, calls: &[(Method, &str, &str, u16, &str)]) {
    for (method, path, body, status, said) in calls {
        let path = format!("/pools/default/buckets/travel/scopes{path}");
        let mut request = request(method.clone(), &path);
        *request.body_mut() = Body::from((*body).to_owned());
        let response = fixture.send(request).await;
        assert_eq!(
            response.status().as_u16(),
            *status,
            "{method} {path} {body}"
        );
        let text = text(response).await;
        assert!(text.contains(said), "{method} {path} {body}: {text}");
    }
}

#[tokio::test]
async fn scopes_come_and_go() {
    let fixture = Fixture::new();
    let post = || Method::POST;
    let exists = r#"Scope with name \"s\" already exists"#;
    let calls = [
        (post(), "", "name=s", 200, r#"{"uid":"1"}"#),
        (post(), "", "name=s", 400, exists),
        (post(), "", "name=_s", 400, "may not begin with _"),
        (post(), "", "", 400, "must be supplied"),
        (post(), "/@ensureManifest/1", "", 200, "{}"),
        (post(), "/@ensureManifest/2", "", 504, "no such manifest"),
        (Method::DELETE, "/_default", "", 400, "not allowed"),
        (Method::DELETE, "/s", "", 200, r#"{"uid":"2"}"#),
        (Method::DELETE, "/s", "", 404, "Scope with name"),
    ];
    scope_calls(&fixture, &calls).await;
}

#[tokio::test]
async fn a_whole_manifest_comes_at_once() {
    let fixture = Fixture::new();
    let put = || Method::PUT;
    let default = r#"{"name":"_default","collections":[{"name":"_default"}]}"#;
    let with = |scope: &str| format!(r#"{{"scopes":[{default},{scope}]}}"#);
    let shop = r#"{"name":"s","uid":"77","collections":[{"name":"c","maxTTL":9,"history":true},{"name":"d"}]}"#;
    let (first, second) = (
        with(shop),
        with(r#"{"name":"s","collections":[{"name":"c"}]}"#),
    );
    let wrong = |collection: &str| with(&format!(r#"{{"name":"s","collections":[{collection}]}}"#));
    let (ttl, history, name) = (
        wrong(r#"{"name":"c","maxTTL":-2}"#),
        wrong(r#"{"name":"c","history":1}"#),
        wrong(r#"{"name":"_c"}"#),
    );
    let twice = wrong(r#"{"name":"c"},{"name":"c"}"#);
    let calls = [
        (put(), "", &*first, 200, r#"{"uid":"1"}"#),
        (put(), "", &*first, 200, r#"{"uid":"1"}"#),
        (put(), "?valid_on_uid=2", &*second, 400, "valid_on_uid"),
        (put(), "?valid_on_uid=1", &*second, 200, r#"{"uid":"#),
        (
            put(),
            "?valid_on_uid=x",
            &*second,
            400,
            r#"{"errors":{"valid_on_uid":"#,
        ),
        (put(), "", "scopes=s", 400, "not JSON"),
        (put(), "", "{}", 400, r#"{"errors":{"scopes":"#),
        (put(), "", r#"{"scopes":[{}]}"#, 400, "scopes[0].name"),
        (
            put(),
            "",
            r#"{"scopes":[]}"#,
            400,
            "Deleting _default scope",
        ),
        (put(), "", &*ttl, 400, "scopes[1].collections[0].maxTTL"),
        (
            put(),
            "",
            &*history,
            400,
            "scopes[1].collections[0].history",
        ),
        (put(), "", &*name, 400, "may not begin with _"),
        (put(), "", &*twice, 400, "same name"),
    ];
    scope_calls(&fixture, &calls).await;
    let manifest = Arc::clone(&fixture.node.manifest.lock());
    let left: Vec<_> = manifest.collections().collect();
    assert_eq!(left.len(), 2);
    let (scope, collection) = left[1];
    assert_eq!((&*scope.name, &*collection.name), ("s", "c"));
    assert_eq!(
        collection.settings.max_ttl_s,
        Some(9),
        "what is not said stays"
    );
    assert!(collection.settings.history);
}

#[tokio::test]
async fn no_bucket_has_design_documents() {
    let fixture = Fixture::new();
    let path = "/pools/default/buckets/travel/ddocs";
    assert_eq!(
        fixture.get_json(path).await,
        serde_json::json!({ "rows": [] })
    );
}

#[tokio::test]
async fn collections_come_and_go() {
    let fixture = Fixture::new();
    let (post, here) = (|| Method::POST, "/_default/collections");
    let one = "/_default/collections/c";
    let missing = r#"Collection with name \"c\" in scope \"_default\" is not found"#;
    let calls = [
        (post(), here, "name=c&maxTTL=7", 200, r#"{"uid":"1"}"#),
        (post(), here, "name=c", 400, "already exists"),
        (post(), "/t/collections", "name=c", 404, "is not found"),
        (post(), here, "name=d&maxTTL=-2", 400, "maxTTL"),
        (Method::PATCH, one, "maxTTL=9", 200, r#"{"uid":"2"}"#),
        (Method::DELETE, one, "", 200, r#"{"uid":"3"}"#),
        (Method::DELETE, one, "", 404, missing),
        (Method::PATCH, one, "maxTTL=9", 404, missing),
    ];
    scope_calls(&fixture, &calls).await;
}

#[tokio::test]
async fn further_requests_of_sdks_are_answered() {
    let fixture = Fixture::new();
    let me = fixture.get_json("/whoami").await;
    assert_eq!(
        (&me["id"], &me["roles"][0]["role"]),
        (&"Administrator".into(), &"admin".into())
    );
    assert_eq!(fixture.get_json("/").await["name"], "settee");
    let manifest = fixture
        .get_json("/pools/default/buckets/travel/scopes")
        .await;
    assert_eq!(manifest["uid"], "0");
    assert_eq!(manifest["scopes"][0]["collections"][0]["name"], "_default");
    let metrics = fixture.get("/metrics").await;
    let kind = metrics.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert_eq!(text(metrics).await, "# EOF\n");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_unread() {
    let fixture = Fixture::new();
    for (bytes, expected) in [
        (65536, StatusCode::BAD_REQUEST),
        (65537, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let mut request = request(Method::POST, "/pools/default/buckets");
        request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
        assert_eq!(fixture.send(request).await.status(), expected, "{bytes}");
    }
}

/// Reads the next configuration of a stream.
async fn next_config(body: &mut Body) -> Option<Value> {
    let frame = body.frame().await?.unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    Some(serde_json::from_str(text.strip_suffix("\n\n\n\n").unwrap()).unwrap())
}

#[tokio::test]
async fn a_stream_sends_the_configuration_again_when_it_changes() {
    let fixture = Fixture::new();
    for path in [
        "/pools/default/bs/travel",
        "/pools/default/bucketsStreaming/travel",
    ] {
        fixture.node.rev.send_replace(1);
        let mut body = fixture.get(path).await.into_body();
        let config = next_config(&mut body).await.unwrap();
        assert_eq!(
            (&config["rev"], &config["name"]),
            (&1.into(), &"travel".into())
        );
        assert_eq!(config["nodes"][0]["hostname"], "couch.example:8091");
        // Two changes before the client reads count as one: only the newest is sent.
        fixture.node.rev.send_replace(2);
        fixture.node.rev.send_replace(3);
        assert_eq!(next_config(&mut body).await.unwrap()["rev"], 3);
    }
    let mut global = fixture
        .get("/pools/default/nodeServicesStreaming")
        .await
        .into_body();
    assert_eq!(next_config(&mut global).await.unwrap()["rev"], 3);
    fixture.node.rev.send_replace(4);
    assert_eq!(next_config(&mut global).await.unwrap()["rev"], 4);
}

#[tokio::test]
async fn a_stream_ends_with_its_bucket_and_with_the_node() {
    let fixture = Fixture::new();
    let mut body = fixture.get("/pools/default/bs/travel").await.into_body();
    assert!(next_config(&mut body).await.is_some());
    *fixture.node.bucket_is_gone.lock() = true;
    fixture.node.rev.send_replace(2);
    assert_eq!(next_config(&mut body).await, None);

    let mut global = fixture
        .get("/pools/default/nodeServicesStreaming")
        .await
        .into_body();
    assert!(next_config(&mut global).await.is_some());
    fixture.closing.send_replace(true);
    assert_eq!(next_config(&mut global).await, None);
}

#[tokio::test]
async fn streams_are_limited_and_free_their_slots() {
    let fixture = Fixture::new();
    let path = "/pools/default/nodeServicesStreaming";
    let mut open = Vec::new();
    for _ in 0..streaming::STREAMS_MAX {
        open.push(fixture.get(path).await);
    }
    assert_eq!(
        fixture.get(path).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    open.pop();
    assert_eq!(fixture.get(path).await.status(), StatusCode::OK);
}

/// A node on a real socket.
struct Served {
    node: Arc<FakeNode>,
    address: std::net::SocketAddr,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn served() -> io::Result<Served> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopping) = watch::channel(false);
    let node = FakeNode::new();
    let view = Arc::clone(&node) as Arc<dyn NodeView>;
    let door = HttpDoor::new(listener, CONNECTIONS_MAX, None);
    let doors = HttpDoors {
        http: door,
        https: None,
        query: None,
        search: None,
    };
    let task = tokio::spawn(serve(doors, view, stopping));
    Ok(Served {
        node,
        address,
        stop,
        task,
    })
}

async fn read_until(stream: &mut TcpStream, end: &str) -> io::Result<String> {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        if stream.read_buf(&mut seen).await? == 0 {
            return Err(io::Error::other("closed early"));
        }
    }
    Ok(String::from_utf8_lossy(&seen).into_owned())
}

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn shutdown_ends_open_streams_and_idle_connections() -> io::Result<()> {
    let served = served().await?;
    let mut streaming = TcpStream::connect(served.address).await?;
    let authorization = credentials("Administrator:pass:word");
    let head = format!(
        "GET /pools/default/bs/travel HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n"
    );
    streaming.write_all(head.as_bytes()).await?;
    let answer = read_until(&mut streaming, "\n\n\n\n\r\n").await?;
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
    let mut idle = TcpStream::connect(served.address).await?;
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await?;
    assert!(
        read_until(&mut idle, "ok\n")
            .await?
            .starts_with("HTTP/1.1 200")
    );

    served.stop.send_replace(true);
    time::timeout(DEADLINE, served.task).await??;
    let mut rest = String::new();
    streaming.read_to_string(&mut rest).await?;
    assert_eq!(rest, "0\r\n\r\n", "the stream ends whole");
    assert_eq!(idle.read(&mut [0; 8]).await?, 0);
    assert!(
        TcpStream::connect(served.address).await.is_err(),
        "the port is closed"
    );
    Ok(())
}

/// A client that sends its request byte by byte keeps a connection for half a minute at most.
#[tokio::test]
async fn an_unfinished_head_loses_its_connection() -> io::Result<()> {
    let served = served().await?;
    let mut slow = TcpStream::connect(served.address).await?;
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost:").await?;
    // The head has arrived before the clock is moved: another connection was served since.
    let mut other = TcpStream::connect(served.address).await?;
    other
        .write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    other.read_to_string(&mut answer).await?;
    time::pause();
    time::advance(Duration::from_secs(20)).await;
    let early = time::timeout(Duration::from_millis(1), slow.read(&mut [0; 512])).await;
    assert!(early.is_err(), "still open: {early:?}");
    time::advance(Duration::from_secs(11)).await;
    time::resume();
    let mut rest = Vec::new();
    time::timeout(DEADLINE, slow.read_to_end(&mut rest)).await??;
    assert!(
        !rest.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&rest)
    );
    Ok(())
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused() -> io::Result<()> {
    let served = served().await?;
    let mut greedy = TcpStream::connect(served.address).await?;
    let head = format!(
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(40_000)
    );
    greedy.write_all(head.as_bytes()).await?;
    let mut status = [0; 12];
    greedy.read_exact(&mut status).await?;
    assert_eq!(&status, b"HTTP/1.1 431");
    Ok(())
}
