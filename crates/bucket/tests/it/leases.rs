//! vBuckets of a node in a cluster: what their leases let through.

use std::sync::Arc;

use bucket::Bucket;
use engine::{Decision, OpError, Outcome, Requirement, StoreMode, Write};
use model::{Cas, Draft, DurabilityLevel, Meta, Seqno, VbId, VbState, VbUuid};
use storage::KvStore;

use crate::world::{Ear, Kept, Ops, ROOMY, options, stored, warm};

const VB: VbId = VbId(0);

/// A node of two, active for its only vBucket as long as its lease lasts.
fn member() -> Arc<Bucket<Kept>> {
    let mut options = options(1, ROOMY);
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
fn a_vbucket_serves_as_long_as_its_lease() {
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
fn what_was_prepared_before_a_seal_is_decided_by_what_others_tell() {
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
