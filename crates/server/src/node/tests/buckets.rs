//! Tests of buckets that are created, changed and dropped while the node runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use management::{BucketChange, BucketsError, ClusterChange, NodeView as _};
use model::{ConflictResolution, DurabilityLevel, VbId};
use registry::cluster_map::AlternateAddress;
use registry::{
    AutoCompaction, BucketConfig, BucketKind, BucketSettings, ClusterSettings, EvictionPolicy,
    HistorySettings,
};
use storage::KvStore as _;
use wire::{Opcode, Status};

use super::super::buckets::with_collections;
use super::super::data_dir::check_complete;
use super::super::{CheckStep, SalvageStep};
use super::client::{Client, Request, SDK, until};
use super::{Node, Waits, bucket, config, started};

fn on(place: &Path) -> Node {
    let buckets = vec![bucket("default")];
    started(&config(Some(place), buckets), Waits::default())
}

fn shop(flush_enabled: bool) -> BucketSettings {
    BucketSettings {
        bucket: BucketConfig {
            name: "shop".into(),
            quota_bytes: 64 << 20,
            kind: BucketKind::Couchbase,
            eviction: EvictionPolicy::Values,
            durability_min: Some(DurabilityLevel::Majority),
            vbuckets: None,
        },
        max_ttl_s: 1000,
        flush_enabled,
        replicas: 0,
        history: HistorySettings::default(),
        conflicts: ConflictResolution::Revision,
        compression: model::CompressionMode::Passive,
        durability_falls_back: false,
        versioning: registry::Versioning::default(),
        auto_compaction: None,
    }
}

fn make(node: &Node, settings: BucketSettings) -> Result<(), BucketsError> {
    node.state.change_buckets(BucketChange::Make(settings))
}

fn adjust(node: &Node, settings: &BucketSettings) -> Result<(), BucketsError> {
    let name = &settings.bucket.name;
    let edit = |_| Ok(settings.clone());
    node.state.change_settings(name, &edit)
}

/// Workers that went on would hold its memory and its files.
#[test]
fn bucket_that_cannot_have_collections_ends() {
    let node = started(&config(None, Vec::new()), Waits::default());
    let opened = {
        let kept = node.state.world.kept();
        node.state
            .launcher
            .open_new(shop(false), &kept, "0".repeat(32))
    };
    let opened = opened.unwrap();
    let bucket = Arc::downgrade(&opened.bucket);
    opened.bucket.store().close().unwrap();
    assert!(with_collections(opened, None).is_err());
    assert!(bucket.upgrade().is_none());
}

fn drop_shop(node: &Node) -> Result<(), BucketsError> {
    node.state.change_buckets(BucketChange::Drop("shop".into()))
}

fn flush_shop(node: &Node) -> Result<(), BucketsError> {
    let flush = BucketChange::Flush("shop".into());
    node.state.change_buckets(flush)
}

fn shopper(node: &Node) -> Client {
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("shop").ok();
    client
}

/// Addresses a key in a bucket of 128 vBuckets.
fn in_few(request: Request, key: &str) -> Request {
    request.vbucket(VbId::of_key(key.as_bytes(), 128).0)
}

fn set_in_few(node: &Node, key: &str) {
    let set = in_few(super::client::set(key, "1"), key);
    shopper(node).call(&set).ok();
}

fn get_in_few(node: &Node, key: &str) -> Vec<u8> {
    let get = in_few(Request::of(Opcode::GET, key), key);
    shopper(node).call(&get).ok().value
}

