//! `WholeWrite`, `VBucketBench` and `PagingVisitorBench`: operations on a whole vBucket.

use std::hint::black_box;
use std::sync::Arc;

use benchkit::Rows;
use engine::{OpError, Outcome, Requirement, StoreMode, VBucket, VbConfig, Write};
use model::{Cas, Draft, DurabilityLevel, Meta, VbId, VbState, VbUuid};

use crate::common::{FIRST, NOW, flush, set, vbucket};
use crate::table::{ITEMS, Shared, add_shared, each_of_items, keys};

fn vbuckets() -> Shared<VBucket> {
    Shared::new(vbucket)
}

/// Stores all keys of a thread.
fn set_all(shared: &Shared<VBucket>, thread: u64) {
    for (index, key) in keys(thread) {
        set(&mut shared.of(index), &key, b"x");
    }
}

/// Returns vBuckets with the keys of the first thread; every other key has an undecided durable
/// write.
fn half_prepared() -> Shared<VBucket> {
    let shared = vbuckets();
    set_all(&shared, 0);
    let topology = r#"[["here","there"]]"#;
    let nodes = Some(topology.to_owned());
    for (index, key) in keys(0) {
        let mut vbucket = shared.of(index);
        if vbucket.topology().is_empty() {
            vbucket.set_state(VbState::Active, nodes.clone(), VbUuid(2));
        }
        if index % 2 == 0 {
            continue;
        }
        let mut write = Write {
            mode: StoreMode::Set,
            draft: Some(Draft::new(&key, b"y", &Meta::default())),
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: Some(Requirement {
                level: DurabilityLevel::Majority,
                deadline_ns: u64::MAX,
            }),
        };
        let stored = vbucket.store(&mut write, NOW);
        assert!(matches!(stored, Ok(Outcome::Prepared(_))), "it waits");
    }
    shared
}

/// `WholeWrite/*`: all work of a vBucket for a client operation: checks, seqno and CAS, log.
/// `Refused` is a deletion with another CAS or, for half of the keys, during a durable write: it
/// measures the look-ups before a change.
fn whole_writes(rows: &mut Rows<'_>) {
    add_shared(
        rows,
        "WholeWrite/Refused",
        half_prepared,
        |_, _| keys(0),
        |shared, index, key| {
            let waits = index % 2 == 1;
            let refused = shared.of(index).delete(key, Cas(1), None, NOW);
            let expected = if waits {
                OpError::SyncWriteInProgress
            } else {
                OpError::KeyExists
            };
            assert!(matches!(refused, Err(error) if error == expected));
        },
    );
    let stored = |shared: &Shared<VBucket>, thread| {
        set_all(shared, thread);
        keys(thread)
    };
    add_shared(
        rows,
        "WholeWrite/Get",
        || {
            let shared = vbuckets();
            set_all(&shared, 0);
            shared
        },
        |_, _| keys(0),
        |shared, index, key| {
            assert!(shared.of(index).get(key, NOW).is_ok());
        },
    );
    add_shared(
        rows,
        "WholeWrite/Insert",
        vbuckets,
        |_, thread| keys(thread),
        |shared, index, key| set(&mut shared.of(index), key, b"x"),
    );
    add_shared(
        rows,
        "WholeWrite/Replace",
        vbuckets,
        stored,
        |shared, index, key| set(&mut shared.of(index), key, b"y"),
    );
    add_shared(
        rows,
        "WholeWrite/Delete",
        vbuckets,
        stored,
        |shared, index, key| {
            assert!(shared.of(index).delete(key, Cas::ANY, None, NOW).is_ok());
        },
    );
}

/// Returns a vBucket of `mib` MiB, with durable documents of 1 KiB and keys of `key_chars`
/// characters.
fn full_vbucket(key_chars: usize, mib: usize) -> VBucket {
    let config = VbConfig {
        evicts_keys: true,
        ..VbConfig::default()
    };
    let mut vbucket = VBucket::new(VbId(0), VbState::Active, FIRST, Arc::new(config));
    let mut index = 0;
    while vbucket.memory_bytes() < mib << 20 {
        set(&mut vbucket, &key_of(index, key_chars), &[b'v'; 1024]);
        index += 1;
        if index % 1000 == 0 {
            flush(&mut vbucket);
        }
    }
    flush(&mut vbucket);
    vbucket
}

/// Returns a key: collection prefix, digits, and padding.
fn key_of(index: usize, chars: usize) -> Vec<u8> {
    format!("\0{index:k<chars$}").into_bytes()
}

/// `PagingVisitorBench`: passes over a vBucket, in steps of the size used under its lock.
/// `SingleVBucket`: every document is evicted with its key. `PagerIteration`: all are too warm.
/// `NoopIteration`: the expiry pass, which finds nothing; nothing is traced.
/// `EvictAllWithoutPager`: each key is evicted by name.
fn paging_visitor(rows: &mut Rows<'_>, key_chars: usize, mib: usize) {
    const SLOTS_A_STEP: usize = 16;
    let name = |what| format!("PagingVisitorBench/{what}/{key_chars}/{mib}");
    let build = move || full_vbucket(key_chars, mib);
    rows.add_timed(name("SingleVBucket"), build, |vbucket| {
        let mut garbage = Vec::new();
        while vbucket.hash_stats().entries > 0 {
            vbucket.evict_cold(SLOTS_A_STEP, usize::MAX, NOW, &mut garbage);
            garbage.clear();
        }
    });
    rows.add_timed(name("PagerIteration"), build, |vbucket| {
        let mut garbage = Vec::new();
        while !vbucket
            .evict_cold(SLOTS_A_STEP, usize::MAX, NOW, &mut garbage)
            .finished
        {}
        assert!(garbage.is_empty(), "what was just written is warm");
    });
    rows.add_timed(name("NoopIteration"), build, |vbucket| {
        while !vbucket.expire_due(SLOTS_A_STEP, NOW).finished {}
    });
    let build = move || {
        let vbucket = full_vbucket(key_chars, mib);
        let entries = vbucket.hash_stats().entries;
        let keys: Vec<_> = (0..entries).map(|index| key_of(index, key_chars)).collect();
        (vbucket, keys)
    };
    rows.add_timed(name("EvictAllWithoutPager"), build, |(vbucket, keys)| {
        for key in keys {
            assert!(vbucket.evict(key, NOW));
        }
    });
}

pub(crate) fn add(rows: &mut Rows<'_>) {
    whole_writes(rows);
    // Creates and frees a document.
    rows.add("VBucketBench/CreateDeleteStoredValue", || {
        each_of_items(|| {
            for _ in 0..ITEMS {
                drop(black_box(Draft::new(b"\0key", b"value", &Meta::default())));
            }
        })
    });
    for (key_chars, mib) in [(24, 8), (24, 102), (24, 205), (3, 8), (3, 205)] {
        paging_visitor(rows, key_chars, mib);
    }
}
