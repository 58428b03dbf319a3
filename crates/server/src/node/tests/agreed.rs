//! Tests of changes that a cluster has to agree on.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::BucketId;
use cluster::agreed::View;
use collections::{CollectionSettings, Manifest};
use identity::{Directory, Roster, UserRecord};
use management::{BucketChange, BucketsError, NodeView as _, UsersError};
use registry::cluster::{AgreedChange, ChangeError, ClusterMember as _};
use registry::collections::{CollectionsError, change, of_json, to_bytes};
use registry::fake_member::{FakeMember, written};
use registry::{BucketSettings, Waits, bucket_id};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::client::until;
use super::cluster::clustered;
use super::{bucket, config, started};

#[test]
fn node_that_just_started_reads_the_state_of_the_cluster_before_it_answers() {
    let (node, member) = clustered();
    let known = member.view();
    member.edit(|view, _| *view = View::default());
    let before = member.reads.load(Ordering::Relaxed);
    let reader = Arc::clone(&member);
    let late = std::thread::spawn(move || {
        // Until the change is asked for.
        while reader.reads.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        reader.edit(|view, _| *view = View::clone(&known));
    });
    let dropped = BucketChange::Drop("default".to_owned());
    let state = Arc::clone(&node.state);
    *member.apply.lock() = Some(Box::new(move |_| state.drop_bucket("default").unwrap()));
    assert_eq!(node.state.change_buckets(dropped), Ok(()));
    assert!(matches!(
        member.changes.lock().pop(),
        Some(AgreedChange::DropBucket(name)) if name == "default"
    ));
    late.join().unwrap();
    *member.apply.lock() = None;
    node.shutdown().unwrap();
}

#[test]
fn buckets_collections_and_users_are_agreed_on_before_they_change() {
    let (node, member) = clustered();
    let state = &node.state;
    let made = |name: &str| BucketChange::Make(BucketSettings::from(bucket(name)));
    assert_eq!(
        state.change_buckets(made("default")),
        Err(BucketsError::Exists)
    );
    let dropped = state.change_buckets(BucketChange::Drop("other".into()));
    assert_eq!(
        dropped,
        Err(BucketsError::Unknown),
        "it is not the cluster's"
    );
    let flushed = state.change_buckets(BucketChange::Flush("default".into()));
    assert_eq!(flushed, Err(BucketsError::FlushDisabled));
    assert!(member.changes.lock().is_empty());
    state.change_buckets(made("new")).unwrap();
    let asked = member.changes.lock().pop();
    assert!(
        matches!(asked, Some(AgreedChange::MakeBucket(settings)) if settings.bucket.name == "new")
    );
    *member.refuse.lock() = Some(ChangeError::Unavailable("etcd is away".into()));
    let refused = state.change_buckets(made("new")).unwrap_err();
    assert_eq!(refused, BucketsError::Unavailable("etcd is away".into()));

    put_settings(&member, &BucketSettings::from(bucket("default")));
    // An agreed change is applied when the call returns, and a conflict is retried.
    let (registry, etcd) = (Arc::clone(&state.registry), Arc::clone(&member));
    *member.apply.lock() = Some(Box::new(move |change| match change {
        AgreedChange::Manifest { bucket, text, .. } => {
            let manifest = of_json(text.as_bytes()).unwrap();
            let served = registry.bucket(bucket).unwrap();
            let set = |_: &Manifest| Ok(manifest.clone());
            let changed = served.bucket.change_manifest(set, to_bytes);
            assert!(changed.is_ok());
            agree_on(&etcd, text);
        }
        AgreedChange::Users { text, .. } => {
            registry::take_users(&registry, text.as_bytes()).unwrap();
        }
        other => panic!("{other:?}"),
    }));
    *member.refuse.lock() = Some(ChangeError::Conflict("later".into()));
    let edit = |now: &Manifest| now.with_scope("shop");
    let manifest = state.change_manifest("default", &edit).unwrap().unwrap();
    let uid = manifest.uid().0;
    assert!(manifest.scopes().iter().any(|scope| *scope.name == *"shop"));
    let again = state.change_manifest("default", &edit).unwrap();
    assert!(matches!(again, Err(CollectionsError::Refused(_))));
    *member.refuse.lock() = Some(ChangeError::Conflict("later".into()));
    // Another member's change came first.
    let late = manifest.with_scope("late").unwrap();
    agree_on(&member, &String::from_utf8(to_bytes(&late)).unwrap());
    let below =
        |now: &Manifest| now.with_collection("late", "hotel", CollectionSettings::default());
    let made = state.change_manifest("default", &below).unwrap();
    assert_eq!(made.unwrap().uid().0, uid + 2);
    let changed = state.change_users(&mut |directory| {
        directory.users.insert("ada", &UserRecord::default());
        true
    });
    changed.unwrap();
    assert_eq!(state.identity.directory().users.all().len(), 1);

    // Over KV a connection cannot wait for etcd.
    let served = state.registry.bucket("default").unwrap();
    let refused = change(&state.registry, &served, &|now| now.with_scope("more"));
    assert!(matches!(refused, Err(CollectionsError::NotNow(_))));
    let same = change(&state.registry, &served, &|now| Ok(now.clone()));
    assert_eq!(same.unwrap().uid().0, uid + 2);
    *member.apply.lock() = None;
    drop(served);
    node.shutdown().unwrap();
}

/// Writes the settings of the bucket `default` to etcd; returns the revision.
fn put_settings(member: &FakeMember, settings: &BucketSettings) -> u64 {
    let id = bucket_id(&member.view(), "default").unwrap();
    let settings = serde_json::to_value(settings).unwrap();
    member.edit(|view, revision| {
        let mut spec = view.specs[&id].value.clone();
        spec.settings = settings;
        view.specs.insert(id, written(revision, spec));
    });
    member.view().revision
}