#[test]
fn a_bucket_has_as_many_vbuckets_as_it_was_made_with() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    let mut few = shop(false);
    few.bucket.vbuckets = Some(128);
    make(&node, few.clone()).unwrap();
    set_in_few(&node, "a");
    node.shutdown().unwrap();
    drop(node);
    let file = std::fs::read_to_string(place.path().join("node.json")).unwrap();
    assert!(
        file.contains("\"version\": 2"),
        "earlier releases refuse it: {file}"
    );

    let with = |vbuckets| {
        let mut configured = few.bucket.clone();
        configured.vbuckets = vbuckets;
        config(Some(place.path()), vec![bucket("default"), configured])
    };
    let refused = Node::start(with(Some(1024))).err().unwrap().to_string();
    assert_eq!(
        refused,
        "bucket shop was made with 128 vBuckets, so it cannot have 1024"
    );
    for vbuckets in [Some(128), None] {
        let node = started(&with(vbuckets), Waits::default());
        let served = node.state.registry.bucket("shop").unwrap();
        assert_eq!(served.bucket.vbuckets(), 128);
        let map: serde_json::Value = serde_json::from_str(&served.map().json).unwrap();
        let rows = map["vBucketServerMap"]["vBucketMap"].as_array();
        assert_eq!(rows.map(Vec::len), Some(128));
        assert_eq!(get_in_few(&node, "a"), b"1");
        let beyond = Request::of(Opcode::GET, "a").vbucket(128);
        shopper(&node).call(&beyond).is(Status::NOT_MY_VBUCKET);
        drop(served);
        node.shutdown().unwrap();
    }
    let node = on(place.path());
    drop_shop(&node).unwrap();
    make(&node, shop(false)).unwrap();
    let served = node.state.registry.bucket("shop").unwrap();
    assert_eq!(served.bucket.vbuckets(), 1024, "another bucket");
    drop(served);
    node.shutdown().unwrap();
}

#[test]
fn a_bucket_that_was_made_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(false)).unwrap();
    assert_eq!(make(&node, shop(true)), Err(BucketsError::Exists));
    let mut client = shopper(&node);
    client.set("a", "1").ok();
    let uuid = node.state.registry.bucket("shop").unwrap().uuid.clone();
    drop(client);
    node.shutdown().unwrap();

    let node = on(place.path());
    let served = node.state.registry.bucket("shop").unwrap();
    assert_eq!(served.uuid, uuid);
    assert_eq!(served.settings(), shop(false));
    assert_eq!(served.bucket.vb_config().max_ttl_s, 1000);
    let mut more = shop(true);
    more.bucket.quota_bytes = 80 << 20;
    adjust(&node, &more).unwrap();
    assert_eq!(served.bucket.memory().quota(), 80 << 20);
    assert_eq!(shopper(&node).get("a").ok().value, b"1");
    drop(served);
    node.shutdown().unwrap();

    let node = on(place.path());
    assert_eq!(node.state.bucket_settings("shop"), Some(more));
    node.shutdown().unwrap();
}

#[test]
fn a_dropped_bucket_ends_its_connections_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    assert_eq!(drop_shop(&node), Err(BucketsError::Unknown));
    make(&node, shop(false)).unwrap();
    let mut client = shopper(&node);
    client.set("a", "1").ok();
    let mut elsewhere = Client::ready(node.ports().kv);
    let before = node.state.registry.bucket("shop").unwrap().map().revision;
    let store = place.path().join("buckets/shop");
    assert!(store.exists());

    drop_shop(&node).unwrap();
    client.expect_end();
    elsewhere.set("b", "2").ok();
    elsewhere.select("shop").is(Status::EACCESS);
    assert!(!store.exists());

    make(&node, shop(false)).unwrap();
    assert!(node.state.registry.bucket("shop").unwrap().map().revision > before);
    shopper(&node).get("a").is(Status::KEY_ENOENT);
    drop_shop(&node).unwrap();
    node.shutdown().unwrap();
    let node = on(place.path());
    assert_eq!(node.state.bucket_names(), ["default"]);
    node.shutdown().unwrap();
}

#[test]
fn the_store_of_a_bucket_that_is_not_served_is_not_touched() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    let path = place.path().join("buckets/shop");
    std::fs::create_dir_all(&path).unwrap();
    let occupied = Err(BucketsError::Occupied(path.clone()));
    assert_eq!(make(&node, shop(false)), occupied);
    assert!(path.exists());
    assert_eq!(node.state.bucket_names(), ["default"]);
    node.shutdown().unwrap();
}

#[test]
fn a_flush_removes_documents_and_keeps_collections() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(false)).unwrap();
    assert_eq!(flush_shop(&node), Err(BucketsError::FlushDisabled));
    adjust(&node, &shop(true)).unwrap();
    let changed = node
        .state
        .change_manifest("shop", &|now| now.with_scope("goods"));
    changed.unwrap().unwrap();
    let mut client = shopper(&node);
    client.set("a", "1").ok();
    let served = node.state.registry.bucket("shop").unwrap();
    let history = |id| {
        let uuid = |vb: &mut engine::VBucket| vb.failover_log().newest().uuid;
        served.bucket.with_vbucket(VbId(id), uuid).unwrap()
    };
    let all = || (0..1024).map(history).collect::<Vec<_>>();
    let before = all();

    flush_shop(&node).unwrap();
    client.get("a").is(Status::KEY_ENOENT);
    // A vBucket with nothing but the collections counts as empty.
    let changed = all()
        .iter()
        .zip(&before)
        .filter(|(is, was)| is != was)
        .count();
    assert_eq!(changed, 1);
    client.set("a", "2").ok();
    let manifest = client.call(&Request::new(Opcode::COLLECTIONS_GET_MANIFEST));
    assert!(manifest.ok().text().contains("goods"));
    drop((client, served));
    node.shutdown().unwrap();

    let node = on(place.path());
    assert_eq!(shopper(&node).get("a").ok().value, b"2");
    node.shutdown().unwrap();
}

