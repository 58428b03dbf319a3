//! Leases of vBuckets of a node in a cluster.

use std::sync::Arc;

use bucket::{Bucket, BucketOptions, CompactionRules, Counters, Flushed, Leases};
use collections::{CollectionSettings, Manifest, WantedCollection, WantedScope};
use engine::{Decision, OpError, Outcome, Requirement, StoreMode, Write};
use model::{Cas, Draft, DurabilityLevel, Meta, Seqno, VbId, VbState, VbUuid};
use storage::KvStore;

use crate::full_eviction::{evict_all, whole};
use crate::world::{Ear, Kept, Ops, ROOMY, options, stored, warm};

const VB: VbId = VbId(0);

/// Creates a bucket of a cluster with two nodes; its only vBucket is active and has no lease.
fn member() -> Arc<Bucket<Kept>> {
    member_with(options(1, ROOMY))
}

fn member_with(mut options: BucketOptions) -> Arc<Bucket<Kept>> {
    options.member = true;
    let bucket = warm(options, Kept::default(), 1);
    let chains = Some(r#"[["here","there"]]"#.to_owned());
    let made = bucket.set_vbucket(VB, VbState::Active, chains, VbUuid(7));
    assert_eq!(made, Ok(()));
    bucket
}

fn lease<S: KvStore>(bucket: &Bucket<S>, until_ns: u64) {
    bucket.leases().unwrap().set(VB, until_ns);
}

#[test]
fn vbucket_serves_until_its_lease_ends() {
    let bucket = member();
    let late = Err(OpError::TemporaryFailure);
    assert_eq!(bucket.try_set(0, "a", b"1"), late);
    lease(&bucket, u64::MAX);
    bucket.set(0, "a", b"1");
    lease(&bucket, 1);
    assert_eq!(bucket.try_set(0, "a", b"2"), late);
    lease(&bucket, 0);
    let sealed = bucket.try_set(0, "a", b"2");
    assert_eq!(sealed, Err(OpError::NotMyVbucket));
    lease(&bucket, u64::MAX);
    assert_eq!(bucket.get(0, "a").as_deref(), Some(&b"1"[..]));
}

#[test]
fn prepare_before_a_seal_is_decided_by_another_node() {
    let bucket = member();
    lease(&bucket, u64::MAX);
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(&stored("a"), b"1", &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: Some(Requirement {
            level: DurabilityLevel::Majority,
            deadline_ns: u64::MAX,
        }),
    };
    let now = bucket.clock().now();
    let wait = bucket.run(VB, |vbucket| {
        let Outcome::Prepared(mutated) = vbucket.store(&mut write, now)? else {
            panic!("one of two copies is not enough");
        };
        Ok(bucket.await_decision(VB, mutated.seqno, Ear::new()))
    });
    let wait = wait.unwrap();
    lease(&bucket, 0);
    let undecided = || bucket.with_vbucket(VB, |vbucket| vbucket.has_undecided());
    assert_eq!(undecided(), Some(true));
    let told = bucket.run_for_node(VB, |vbucket| vbucket.seqno_acknowledged("there", Seqno(1)));
    assert_eq!(told, Ok(()));
    assert!(matches!(wait.decision(), Some(Decision::Committed(_))));
    assert_eq!(undecided(), Some(false));
}

/// A copy that takes over has what the sealed one had then.
#[test]
fn sealed_vbucket_has_no_changes_of_its_own_until_its_state_changes() {
    let bucket = member();
    lease(&bucket, u64::MAX);
    crate::expiry::set_until(&bucket, 0, "gone", 1);
    let high = || bucket.with_vbucket(VB, |vbucket| vbucket.high_seqno());
    let before = high();
    bucket.seal(VB);
    let with_scope = |now: &Manifest| {
        let wanted = ["_default", "shop"].map(|name| WantedScope {
            name: name.into(),
            collections: vec![WantedCollection {
                name: if name == "shop" { "chairs" } else { name }.into(),
                max_ttl_s: None,
                history: None,
            }],
        });
        now.with_scopes(&wanted, CollectionSettings::default())
    };
    let changed = bucket.change_manifest(with_scope, |_| Vec::new());
    assert!(changed.unwrap().1);
    assert_eq!(bucket.expiry_step(), 0);
    assert_eq!(high(), before);
    for state in [VbState::Replica, VbState::Active] {
        let made = bucket.set_vbucket(VB, state, None, VbUuid(9));
        assert_eq!(made, Ok(()));
    }
    assert!(high() > before, "it has the collections");
    assert_eq!(bucket.expiry_step(), 1);
}

/// Nodes of a cluster agree on collections. The copy that took over may have got them later.
#[test]
fn rollback_of_a_copy_does_not_change_the_collections_of_its_bucket() {
    let bucket = member();
    lease(&bucket, u64::MAX);
    let with = |now: &Manifest| now.with_collection("_default", "c", CollectionSettings::default());
    let (manifest, _) = bucket.change_manifest(with, |_| Vec::new()).unwrap();
    let made = bucket.set_vbucket(VB, VbState::Replica, None, VbUuid(9));
    assert_eq!(made, Ok(()));
    assert_eq!(bucket.roll_back(VB, Seqno::ZERO).unwrap(), Seqno::ZERO);
    assert_eq!(bucket.manifest(), manifest);
}

/// Another copy may have taken over meanwhile.
#[test]
fn vbucket_without_a_lease_has_no_changes_of_its_own() {
    let bucket = member_with(whole(1, ROOMY));
    lease(&bucket, u64::MAX);
    crate::expiry::set_until(&bucket, 0, "on disk", 1);
    bucket.set(0, "stays", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    evict_all(&bucket);
    crate::expiry::set_until(&bucket, 0, "in memory", 1);
    let expired = || {
        let in_memory = bucket.expiry_step();
        bucket.compact(VB, CompactionRules::default()).unwrap();
        (in_memory, Counters::read(&bucket.compaction().expired))
    };
    lease(&bucket, Leases::EXPIRED_NS);
    assert_eq!(expired(), (0, 0));
    lease(&bucket, u64::MAX);
    assert_eq!(expired(), (1, 1));
}
