//! Memory pressure: accounting, refusals and relief.

use std::time::Duration;

use bucket::{Bucket, Counters, Flushed, Limit, Purpose, Reservation};
use engine::{OpError, Outcome};
use model::VbId;
use storage::{KvStore, MemStore};

use crate::world::{
    Ear, Fault, FaultyStore, Kept, Ops, PATIENCE, options, read_through, running, warm,
};

/// Writes until a write is refused. Returns the number of written documents.
fn fill(bucket: &Bucket<impl KvStore>, vb: u16, prefix: &str) -> u32 {
    for index in 0..100_000 {
        match bucket.try_set(vb, &format!("{prefix}{index}"), &[7; 1000]) {
            Ok(_) => {}
            Err(OpError::TemporaryFailure) => return index,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing was refused");
}

#[test]
fn writes_are_refused_above_the_limit_until_values_are_evicted() {
    let bucket = warm(options(4, 4 << 20), MemStore::new(), 1);
    // The first vBucket stays empty: eviction must skip it.
    let count = fill(&bucket, 2, "k");
    let memory = bucket.memory();
    assert!(memory.used() <= memory.mutation_limit() && memory.used() > memory.high_mark());
    assert_eq!(Counters::read(&bucket.counters().refused_for_memory), 1);
    assert_eq!(
        bucket.admit(Purpose::Write, 1 << 20).map_err(OpError::from),
        Err(OpError::TemporaryFailure)
    );
    // Documents that are not durable cannot be evicted.
    assert!(!bucket.relieve_step());
    assert_eq!(Counters::read(&bucket.counters().evicted), 0);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(bucket.relieve_step());
    assert!(memory.used() <= memory.low_mark(), "{memory:?}");
    assert_eq!(memory.used(), bucket.recount());
    let evicted = Counters::read(&bucket.counters().evicted);
    assert!((1..u64::from(count)).contains(&evicted));
    bucket.set(1, "again", &[7; 1000]);
    assert!(fill(&bucket, 2, "more") > 0);
}

#[test]
fn flood_evicts_unread_documents_with_their_commit() {
    let bucket = warm(options(4, 4 << 20), MemStore::new(), 1);
    fill(&bucket, 2, "k");
    bucket.get(2, "k0");
    assert!(!bucket.is_flooded(), "nobody has looked yet");
    assert_eq!(bucket.write_backoff(), None);
    assert!(!bucket.relieve_step());
    assert!(bucket.is_flooded(), "all that is there waits for the store");
    let most = Duration::from_micros(300);
    assert!(bucket.write_backoff().is_some_and(|rest| rest <= most));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let memory = bucket.memory();
    assert!(memory.used() <= memory.low_mark(), "{memory:?}");
    assert_eq!(bucket.write_backoff(), None, "there is room");
    assert_eq!(Counters::read(&bucket.counters().write_backoffs), 1);
    assert_eq!(memory.used(), bucket.recount());
    let resident = |key| matches!(bucket.try_get(2, key), Ok(Outcome::Done(_)));
    assert!(resident("k0") && !resident("k1"));
    // Without pressure (an evicted value leaves space for a smaller one) nothing more is evicted,
    // and the next survey sees the end of the flood.
    let left = bucket.with_vbucket(VbId(2), |vbucket| {
        vbucket.evict(b"\0k0", model::Now::default())
    });
    assert_eq!(left, Some(true));
    let evicted = Counters::read(&bucket.counters().evicted);
    bucket.set(2, "calm", &[7; 100]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(resident("calm"));
    assert!(bucket.relieve_step());
    assert!(!bucket.is_flooded());
    assert_eq!(Counters::read(&bucket.counters().evicted), evicted);
}

#[test]
fn flood_is_committed_in_small_parts() {
    let bucket = warm(options(4, 16 << 20), MemStore::new(), 1);
    let step = || {
        let before = Counters::read(&bucket.counters().bytes_persisted);
        assert_eq!(bucket.flush_step(), Flushed::Clean);
        Counters::read(&bucket.counters().bytes_persisted) - before
    };
    for index in 0..3000 {
        bucket.set(1, &format!("calm{index}"), &[7; 1000]);
    }
    assert!(step() > 3_000_000 && !bucket.any_dirty());
    assert!(fill(&bucket, 2, "k") > 8000);
    assert!(!bucket.relieve_step());
    assert!(bucket.is_flooded());
    for _ in 0..3 {
        assert!((1_000_000..3_000_000).contains(&step()));
    }
    assert!(bucket.any_dirty(), "the rest has its turn later");
}

/// Whether a read from the store waits for eviction.
fn reads_wait(bucket: &Bucket<impl KvStore>) -> bool {
    match bucket.reserve(Purpose::Fetch, 0, Duration::ZERO) {
        Reservation::Wait { limit, .. } => limit == Limit::Quota,
        _ => false,
    }
}

#[test]
fn reads_wait_at_the_quota_only_for_evictable_documents() {
    let bucket = warm(options(4, 4 << 20), MemStore::new(), 1);
    let (memory, quota) = (bucket.memory(), bucket.memory().quota());
    for index in 0..1000 {
        bucket.set(2, &format!("k{index}"), &[7; 1000]);
    }
    let above = |bytes| bucket.set_memory_overhead(quota - memory.booked() + bytes);
    above(1);
    assert!(!bucket.relieve_step());
    assert!(!reads_wait(&bucket), "all of it waits for the store");
    bucket.set_memory_overhead(0);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    // Overhead with which a part of the documents can stay.
    bucket.set_memory_overhead(quota - memory.booked());
    assert!(bucket.relieve_step());
    assert!(!reads_wait(&bucket), "there is room");
    above(1);
    assert!(reads_wait(&bucket));
    bucket.set_memory_overhead(quota - memory.booked() - 1);
    assert!(!reads_wait(&bucket));
    above(quota);
    assert!(!bucket.relieve_step());
    assert!(!reads_wait(&bucket), "nothing is left that could leave");
}

#[test]
fn eviction_takes_turns_between_vbuckets() {
    let bucket = warm(options(8, 4 << 20), MemStore::new(), 1);
    for index in 0..3200_u32 {
        bucket.set((index % 8) as u16, &format!("k{index}"), &[7; 950]);
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let missing = |vb| {
        let stats = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.stats());
        stats.unwrap().non_resident
    };
    for round in 0..20 {
        assert!(bucket.relieve_step());
        for index in 0..100 {
            bucket.set(index % 8, &format!("r{round}-{index}"), &[7; 950]);
        }
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    let most = (0..8).map(missing).max().unwrap();
    let least = (0..8).map(missing).min().unwrap();
    assert!(least > 0 && most < least * 4, "between {least} and {most}");
}

#[test]
fn account_follows_deletions_states_flushes_and_evictions() {
    let bucket = warm(options(3, 8 << 20), MemStore::new(), 1);
    let check = |step: &str| assert_eq!(bucket.memory().used(), bucket.recount(), "{step}");
    for index in 0..900 {
        bucket.set(index % 3, &format!("k{index}"), &[7; 1000]);
        bucket.set(index % 3, &format!("k{index}"), &[8; 500]);
    }
    check("written");
    let queued = bucket.memory().used();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    check("flushed");
    assert!(bucket.memory().used() < queued, "the queue was counted");
    for index in 0..900 {
        bucket.set(index % 3, &format!("k{index}"), &[9; 500]);
    }
    check("replaced");
    let replaced = bucket.memory().used();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    check("flushed again");
    assert!(bucket.memory().used() < replaced);
    for index in 0..300 {
        bucket.try_delete(0, &format!("k{}", index * 3)).unwrap();
    }
    check("deleted");
    let state = model::VbState::Replica;
    bucket
        .set_vbucket(VbId(1), state, Some("x".repeat(4096)), model::VbUuid(5))
        .unwrap();
    check("state");
    assert!(bucket.delete_vbucket(VbId(2)).unwrap());
    check("vBucket deleted");
    bucket
        .set_vbucket(VbId(2), state, None, model::VbUuid(6))
        .unwrap();
    check("vBucket made");
    for vb in 0..3 {
        assert!(bucket.delete_vbucket(VbId(vb)).unwrap());
    }
    assert_eq!(bucket.memory().used(), 0, "nothing is left");
}

#[test]
fn full_bucket_without_eviction_refuses_only_writes() {
    let mut keeps = options(2, 4 << 20);
    keeps.eviction = bucket::Eviction::None;
    let (bucket, workers) = running(keeps, MemStore::new(), 1);
    let count = fill(&bucket, 0, "k");
    let mut last = count;
    while bucket.any_dirty() {
        // Freed queue slots may allow some more writes.
        bucket.hurry();
        last = last.max(fill(&bucket, 0, "l"));
    }
    assert!(!bucket.relieve_step());
    assert_eq!(
        bucket.admit(Purpose::Write, 1 << 20).map_err(OpError::from),
        Err(OpError::TemporaryFailure)
    );
    for index in 0..count {
        assert_eq!(bucket.get(0, &format!("k{index}")).unwrap().len(), 1000);
    }
    assert_eq!(Counters::read(&bucket.counters().evicted), 0);
    for index in 0..count / 2 {
        bucket.try_delete(0, &format!("k{index}")).unwrap();
    }
    // The deleted values are freed with the queue.
    let ear = Ear::new();
    let high = bucket
        .with_vbucket(VbId(0), |vbucket| vbucket.high_seqno())
        .unwrap();
    bucket.await_persisted(VbId(0), high, ear.clone());
    ear.listen();
    bucket.set(1, "fits", &[7; 1000]);
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}

#[test]
fn reliever_hurries_the_flusher_to_free_replaced_values() {
    let mut slow = options(1, 4 << 20);
    // The flusher would not commit by itself while this test runs.
    slow.flush_interval_ms = 3_600_000;
    let (bucket, workers) = running(slow, Kept::default(), 1);
    // Each value has its own checkpoint, so that none replaces another.
    let value = vec![7; 300 << 10];
    let ear = Ear::new();
    let mut refused = 0;
    for _ in 0..100 {
        while bucket.try_set(0, "k", &value).is_err() {
            refused += 1;
            assert!(refused < PATIENCE.as_millis(), "nobody made room");
            ear.listen_for(Duration::from_millis(1));
        }
    }
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}

#[test]
fn relief_without_evictable_documents_rests() {
    let (bucket, workers) = running(options(2, 1 << 20), FaultyStore::new(Kept::default()), 1);
    bucket.store().fail_next(usize::MAX, Fault::Sync);
    fill(&bucket, 0, "k");
    let steps = || Counters::read(&bucket.counters().relief_steps);
    let ear = Ear::new();
    let mut looks = 0;
    while steps() == 0 {
        looks += 1;
        assert!(looks < PATIENCE.as_millis(), "the reliever was not called");
        ear.listen_for(Duration::from_millis(1));
    }
    // The writers retry; each is refused, and none causes another relief.
    let (before, large) = (steps(), vec![7; 100_000]);
    for _ in 0..50 {
        for _ in 0..20 {
            let refused = bucket.try_set(0, "x", &large);
            assert_eq!(refused, Err(OpError::TemporaryFailure));
        }
        ear.listen_for(Duration::from_millis(1));
    }
    // As many as fit into these 50 ms with rests between, even on a slow machine.
    let more = steps() - before;
    assert!(more < 40, "{more} steps for 1,000 calls");
    let Ok(Outcome::Done(_)) = bucket.try_get(0, "k0") else {
        panic!("reads go on");
    };
    assert_eq!(Counters::read(&bucket.counters().evicted), 0);
    assert!(workers.stop().is_err());
}

/// The ring of the stop ends the rest, and must not be taken for a call.
#[test]
fn resting_reliever_sees_a_stop() {
    let mut keeps = options(2, 4 << 20);
    keeps.eviction = bucket::Eviction::None;
    let (bucket, workers) = running(keeps, MemStore::new(), 1);
    let memory = bucket.memory();
    let mut index = 0;
    while memory.used() < memory.low_mark() + (100 << 10) {
        let before = bucket.set(0, &format!("k{index}"), &vec![7; 20_000]);
        let ear = Ear::new();
        bucket.await_persisted(VbId(0), before, ear.clone());
        ear.listen();
        index += 1;
    }
    let steps = || Counters::read(&bucket.counters().relief_steps);
    let ear = Ear::new();
    let stepped = |since: u64| {
        let mut looks = 0;
        while steps() == since {
            looks += 1;
            assert!(looks < PATIENCE.as_millis(), "the reliever does not work");
            ear.listen_for(Duration::from_millis(1));
        }
    };
    let before = steps();
    bucket.set_memory_overhead(memory.quota() / 4);
    stepped(before);
    // The reliever rests and tries again as long as memory is above the high mark. The first step
    // below ends with a rest and the decision to wait for the next call.
    let before = steps();
    bucket.set_memory_overhead(0);
    assert!(!memory.is_pressed() && memory.used() > memory.low_mark());
    stepped(before);
    workers.stop().unwrap();
}

/// Whether a new large request gets memory; if not, the reliever is called for it.
fn has_space(bucket: &Bucket<impl KvStore>, bytes: usize) -> bool {
    let purpose = Purpose::Request { first: true };
    match bucket.reserve(purpose, bytes, Duration::ZERO) {
        Reservation::Wait { limit, .. } => assert_eq!(limit, Limit::Space),
        reservation => assert!(reservation.is_granted()),
    }
    bucket.reserve(purpose, bytes, Duration::ZERO).is_granted()
}

#[test]
fn relief_continues_until_the_requested_space_is_free() {
    let bucket = warm(options(4, 4 << 20), MemStore::new(), 1);
    fill(&bucket, 2, "k");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let memory = bucket.memory();
    let bytes = 2 << 20;
    assert!(!has_space(&bucket, bytes));
    assert!(memory.mutation_limit() - memory.low_mark() < bytes as u64);
    assert!(bucket.relieve_step());
    assert!(has_space(&bucket, bytes), "{memory:?}");
    assert!(
        memory.used() + (bytes as u64) > memory.mutation_limit() / 2,
        "{memory:?}"
    );
    // A request that asked once and ended does not keep memory empty.
    let more = fill(&bucket, 2, "more");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(bucket.relieve_step() && more > 0);
    assert!(!has_space(&bucket, bytes), "{memory:?}");
}

#[test]
fn smaller_quota_frees_memory_and_larger_one_admits_more() {
    let (bucket, workers) = running(options(2, 8 << 20), Kept::default(), 1);
    let high = (0..3000_u32)
        .map(|index| bucket.set(0, &format!("k{index}"), &[7; 1000]))
        .max();
    let ear = Ear::new();
    bucket.await_persisted(VbId(0), high.unwrap(), ear.clone());
    ear.listen();
    let memory = bucket.memory();
    let quota = |bytes: u64| {
        let changed = bucket.change_limits(|limits| {
            limits.quota_bytes = bytes;
            Ok(())
        });
        changed.unwrap();
    };
    quota(2 << 20);
    let mut looks = 0;
    while memory.used() > memory.low_mark() {
        looks += 1;
        assert!(looks < PATIENCE.as_millis(), "{memory:?}");
        ear.listen_for(Duration::from_millis(1));
    }
    assert!(bucket.admit(Purpose::Write, 1 << 20).is_err());
    quota(8 << 20);
    assert_eq!(bucket.admit(Purpose::Write, 1 << 20), Ok(()));
    assert!(
        bucket
            .change_limits(|limits| {
                limits.quota_bytes = 0;
                Ok(())
            })
            .is_err()
    );
    assert_eq!(memory.quota(), 8 << 20);
    workers.stop().unwrap();
}

#[test]
fn reliever_keeps_a_bucket_usable_beyond_its_quota() {
    let (bucket, workers) = running(options(4, 4 << 20), Kept::default(), 1);
    let ear = Ear::new();
    for index in 0..20_000_u32 {
        let key = format!("k{index}");
        let mut refused = 0;
        while bucket
            .try_set((index % 4) as u16, &key, &[7; 1000])
            .is_err()
        {
            refused += 1;
            assert!(refused < PATIENCE.as_millis(), "nobody made room for {key}");
            ear.listen_for(Duration::from_millis(1));
        }
    }
    assert!(bucket.memory().used() <= bucket.memory().quota());
    for index in (0..20_000_u32).step_by(97) {
        let value = read_through(&bucket, (index % 4) as u16, &format!("k{index}"));
        assert_eq!(value.unwrap(), [7; 1000]);
    }
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}

#[test]
fn checkpoints_above_their_share_refuse_changes_until_flushed() {
    let bucket = warm(options(1, 8 << 20), MemStore::new(), 1);
    // The flusher takes each value before the next one replaces it, so that none is freed.
    let (mut refused, value) = (None, vec![7; 100_000]);
    for _ in 0..1000 {
        if let Err(error) = bucket.try_set(0, "k", &value) {
            refused = Some(error);
            break;
        }
        let batch = bucket.with_vbucket(VbId(0), |vbucket| {
            let budget = engine::FlushBudget {
                items: usize::MAX,
                bytes: usize::MAX,
            };
            vbucket.begin_flush(budget, &mut engine::SpareBuffers::default())
        });
        if let Some(batch) = batch.flatten() {
            bucket.with_vbucket(VbId(0), |vbucket| vbucket.finish_flush(batch.done(false)));
        }
    }
    assert_eq!(refused, Some(OpError::TemporaryFailure));
    let memory = bucket.memory();
    assert!(memory.used() < memory.low_mark(), "it is the checkpoints");
    let limit = |shortage: bucket::Shortage| shortage.limit;
    let expected = Err(Limit::Checkpoints);
    assert_eq!(bucket.admit(Purpose::Write, 1).map_err(limit), expected);
    assert_eq!(bucket.admit(Purpose::Removal, 0).map_err(limit), expected);
    assert_eq!(bucket.expiry_step(), 0);
    assert_eq!(Counters::read(&bucket.counters().expiry_passes), 0);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.admit(Purpose::Write, 1), Ok(()));
    assert_eq!(memory.used(), bucket.recount());
    bucket.expiry_step();
    assert_eq!(Counters::read(&bucket.counters().expiry_passes), 1);
}

/// Like clients that request everything and do not read: dropping one cursor alone frees nothing.
#[test]
fn idle_readers_at_one_position_are_dropped_together() {
    let bucket = warm(options(32, 8 << 20), MemStore::new(), 1);
    let memory = bucket.memory();
    let register = |name: &str| {
        for vb in 0..32 {
            bucket.with_vbucket(VbId(vb), |vbucket| {
                vbucket.register_cursor(name, vbucket.high_seqno())
            });
        }
    };
    for reader in 0..20 {
        register(&format!("still {reader}"));
    }
    while memory.checkpoints() <= memory.checkpoint_upper_mark() {
        for vb in 0..32 {
            bucket.set(vb, "k", &[7; 5_000]);
        }
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    register("at the end");
    assert!(bucket.relieve_step(), "at once");
    assert!(memory.checkpoints() <= memory.checkpoint_lower_mark());
    for vb in 0..32 {
        let left = bucket.with_vbucket(VbId(vb), |vbucket| {
            let names = vbucket.cursor_stats().map(|cursor| cursor.name.to_string());
            names.collect::<Vec<_>>()
        });
        let left = left.unwrap();
        assert!(left.contains(&"at the end".into()), "{left:?}");
    }
    assert_eq!(memory.used(), bucket.recount());
}

#[test]
fn checkpoints_share_their_memory_by_demand() {
    let bucket = warm(options(128, 64 << 20), MemStore::new(), 1);
    let value = [7; 1000];
    let checkpoints = |bucket: &Bucket<MemStore>| {
        let stats = bucket.with_vbucket(VbId(0), |vbucket| vbucket.checkpoint_stats());
        stats.unwrap().checkpoints
    };
    let write = |prefix: &str| {
        for index in 0..200 {
            bucket.set(0, &format!("{prefix}{index}"), &value);
        }
    };
    // Twice: the first survey counts vBuckets with changes, the next one divides among them.
    let look = || (0..2).for_each(|_| assert!(bucket.relieve_step()));
    look();
    write("alone");
    assert_eq!(checkpoints(&bucket), 1, "one vBucket has all to itself");
    for vb in 0..128 {
        bucket.set(vb, "busy", b"1");
    }
    look();
    write("busy");
    assert!(checkpoints(&bucket) > 5, "{}", checkpoints(&bucket));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    look();
    write("alone again");
    assert_eq!(checkpoints(&bucket), 1);
}

#[test]
fn replicas_are_evicted_first() {
    let bucket = warm(options(2, 4 << 20), MemStore::new(), 1);
    for index in 0..1750_u32 {
        bucket.set(u16::from(index >= 500), &format!("k{index}"), &[7; 1950]);
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let replica = model::VbState::Replica;
    bucket
        .set_vbucket(VbId(0), replica, None, model::VbUuid(5))
        .unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(bucket.memory().is_pressed(), "{:?}", bucket.memory());
    assert!(bucket.relieve_step());
    let missing = |vb| {
        let stats = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.stats());
        stats.unwrap().non_resident
    };
    assert!(missing(0) > 0);
    assert_eq!(missing(1), 0, "the replica alone was enough");
}