/// The scan may begin before the bucket is emptied: its last flush makes the change durable.
#[test]
fn a_scan_that_waits_for_changes_ends_when_the_bucket_is_emptied() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(true)).unwrap();
    let mut client = shopper(&node);
    let vb = VbId::of_key(b"a", 1024).0;
    let mut admin = shopper(&node);
    let served = node.state.registry.bucket("shop").unwrap();
    admin.call(&Request::new(Opcode::STOP_PERSISTENCE)).ok();
    client.set("a", "2").ok();
    let range = r#"{"range":{"start":"","end":"/w=="}}"#;
    let scan = Request::new(Opcode::RANGE_SCAN_CREATE).vbucket(vb);
    client.send(&scan.datatype(1).value(range).bytes());
    until("the scan waits", || {
        served.bucket.persistence_waiters() == 1
    });
    flush_shop(&node).unwrap();
    admin.call(&Request::new(Opcode::START_PERSISTENCE)).ok();
    let ends = [
        Status::KEY_ENOENT,
        Status::RANGE_SCAN_CANCELLED,
        Status::SUCCESS,
    ];
    let status = client.answer().status;
    assert!(ends.contains(&status), "{status}");
    assert_eq!(served.bucket.persistence_waiters(), 0);
    drop((client, admin, served));
    node.shutdown().unwrap();
}

/// The awaited seqno may be of a change that is lost, and the new history gives it to another one.
#[test]
fn a_wait_for_persistence_is_refused_when_the_bucket_is_emptied() {
    let place = tempfile::tempdir().unwrap();
    let waits = Waits {
        persistence: Duration::from_hours(1),
        ..Waits::default()
    };
    let buckets = vec![bucket("default")];
    let node = started(&config(Some(place.path()), buckets), waits);
    make(&node, shop(true)).unwrap();
    let served = node.state.registry.bucket("shop").unwrap();
    let mut client = shopper(&node);
    client.set("a", "1").ok();
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).extras(&99_u64.to_be_bytes());
    let vb = VbId::of_key(b"a", 1024).0;
    client.send(&wait.vbucket(vb).bytes());
    until("the request waits", || {
        served.bucket.persistence_waiters() == 1
    });
    flush_shop(&node).unwrap();
    client.answer().is(Status::ETMPFAIL);
    assert_eq!(served.bucket.persistence_waiters(), 0);
    drop((client, served));
    node.shutdown().unwrap();
}

#[test]
fn a_refused_start_leaves_other_buckets_clean() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(false)).unwrap();
    let mut toys = shop(false);
    toys.bucket.name = "toys".into();
    make(&node, toys).unwrap();
    shopper(&node).set("a", "1").ok();
    node.shutdown().unwrap();
    drop(node);
    let of = |bucket: &str, file: &str| place.path().join("buckets").join(bucket).join(file);
    let whole = std::fs::read(of("toys", "MANIFEST")).unwrap();
    std::fs::write(of("toys", "MANIFEST"), "damaged").unwrap();
    let refused = Node::start(config(Some(place.path()), vec![bucket("default")]));
    assert!(refused.is_err());
    let shop = place.path().join("buckets/shop");
    let (store, opened) = storage::DiskStore::open(&shop, storage::DiskOptions::default()).unwrap();
    assert!(opened.clean, "its stop was a clean one");
    drop(store);
    std::fs::write(of("toys", "MANIFEST"), whole).unwrap();
    let node = on(place.path());
    assert_eq!(shopper(&node).get("a").ok().value, b"1");
}

