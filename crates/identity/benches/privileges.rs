//! Benchmark: nanoseconds to check a privilege of a user in one of 1,000 collections, as each command on a document
//! does.
//!
//! `privilege/check/bucket`: the user has the role in the whole bucket; `scope`: in half of its scopes; `collection`:
//! in each of 1,000 collections by name.

#![expect(clippy::expect_used, reason = "a benchmark fails where it expects")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use identity::{Access, CollectionPrivileges, Grant, Privilege, PrivilegeSet};

const COLLECTIONS: u32 = 1000;
const PER_SCOPE: u32 = 10;
/// The first id of a bucket's own collections.
const FIRST: u32 = 8;

fn access(grants: impl Iterator<Item = String>) -> Access {
    Access::new(grants.map(|grant| Grant::parse(&grant).expect("a grant")))
}

fn in_each(access: &Access) -> CollectionPrivileges {
    let each = (0..COLLECTIONS).map(|number| {
        let (scope, name) = (format!("s{}", number / PER_SCOPE), format!("c{number}"));
        (FIRST + number, access.of_part("b", &scope, Some(&name)))
    });
    CollectionPrivileges::new(access.of_bucket("b"), each)
}

/// Does the check of a session for each command: finds the privileges in the collection, and compares them.
#[inline]
fn allowed(
    whole: PrivilegeSet,
    parts: Option<&CollectionPrivileges>,
    collection: u32,
    needed: PrivilegeSet,
) -> bool {
    let part = parts.and_then(|parts| parts.find(collection));
    part.unwrap_or(whole).contains(needed)
}

fn check(criterion: &mut Criterion) {
    let bucket = access(std::iter::once("data_reader[b]".into()));
    let scopes = COLLECTIONS / PER_SCOPE;
    let scope = access(
        (0..scopes)
            .step_by(2)
            .map(|one| format!("data_reader[b:s{one}]")),
    );
    let collection = access((0..COLLECTIONS).map(|one| {
        let scope = one / PER_SCOPE;
        format!("data_reader[b:s{scope}:c{one}]")
    }));
    let needed = PrivilegeSet::of(&[Privilege::Read]);
    // Collections in mixed order, so that nothing predicts the next one.
    let order: Vec<u32> = (0..COLLECTIONS)
        .map(|number| FIRST + number * 389 % COLLECTIONS)
        .collect();
    let mut group = criterion.benchmark_group("privilege/check");
    group.throughput(Throughput::Elements(u64::from(COLLECTIONS)));
    for (name, access, same) in [
        ("bucket", bucket, true),
        ("scope", scope, false),
        ("collection", collection, false),
    ] {
        let whole = access.of_bucket("b");
        let parts = (!same).then(|| in_each(&access));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let one = |id: &&u32| allowed(whole, parts.as_ref(), black_box(**id), needed);
                black_box(&order).iter().filter(one).count()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, check);
criterion_main!(benches);