/// Writes the manifest of the bucket `default` to etcd.
fn agree_on(member: &FakeMember, text: &str) {
    let id = bucket_id(&member.view(), "default").unwrap();
    member.edit(|view, revision| {
        view.manifests.insert(id, written(revision, text.into()));
    });
}

#[test]
fn a_bucket_that_is_made_anew_gets_no_collections_of_the_one_before() {
    let (node, member) = clustered();
    put_settings(&member, &BucketSettings::from(bucket("default")));
    let state = &node.state;
    let served = state.registry.bucket("default").unwrap();
    let old = |now: &Manifest| now.with_scope("old");
    assert!(served.bucket.change_manifest(old, to_bytes).is_ok());
    // This node has not followed yet.
    let before = bucket_id(&member.view(), "default").unwrap();
    member.edit(|view, revision| {
        let spec = view.specs.remove(&before).unwrap().value;
        let id = BucketId(before.0 + 1);
        view.specs.insert(id, written(revision, spec));
    });
    let edit = |now: &Manifest| now.with_scope("new");
    state.change_manifest("default", &edit).unwrap().unwrap();
    let Some(AgreedChange::Manifest { text, .. }) = member.changes.lock().pop() else {
        panic!("no collections were changed");
    };
    assert!(text.contains("new") && !text.contains("old"), "{text}");
    member.edit(|view, _| view.specs.clear());
    assert!(state.change_manifest("default", &edit).is_none());
    drop(served);
    node.shutdown().unwrap();
}

#[test]
fn users_stay_while_the_cluster_cannot_agree_on_a_change() {
    let (node, member) = clustered();
    let unavailable = ChangeError::Unavailable("etcd is away".into());
    *member.refuse.lock() = Some(unavailable.clone());
    let refused = node.state.change_users(&mut |directory| {
        directory.users.insert("bob", &UserRecord::default());
        true
    });
    assert_eq!(refused, Err(UsersError::NotAgreed(unavailable)));
    assert!(node.state.identity.directory().users.all().is_empty());
    node.shutdown().unwrap();
}

#[test]
fn settings_are_changed_in_the_newest_record_again_if_another_change_came_first() {
    let (node, member) = clustered();
    let mut other = BucketSettings::from(bucket("default"));
    put_settings(&member, &other);
    other.max_ttl_s = 60;
    *member.refuse.lock() = Some(ChangeError::Conflict("later".into()));
    let newest = Cell::new(0);
    let enable = |mut now: BucketSettings| {
        // The other change comes between this attempt and its transaction.
        if newest.get() == 0 {
            newest.set(put_settings(&member, &other));
        }
        now.flush_enabled = true;
        Ok(now)
    };
    node.state.change_settings("default", &enable).unwrap();
    let Some(AgreedChange::AdjustBucket { settings, based_on }) = member.changes.lock().pop()
    else {
        panic!("no settings were changed");
    };
    assert_eq!(based_on, newest.get());
    assert_eq!((settings.max_ttl_s, settings.flush_enabled), (60, true));
    let unknown = node.state.change_settings("other", &enable);
    assert_eq!(unknown, Err(BucketsError::Unknown));
    node.shutdown().unwrap();
}

#[test]
fn verifiers_of_passwords_are_derived_with_the_agreed_salts() {
    let (node, member) = clustered();
    let identity = Arc::clone(&node.state.identity);
    // Another node was the first one to make a user.
    let agreed = Roster {
        edition: 7,
        salts: [9; 32],
        ..Roster::default()
    };
    let text = serde_json::to_string(&agreed).unwrap();
    let mut other = Some(text);
    let put = |directory: &mut Directory| {
        let password = Some(identity.verifier("ada", b"secret"));
        let ada = UserRecord {
            password,
            ..UserRecord::default()
        };
        directory.users.insert("ada", &ada);
        if let Some(text) = other.take() {
            registry::take_users(&node.state.registry, text.as_bytes()).unwrap();
            member.edit(|view, revision| view.users = Some(written(revision, text.into())));
        }
        true
    };
    *member.refuse.lock() = Some(ChangeError::Conflict("later".into()));
    node.state.change_users(&mut { put }).unwrap();
    let Some(AgreedChange::Users { text, .. }) = member.changes.lock().pop() else {
        panic!("no users were changed");
    };
    let made: Roster = serde_json::from_str(&text).unwrap();
    let record = made.directory.users.get("ada").unwrap().record();
    assert_eq!(made.salts, agreed.salts);
    assert_eq!(record.password, Some(identity.verifier("ada", b"secret")));
    node.shutdown().unwrap();
}

#[test]
fn users_of_others_are_in_force_while_the_disk_hangs() {
    let place = tempfile::tempdir().unwrap();
    let node = started(&config(Some(place.path()), Vec::new()), Waits::default());
    // A pipe takes 64 KiB before it is read.
    let pipe = place.path().join("users.json.tmp");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut directory = Directory::default();
    for number in 0..5_000 {
        let name = format!("user-{number}");
        directory.users.insert(&name, &UserRecord::default());
    }
    let agreed = Roster {
        edition: 7,
        directory: directory.into(),
        ..Roster::default()
    };
    let text = serde_json::to_string(&agreed).unwrap();
    let registry = Arc::clone(&node.state.registry);
    let taking = std::thread::spawn(move || registry::take_users(&registry, text.as_bytes()));
    until("they are in force", || node.state.identity.edition() == 7);
    assert_eq!(node.state.identity.kept_edition(), 0);
    std::fs::read(&pipe).unwrap();
    taking.join().unwrap().unwrap_err();
    node.shutdown().unwrap();
}