#[test]
fn settings_that_cannot_be_written_change_nothing() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(true)).unwrap();
    let mut more = shop(true);
    more.bucket.quota_bytes = 80 << 20;
    more.max_ttl_s = 77;
    let in_the_way = place.path().join("node.json.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(matches!(adjust(&node, &more), Err(BucketsError::Failed(_))));
    let served = node.state.registry.bucket("shop").unwrap();
    assert_eq!(served.settings(), shop(true));
    assert_eq!(served.bucket.memory().quota(), 64 << 20);
    assert_eq!(served.bucket.vb_config().max_ttl_s, 1000);
    std::fs::remove_dir(&in_the_way).unwrap();
    adjust(&node, &more).unwrap();
    assert_eq!(served.settings(), more);
    drop(served);
    node.shutdown().unwrap();
}

#[test]
fn a_salvaged_directory_is_the_same_node() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    let mut few = shop(true);
    few.bucket.vbuckets = Some(128);
    make(&node, few.clone()).unwrap();
    set_in_few(&node, "a");
    let uuids = |node: &Node| {
        let all = node.state.all_buckets();
        let of: Vec<String> = all.iter().map(|served| served.uuid.clone()).collect();
        (node.state.uuid.clone(), of)
    };
    let known = uuids(&node);
    node.shutdown().unwrap();
    drop(node);
    let copy = |to: &Path| {
        let mut told = Vec::new();
        super::super::salvage(place.path(), to, None, &mut |step| {
            told.push(format!("{step:?}"));
        })
        .unwrap();
        told
    };
    let copied = tempfile::tempdir().unwrap();
    let told = copy(copied.path());
    assert_eq!(told.len(), 1, "{told:?}");
    let node = on(copied.path());
    assert_eq!(uuids(&node), known);
    assert_eq!(get_in_few(&node, "a"), b"1");
    let kept = node.state.bucket_settings("shop").unwrap();
    assert_eq!(kept, few);
    node.shutdown().unwrap();
    drop(node);

    std::fs::write(place.path().join("node.json"), "").unwrap();
    assert!(Node::start(config(Some(place.path()), vec![bucket("default")])).is_err());
    let copied = tempfile::tempdir().unwrap();
    let told = copy(copied.path());
    assert!(told[0].contains("NodeLost"), "{told:?}");
    let node = on(copied.path());
    assert_ne!(uuids(&node), known);
    assert_eq!(get_in_few(&node, "a"), b"1");
    node.shutdown().unwrap();
}

#[test]
fn only_a_node_alone_starts_on_a_salvaged_copy_that_lacks_data() {
    let place = tempfile::tempdir().unwrap();
    let served = on(place.path());
    make(&served, shop(true)).unwrap();
    served.shutdown().unwrap();
    drop(served);
    let copy = || {
        let (to, mut told) = (tempfile::tempdir().unwrap(), String::new());
        let mut each = |step: SalvageStep<'_>| told = format!("{step:?}");
        super::super::salvage(place.path(), to.path(), None, &mut each).unwrap();
        (to, told)
    };
    // No node listens there: a replica starts all the same.
    let active = crate::ReplicaOf {
        host: "127.0.0.1".to_owned(),
        port: 1,
        username: "Administrator".to_owned(),
        password: "password".into(),
        bucket: "default".to_owned(),
        tls: None,
        demote: true,
    };
    let start = |at: &Path, follows: bool| {
        let mut settings = config(Some(at), vec![bucket("default")]);
        settings.replica_of = follows.then(|| active.clone());
        Node::start(settings).map(|node| node.shutdown().unwrap())
    };
    let (whole, told) = copy();
    assert!(told.contains("Bucket("), "{told}");
    start(whole.path(), true).unwrap();
    assert!(check_complete(whole.path(), "cluster blue").is_ok());

    for entry in std::fs::read_dir(place.path().join("buckets/shop")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() != "MANIFEST" {
            std::fs::remove_file(path).unwrap();
        }
    }
    let (partial, told) = copy();
    assert!(told.contains("Incomplete("), "{told}");
    let refusal = start(partial.path(), true).unwrap_err().to_string();
    assert!(refusal.contains("INCOMPLETE"), "{refusal}");
    assert!(check_complete(partial.path(), "cluster blue").is_err());
    start(partial.path(), false).unwrap();
    std::fs::remove_file(partial.path().join("INCOMPLETE")).unwrap();
    start(partial.path(), true).unwrap();
}

