//! Memory use of many collections, as requested from the allocator.

use std::alloc::System;
use std::sync::Arc;

use collections::{
    CollectionSettings, Manifest, ManifestPlanner, SharedCollections, WantedCollection, WantedScope,
};
use engine::{FlushBudget, FlushItem, StoreMode, VBucket, VbConfig, Write};
use model::{
    Cas, CollectionId, Document, Draft, FailoverEntry, Meta, Now, Seqno, VbId, VbState, VbUuid,
    collection_key,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const VBUCKETS: u16 = 1024;
/// Number of collections besides the default one: the maximum.
const COLLECTIONS: usize = 999;
const MIB: usize = 1 << 20;
const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 1,
};

/// Bytes allocated and not freed since `region` began; at least zero.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated)
}

/// Returns the successor of `from` with so many collections.
fn manifest(from: &Manifest, collections: usize) -> Manifest {
    let wanted = |name: String| WantedCollection {
        name: name.into(),
        max_ttl_s: None,
        history: None,
    };
    let names = (0..collections).map(|index| format!("collection-{index:04}"));
    let all = std::iter::once("_default".to_owned()).chain(names);
    let scope = WantedScope {
        name: "_default".into(),
        collections: all.map(wanted).collect(),
    };
    let made = from.with_scopes(&[scope], CollectionSettings::default());
    made.expect("it is valid")
}

fn vbuckets(config: &Arc<VbConfig>) -> Vec<VBucket> {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno(0),
    };
    let make = |id| VBucket::new(VbId(id), VbState::Active, first, Arc::clone(config));
    (0..VBUCKETS).map(make).collect()
}

fn apply(all: &mut [VBucket], manifest: &Manifest) {
    let mut planner = ManifestPlanner::new(manifest, 16);
    for vbucket in all {
        while !vbucket.apply_manifest(&mut planner, NOW) {}
    }
}

/// Flushes all vBuckets, and returns the rows of the last one.
fn flush(all: &mut [VBucket]) -> Vec<Document> {
    let mut rows = Vec::new();
    for vbucket in all {
        rows.clear();
        while let Some(batch) =
            vbucket.begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default())
        {
            batch.for_each(&mut |item| {
                if let FlushItem::Put { document, .. } = item {
                    rows.push(document.clone());
                }
            });
            drop(vbucket.finish_flush(batch.done(true)));
        }
    }
    rows
}

fn set(vbucket: &mut VBucket, id: CollectionId) {
    let key = collection_key(id, b"key");
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(&key, b"value", &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    vbucket.store(&mut write, NOW).expect("it is there");
}

/// Only one test, since all threads share one allocator.
#[test]
fn a_thousand_empty_collections_cost_next_to_nothing() {
    let config = Arc::new(VbConfig::default());
    let mut all = vbuckets(&config);
    flush(&mut all);
    let manifest = manifest(&Manifest::default(), COLLECTIONS);

    let region = Region::new(ALLOCATOR);
    apply(&mut all, &manifest);
    let waiting = held(&region);
    assert!(waiting < MIB, "until they are flushed: {waiting}");
    let rows = flush(&mut all);
    let flushed = held(&region);
    assert!(flushed < MIB / 4, "{flushed}");
    assert_eq!(rows.len(), 1, "of the last vBucket");

    // One less takes the same steps; the shared table is rebuilt once.
    let region = Region::new(ALLOCATOR);
    let next = manifest.without_collection("_default", "collection-0007");
    apply(&mut all, &next.expect("it is there"));
    flush(&mut all);
    let dropped = held(&region);
    assert!(dropped < MIB / 4, "{dropped}");

    // Only pairs of vBucket and collection with a change have counters.
    let last = manifest.collections().last().expect("there are some").1.id;
    let before = all[5].memory_bytes();
    set(&mut all[5], last);
    let mut counts = Vec::new();
    all[5].collection_counts(&mut counts);
    assert_eq!(counts.len(), 2, "the default one, and that of the document");
    assert!(all[5].memory_bytes() - before < 1024);
    counts.clear();
    all[4].collection_counts(&mut counts);
    assert_eq!(counts.len(), 1);

    // After a restart, vBuckets share the table read from equal rows.
    let records: Vec<_> = all.iter().map(VBucket::record).collect();
    drop(all);
    let region = Region::new(ALLOCATOR);
    let mut shared = SharedCollections::default();
    let mut loaded = Vec::with_capacity(records.len());
    for (id, mut record) in (0..).zip(records.iter().cloned()) {
        record.high_seqno = Seqno(COLLECTIONS as u64);
        let mut vbucket = VBucket::from_record(VbId(id), record, Arc::clone(&config));
        for row in &rows {
            assert_eq!(vbucket.load_shared(row.clone(), &mut shared), None);
        }
        vbucket.share_collections(&mut shared);
        assert_eq!(vbucket.collection_count(), COLLECTIONS + 1);
        loaded.push(vbucket);
    }
    let restarted = held(&region);
    // An idle vBucket takes 1.5 KiB.
    assert!(restarted < 2 * MIB, "{restarted}");
    drop(loaded);
    several_groups_are_loaded_once(&config);
}

/// Each of several groups is loaded once for all vBuckets.
fn several_groups_are_loaded_once(config: &Arc<VbConfig>) {
    let mut all = vbuckets(config);
    flush(&mut all);
    let (mut last, mut rows) = (Manifest::default(), Vec::new());
    for collections in [300, 600, COLLECTIONS] {
        last = manifest(&last, collections);
        apply(&mut all, &last);
        rows.extend(flush(&mut all));
    }
    assert_eq!(rows.len(), 3);
    let records: Vec<_> = all.iter().map(VBucket::record).collect();
    let region = Region::new(ALLOCATOR);
    let mut shared = SharedCollections::default();
    for (id, record) in (0..).zip(records) {
        let mut vbucket = VBucket::from_record(VbId(id), record, Arc::clone(config));
        for row in &rows {
            assert_eq!(vbucket.load_shared(row.clone(), &mut shared), None);
        }
        vbucket.share_collections(&mut shared);
        assert_eq!(vbucket.collection_count(), COLLECTIONS + 1);
    }
    let allocated = region.change().bytes_allocated;
    // One table takes 24 KiB.
    assert!(allocated < 4 * MIB, "{allocated}");
}
