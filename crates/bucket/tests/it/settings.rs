//! Settings that change while the bucket runs.

use bucket::{Counters, Eviction, Flushed};
use engine::{Outcome, VbConfig};
use model::{CompressionMode, Datatype, VbId};
use storage::MemStore;

use crate::full_eviction::evict_all;
use crate::world::{Ops as _, ROOMY, options, warm};

const VB: VbId = VbId(0);

#[test]
fn every_vbucket_applies_another_maximum_expiry_at_once() {
    let bucket = warm(options(4, ROOMY), MemStore::new(), 1);
    let expiry = |vb, key: &str| {
        bucket.set(vb, key, b"1");
        match bucket.try_get(vb, key) {
            Ok(Outcome::Done(document)) => document.expiry(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(expiry(3, "a"), 0);
    bucket.change_vb_config(|config| config.max_ttl_s = 100);
    assert!(expiry(0, "a") > 0);
    assert!(expiry(3, "a") > 0);
    // A recreated vBucket has the settings, too.
    assert!(bucket.delete_vbucket(VbId(1)).unwrap());
    let state = model::VbState::Active;
    bucket
        .set_vbucket(VbId(1), state, None, model::VbUuid(77))
        .unwrap();
    assert!(expiry(1, "a") > 0);
    assert_eq!(bucket.vb_config().max_ttl_s, 100);
    assert_eq!(
        VbConfig::clone(&bucket.options().vb).max_ttl_s,
        0,
        "as it was opened"
    );
}

#[test]
fn eviction_policy_decides_whether_keys_are_evicted() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    let bytes_after = |key: &str| {
        bucket.set(0, key, &[7; 100]);
        assert_eq!(bucket.flush_step(), Flushed::Clean);
        evict_all(&bucket);
        bucket
            .with_vbucket(VB, |vbucket| vbucket.stats().document_bytes)
            .unwrap()
    };
    let one = bytes_after("a");
    assert!(one > 0, "the key stays");
    bucket.set_eviction(Eviction::Documents);
    assert_eq!(bytes_after("b"), 0, "both left whole");
    bucket.set_eviction(Eviction::Values);
    assert_eq!(bytes_after("c"), one, "only a value left");
}

#[test]
fn active_compression_shrinks_cold_values_before_eviction() {
    let mut halving = options(1, 2 << 20);
    halving.compression = CompressionMode::Active;
    halving.compress = |value| (value[0] == b'{').then(|| value[..value.len() / 2].to_vec());
    let bucket = warm(halving, MemStore::new(), 1);
    let fill = |from: u8| {
        for index in 0..900_u32 {
            let value = vec![from; 2000];
            if bucket
                .try_set(0, &format!("{}-{index}", char::from(from)), &value)
                .is_err()
            {
                break;
            }
            if index % 100 == 0 {
                assert_eq!(bucket.flush_step(), Flushed::Clean);
            }
        }
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    };
    let totals = || {
        let counters = bucket.counters();
        (
            Counters::read(&counters.compressed),
            Counters::read(&counters.evicted),
        )
    };
    fill(b'{');
    while !bucket.relieve_step() {}
    let (compressed, evicted) = totals();
    assert!(
        compressed > 0 && evicted < compressed,
        "{compressed} {evicted}"
    );
    assert_eq!(bucket.memory().used(), bucket.recount());
    let mut forms =
        (0..900_u32).filter_map(|index| match bucket.try_get(0, &format!("{{-{index}")) {
            Ok(Outcome::Done(document)) => Some((document.datatype(), document.value().len())),
            _ => None,
        });
    assert!(forms.any(|form| form == (Datatype::SNAPPY, 1000)));
    // Values that compression cannot shrink are evicted at once.
    bucket.set_compression(CompressionMode::Passive);
    fill(b'x');
    while !bucket.relieve_step() {}
    assert_eq!(totals().0, compressed, "passive compresses nothing");
    assert!(totals().1 > evicted);
}

#[test]
fn documents_are_evicted_only_after_all_unread_ones_are_compressed() {
    let mut halving = options(1, 4 << 20);
    halving.compression = CompressionMode::Active;
    halving.compress = |value| Some(value[..value.len() / 2].to_vec());
    let bucket = warm(halving, MemStore::new(), 1);
    for index in 0..7000_u32 {
        let key = format!("k{index}");
        while bucket.try_set(0, &key, &[b'{'; 1000]).is_err() {
            bucket.relieve_step();
        }
        if index % 100 == 0 {
            assert_eq!(bucket.flush_step(), Flushed::Clean);
        }
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let counters = bucket.counters();
    assert!(Counters::read(&counters.evicted) > 0);
    while !bucket.relieve_step() {}
    let resident = |compressed: bool| {
        let here = |index: &u32| match bucket.try_get(0, &format!("k{index}")) {
            Ok(Outcome::Done(document)) => {
                document.datatype().contains(Datatype::SNAPPY) == compressed
            }
            _ => false,
        };
        (0..7000_u32).filter(here).count()
    };
    let (compressed, plain) = (resident(true), resident(false));
    assert!(compressed > 3 * plain, "{compressed} {plain}");
    assert_eq!(bucket.memory().used(), bucket.recount());
}