#[test]
fn no_node_starts_on_a_copy_of_a_salvage_that_did_not_end() {
    let place = tempfile::tempdir().unwrap();
    let served = on(place.path());
    make(&served, shop(true)).unwrap();
    served.shutdown().unwrap();
    let to = tempfile::tempdir().unwrap();
    let salvage = std::panic::AssertUnwindSafe(|| {
        let mut each = |_: SalvageStep<'_>| panic!("the salvage ends here");
        super::super::salvage(place.path(), to.path(), None, &mut each)
    });
    assert!(std::panic::catch_unwind(salvage).is_err());
    let start = || Node::start(config(Some(to.path()), vec![bucket("default")]));
    let refusal = start().err().unwrap().to_string();
    assert!(refusal.contains("salvage did not end"), "{refusal}");
    std::fs::remove_file(to.path().join("INCOMPLETE")).unwrap();
    start().unwrap().shutdown().unwrap();
}

#[test]
fn a_salvage_needs_an_empty_directory() {
    let place = tempfile::tempdir().unwrap();
    on(place.path()).shutdown().unwrap();
    let to = tempfile::tempdir().unwrap();
    let copy = || super::super::salvage(place.path(), to.path(), None, &mut |_| {});
    // A file system's own directory does not count.
    std::fs::create_dir(to.path().join("lost+found")).unwrap();
    std::fs::write(to.path().join("notes.txt"), "").unwrap();
    let refused = copy().unwrap_err().to_string();
    assert!(refused.contains("notes.txt exists"), "{refused}");
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 2);
    std::fs::remove_file(to.path().join("notes.txt")).unwrap();
    copy().unwrap();
    on(to.path()).shutdown().unwrap();
}

/// Returns the results of a check: number of damages, the last one as a line, names of checked items.
fn checked(path: &Path) -> (usize, String, Vec<String>) {
    let (mut damages, mut line, mut names) = (0, String::new(), Vec::new());
    super::super::check(path, None, &mut |step| match step {
        CheckStep::Progress(..) => {}
        CheckStep::NodeDamaged(why) => {
            damages += 1;
            line = why;
        }
        CheckStep::Bucket(name, checked) => {
            damages += checked.damaged.len();
            line.extend(checked.damaged.last().map(ToString::to_string));
            names.push(name.to_owned());
        }
        CheckStep::BucketFailed(_, error) => line = error.to_string(),
    })
    .unwrap();
    (damages, line, names)
}

#[test]
fn a_check_reads_a_node_or_a_bucket_and_reports_damage() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(true)).unwrap();
    let (_, line, _) = checked(place.path());
    assert!(line.contains("in use"), "{line}");
    node.shutdown().unwrap();
    drop(node);
    let bucket = place.path().join("buckets/shop");
    let whole = |names: &[&str]| {
        (
            0,
            String::new(),
            names.iter().map(ToString::to_string).collect(),
        )
    };
    assert_eq!(checked(&bucket), whole(&["shop"]));
    let (damages, _, all) = checked(place.path());
    assert!(damages == 0 && all.contains(&"shop".to_owned()), "{all:?}");
    std::fs::write(bucket.join("TAIL"), "").unwrap();
    let (damages, line, _) = checked(&bucket);
    assert!(damages == 1 && line.contains("shop/TAIL"), "{line}");
    std::fs::write(place.path().join("node.json"), "").unwrap();
    assert_eq!(checked(place.path()).0, 2);
}

fn purging_at(seconds: u64) -> AutoCompaction {
    AutoCompaction {
        purge_s: Some(seconds),
        ..AutoCompaction::default()
    }
}

/// The purge age of tombstones is that of the bucket, of the node, or of the command line; after a restart, too. A
/// bucket without a disk, like the default one here, has a minute.
#[test]
fn tombstones_are_purged_at_the_age_that_was_set() {
    let place = tempfile::tempdir().unwrap();
    let ages = |node: &Node| {
        let age = |name| {
            node.state
                .registry
                .bucket(name)
                .unwrap()
                .bucket
                .purge_age_s()
        };
        (age("default"), age("shop"))
    };
    let node = on(place.path());
    make(&node, shop(false)).unwrap();
    let from_start = node.state.node().purge_age_s;
    assert_eq!(ages(&node), (60, from_start));
    let of_node = ClusterChange {
        auto_compaction: Some(purging_at(86_400)),
        ..ClusterChange::default()
    };
    node.state.change_cluster(of_node).unwrap();
    assert_eq!(ages(&node), (60, 86_400));
    let mut own = node.state.bucket_settings("shop").unwrap();
    own.auto_compaction = Some(purging_at(3600));
    adjust(&node, &own).unwrap();
    assert_eq!(ages(&node), (60, 3600));
    node.shutdown().unwrap();

    let node = on(place.path());
    assert_eq!(ages(&node), (60, 3600));
    let mut plain = node.state.bucket_settings("shop").unwrap();
    plain.auto_compaction = None;
    adjust(&node, &plain).unwrap();
    assert_eq!(ages(&node), (60, 86_400));
    node.shutdown().unwrap();
}

/// Settings of the whole node apply at once, and after a restart.
#[test]
fn buckets_fit_into_the_quota_of_the_node() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    let taken_mib = node.state.node().memory_quota_bytes >> 20;
    let limit = |node: &Node, mib| {
        node.state.change_cluster(ClusterChange {
            name: Some("my couch".into()),
            memory_quota_mib: Some(mib),
            ..ClusterChange::default()
        })
    };
    let too_small = Err(BucketsError::QuotaTooSmall(taken_mib));
    assert_eq!(limit(&node, taken_mib - 1), too_small);
    assert_eq!(node.state.node().cluster, ClusterSettings::default());
    limit(&node, taken_mib + 63).unwrap();
    let too_large = Err(BucketsError::QuotaTooLarge(taken_mib + 63));
    assert_eq!(make(&node, shop(false)), too_large);
    limit(&node, taken_mib + 64).unwrap();
    make(&node, shop(false)).unwrap();
    node.shutdown().unwrap();

    let node = on(place.path());
    assert_eq!(node.state.node().cluster.name, "my couch");
    let mut more = shop(false);
    more.bucket.quota_bytes += 1 << 20;
    let too_large = Err(BucketsError::QuotaTooLarge(taken_mib + 64));
    assert_eq!(adjust(&node, &more), too_large);
    limit(&node, taken_mib + 65).unwrap();
    adjust(&node, &more).unwrap();
    node.shutdown().unwrap();
}

#[test]
fn one_bucket_too_many_is_refused_with_the_limit() {
    let place = tempfile::tempdir().unwrap();
    let mut config = config(Some(place.path()), vec![bucket("default")]);
    config.buckets_max = 2;
    let node = started(&config, Waits::default());
    make(&node, shop(false)).unwrap();
    let mut another = shop(false);
    another.bucket.name = "another".into();
    let refused = make(&node, another.clone()).unwrap_err();
    assert_eq!(refused.to_string(), "Cannot create more than 2 buckets");
    drop_shop(&node).unwrap();
    make(&node, another).unwrap();
    node.shutdown().unwrap();
}

/// Returns names and ids of the system collections.
fn system_collections(node: &Node, bucket: &str) -> Vec<(String, u32)> {
    let manifest = node.state.manifest(bucket).unwrap();
    let system = manifest.scope_named("_system");
    let collections = system.into_iter().flat_map(|scope| &scope.collections);
    let collections = collections.map(|one| (one.name.to_string(), one.id.0));
    collections.collect()
}

/// A new bucket has them from its creation, one of an older version from the next start on: in each vBucket.
#[test]
fn every_bucket_has_the_collections_of_the_system() {
    let expected = [("_mobile".to_owned(), 8), ("_query".to_owned(), 9)];
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(false)).unwrap();
    assert_eq!(system_collections(&node, "shop"), expected);
    let served = node.state.registry.bucket("shop").unwrap();
    assert!(
        served
            .map()
            .json
            .contains("\"collectionsManifestUid\":\"1\"")
    );
    drop(served);
    assert_eq!(system_collections(&node, "default"), []);
    let before = node.state.registry.bucket("default").unwrap().map();
    node.complete_collections();
    assert_eq!(system_collections(&node, "default"), expected);
    let served = node.state.registry.bucket("default").unwrap();
    assert!(served.map().revision > before.revision);
    let high = served
        .bucket
        .with_vbucket(VbId(1023), |vbucket| vbucket.high_seqno().0);
    assert_eq!(high, Some(3));
    // Nothing is left to do.
    let revision = served.map().revision;
    node.complete_collections();
    assert_eq!(served.map().revision, revision);
    drop(served);
    node.shutdown().unwrap();

    let node = on(place.path());
    assert_eq!(system_collections(&node, "shop"), expected);
    node.shutdown().unwrap();
}

#[test]
fn last_write_wins_survives_a_restart() {
    const FORCE_ACCEPT: u32 = 2;
    let place = tempfile::tempdir().unwrap();
    let mut settings = shop(false);
    settings.conflicts = ConflictResolution::LastWrite;
    let put = |rev: u64, cas: u64, options: u32| {
        let numbers = [[0; 8], rev.to_be_bytes(), cas.to_be_bytes()].concat();
        let extras = [numbers, options.to_be_bytes().to_vec()].concat();
        let request = Request::new(Opcode::SET_WITH_META).key(b"\0k");
        request.extras(&extras).value("x")
    };
    let node = on(place.path());
    make(&node, settings.clone()).unwrap();
    let mut client = shopper(&node);
    client.call(&put(9, 100, 0)).is(Status::EINVAL);
    client.call(&put(9, 100, FORCE_ACCEPT)).ok();
    drop(client);
    node.shutdown().unwrap();

    let node = on(place.path());
    assert_eq!(node.state.bucket_settings("shop"), Some(settings));
    let mut client = shopper(&node);
    let older = client.call(&put(10, 99, FORCE_ACCEPT));
    older.is(Status::KEY_EEXISTS);
    client.call(&put(1, 101, FORCE_ACCEPT)).ok();
    drop(client);
    node.shutdown().unwrap();
}

#[test]
fn an_address_for_clients_outside_is_in_every_map_and_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    let external = AlternateAddress {
        hostname: "outside".into(),
        ports: [("kv".to_owned(), 31_210)].into(),
    };
    let told = "\"external\":{\"hostname\":\"outside\",\"ports\":{\"kv\":31210}}";
    let before = node
        .state
        .registry
        .bucket("default")
        .unwrap()
        .map()
        .revision;
    node.state.set_external_address(Some(external)).unwrap();
    assert!(
        node.state
            .registry
            .bucket("default")
            .unwrap()
            .map()
            .revision
            > before
    );
    make(&node, shop(false)).unwrap();
    let maps = |node: &Node| {
        let config = |name| node.state.bucket_config(name).unwrap();
        [
            config("default"),
            config("shop"),
            node.state.global_config(),
        ]
    };
    assert!(maps(&node).iter().all(|map| map.contains(told)));
    node.shutdown().unwrap();

    let node = on(place.path());
    assert!(maps(&node).iter().all(|map| map.contains(told)));
    node.state.set_external_address(None).unwrap();
    assert!(!maps(&node).iter().any(|map| map.contains("outside")));
    node.shutdown().unwrap();
}

#[test]
fn changed_settings_of_a_running_bucket_apply_and_survive() {
    let place = tempfile::tempdir().unwrap();
    let config = |buckets| config(Some(place.path()), buckets);
    let mut configured = bucket("default");
    configured.kind = BucketKind::Couchbase;
    configured.eviction = EvictionPolicy::Values;
    let node = started(&config(vec![configured.clone()]), Waits::default());
    let mut client = Client::ready(node.ports().kv);
    let settings = |node: &Node| node.state.bucket_settings("default").unwrap();
    let served = node.state.registry.bucket("default").unwrap();
    let mut other = settings(&node);
    other.max_ttl_s = 1000;
    other.bucket.eviction = EvictionPolicy::Documents;
    other.bucket.durability_min = Some(DurabilityLevel::MajorityAndPersistOnActive);
    other.compression = model::CompressionMode::Off;
    other.durability_falls_back = true;
    other.flush_enabled = true;
    other.replicas = 2;
    adjust(&node, &other).unwrap();
    let expires = |client: &mut Client| {
        client.set("a", "1").ok();
        let vb = VbId::of_key(b"a", 1024);
        let now = node.state.clock.now();
        let meta = served
            .bucket
            .with_vbucket(vb, |vbucket| vbucket.get_meta(b"\0a", now));
        match meta {
            Some(Ok(engine::Outcome::Done(found))) => found.meta.expiry > 0,
            other => panic!("{other:?}"),
        }
    };
    assert!(expires(&mut client));
    assert_eq!(served.bucket.eviction(), EvictionPolicy::Documents);
    assert!(served.bucket.vb_config().durability_falls_back);
    assert!(!served.bucket.keeps_compressed());
    let level = served.bucket.vb_config().durability_min;
    assert_eq!(level, Some(DurabilityLevel::MajorityAndPersistOnActive));
    drop((client, served));
    node.shutdown().unwrap();

    // A flag that changed since overrides its own setting, and no other.
    let node = started(&config(vec![configured.clone()]), Waits::default());
    assert_eq!(settings(&node), other);
    node.shutdown().unwrap();
    configured.quota_bytes = 72 << 20;
    other.bucket.quota_bytes = 72 << 20;
    let node = started(&config(vec![configured]), Waits::default());
    assert_eq!(settings(&node), other);
    let served = node.state.registry.bucket("default").unwrap();
    assert_eq!(served.bucket.vb_config().max_ttl_s, 1000);
    assert_eq!(served.bucket.eviction(), EvictionPolicy::Documents);
    assert!(!served.bucket.keeps_compressed());
    node.shutdown().unwrap();
}

#[test]
fn a_durable_write_falls_back_to_one_node_if_configured() {
    let node = started(&config(None, vec![bucket("default")]), Waits::default());
    let mut client = Client::ready(node.ports().kv);
    let vb = VbId::of_key(b"a", 1024).0;
    let alone = Request::new(Opcode::SET_VBUCKET).vbucket(vb).datatype(1);
    let alone = alone.extras(&[1]).value(r#"{"topology":[["here",null]]}"#);
    client.call(&alone).ok();
    // Durability is frame info 1; the level is a majority.
    let durable = super::client::set("a", "1").infos(&[0x11, 1]);
    let falls_back = |falls_back| {
        let mut settings = node.state.bucket_settings("default").unwrap();
        settings.durability_falls_back = falls_back;
        adjust(&node, &settings).unwrap();
    };
    client.call(&durable).is(Status::DURABILITY_IMPOSSIBLE);
    falls_back(true);
    client.call(&durable).ok();
    assert_eq!(client.get("a").ok().value, b"1");
    falls_back(false);
    client.call(&durable).is(Status::DURABILITY_IMPOSSIBLE);
    drop(client);
    node.shutdown().unwrap();
}

#[test]
fn versioning_records_its_begin_once() {
    let place = tempfile::tempdir().unwrap();
    let node = on(place.path());
    make(&node, shop(false)).unwrap();
    let mut client = shopper(&node);
    let vb = VbId::of_key(b"a", 1024);
    let before = client.set("a", "1").ok().cas;
    let mut settings = node.state.bucket_settings("shop").unwrap();
    settings.versioning.enabled = true;
    settings.versioning.pruning_hours = 48;
    adjust(&node, &settings).unwrap();
    let noted = node.state.bucket_settings("shop").unwrap();
    assert_eq!(noted.versioning.max_cas.len(), 1024);
    assert_eq!(noted.versioning.max_cas[usize::from(vb.0)], before);

    // Later writes, settings with and without it, and a restart do not change it.
    assert!(client.set("a", "2").ok().cas > before);
    adjust(&node, &noted).unwrap();
    adjust(&node, &settings).unwrap();
    drop(client);
    node.shutdown().unwrap();
    let node = on(place.path());
    assert_eq!(node.state.bucket_settings("shop"), Some(noted));
    node.shutdown().unwrap();
}

#[test]
fn compression_off_stores_and_sends_values_plain() {
    let node = started(&config(None, vec![bucket("default")]), Waits::default());
    let served = node.state.registry.bucket("default").unwrap();
    let features: Vec<_> = SDK.into_iter().chain([wire::Feature::SNAPPY]).collect();
    let mut client = Client::with(node.ports().kv, &features);
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(500));
    let packed = value::compress(text.as_bytes()).unwrap();
    let set = |key: &str| super::client::set(key, &packed).datatype(2);
    client.call(&set("kept")).ok();
    assert_eq!(client.get("kept").ok().datatype, 3);
    let mode = |mode| {
        let mut settings = served.settings();
        settings.compression = mode;
        adjust(&node, &settings).unwrap();
    };
    mode(model::CompressionMode::Off);
    client.call(&set("plain")).ok();
    for key in ["kept", "plain"] {
        let got = client.get(key).ok();
        assert_eq!(
            (got.datatype, got.value.as_slice()),
            (1, text.as_bytes()),
            "{key}"
        );
    }
    mode(model::CompressionMode::Passive);
    assert_eq!(client.get("kept").ok().datatype, 3);
    assert_eq!(client.get("plain").ok().datatype, 1, "stored plain");
    drop((client, served));
    node.shutdown().unwrap();
}
