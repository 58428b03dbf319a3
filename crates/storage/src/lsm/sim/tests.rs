//! Tests with many lives. Minimum numbers from the environment: `SETTEE_IMAGES` (of power
//! failures), `SETTEE_FAULTS` (lives with failing operations), `SETTEE_FULL` (lives on full disks),
//! `SETTEE_DAMAGES` and `SETTEE_LIES`. `SETTEE_THREADS` is the number of threads. `SETTEE_SEED` is
//! the first seed, with `SETTEE_ONE` the only one. With `SETTEE_TRACE` a message has the last
//! operations, and damaged files are written into the directory `SETTEE_DUMP`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::Seqno;
use parking_lot::Mutex;

use super::damage::{damage, judge_found};
use super::disk::Disk;
use super::files::{SimFiles, Taking};
use super::harness::{Harness, Opening};
use super::life::{Life, Past};
use super::plan::{EIO, EMFILE, ENOSPC, EROFS, Fault, Mishap, OpKind};
use super::possible::{Candidate, Possible};
use super::random::Random;
use super::read::read;
use super::threads::{SimThreads, WORK_MAX};
use super::verdict::{Failed, Refused, Stats};
use super::workload::{VBS, Workload};
use crate::ErrorKind;
use crate::lsm::files::Files;
use crate::lsm::{DiskOptions, DiskStore};
use crate::port::KvStore;
use crate::suite::{document, try_put};
use crate::work::Threads;

/// Returns a number from the environment.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Tries seeds, on several threads, until `enough` is true for the sum.
fn seeds(
    what: &str,
    enough: impl Fn(&Stats) -> bool + Sync,
    one: impl Fn(u64, &mut Stats) -> Result<(), Failed> + Sync,
) -> Stats {
    let next = AtomicU64::new(setting("SETTEE_SEED", 1));
    let total = Mutex::new(Stats::default());
    let began = std::time::Instant::now();
    let threads = setting("SETTEE_THREADS", 2);
    let only_one = std::env::var_os("SETTEE_ONE").is_some();
    let threads = if only_one { 1 } else { threads };
    let look = || {
        while !enough(&total.lock()) {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            let mut stats = Stats::default();
            let done = one(seed, &mut stats);
            *total.lock() += stats;
            if let Err(Failed(text)) = done {
                panic!("{what}, SETTEE_SEED={seed} SETTEE_ONE=1: {text}");
            }
            if only_one {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(look);
        }
        look();
    });
    let stats = *total.lock();
    let took = began.elapsed().as_secs_f64();
    println!("{what}: {stats:?} in {took:.1} s");
    stats
}

const TAKING: Taking = Taking {
    at_sync: 8,
    one_in: 2,
};
/// For lives with failures.
const FEW: Taking = Taking {
    at_sync: 1,
    one_in: 40,
};

fn power_cuts<S: KvStore>(harness: &Harness<S>, images: u64) -> Stats {
    let enough = |stats: &Stats| stats.images >= images;
    seeds("power cuts", enough, |seed, stats| {
        let harness = &harness.of_seed(seed);
        let mut life = Life::new(harness, seed, Some(TAKING));
        let done = life.run(60);
        *stats = life.stats;
        done
    })
}

/// Any operation of a life fails once, or several times in a row.
fn faults<S: KvStore>(harness: &Harness<S>, lives: u64) -> Stats {
    const STEPS: u64 = 25;
    let tried = AtomicU64::new(0);
    let enough = |_: &Stats| tried.load(Ordering::SeqCst) >= lives;
    seeds("faults", enough, |seed, stats| {
        let harness = &harness.of_seed(seed);
        let mut without = Life::new(harness, seed, None);
        without.faulty = true;
        without.run(STEPS)?;
        let all = without.files.plan().count(None);
        let mut random = Random(seed);
        for _ in 0..12 {
            let number = random.next(all);
            for code in [ENOSPC, EIO, EROFS, EMFILE] {
                let mut life = Life::new(harness, seed, random.one_in(8).then_some(FEW));
                life.faulty = true;
                life.files.plan().faults.push(Fault {
                    of: None,
                    named: "",
                    from: number,
                    count: *random.pick(&[1, 1, 1, 4, 40]),
                    mishap: Mishap::Error(code),
                });
                if random.one_in(4) {
                    life.files.plan().faults.push(Fault {
                        of: None,
                        named: "",
                        from: number + 1 + random.next(60),
                        count: 1,
                        mishap: Mishap::Error(code),
                    });
                }
                let done = life.run(STEPS);
                tried.fetch_add(1, Ordering::SeqCst);
                *stats += life.stats;
                let plan = life.files.plan();
                done.map_err(|failed| {
                    let met = plan.met.first();
                    Failed(format!(
                        "error {code} at operation {number} ({met:?}): {}",
                        failed.0
                    ))
                })?;
            }
        }
        Ok(())
    })
}

/// Lives on a disk that is full at times.
fn full_disks<S: KvStore>(harness: &Harness<S>, lives: u64) -> Stats {
    let tried = AtomicU64::new(0);
    let enough = |_: &Stats| tried.fetch_add(1, Ordering::SeqCst) >= lives;
    seeds("full disks", enough, |seed, stats| {
        let harness = &harness.of_seed(seed);
        let mut life = Life::new(harness, seed, Some(FEW));
        (life.faulty, life.filled) = (true, true);
        let done = life.run(60);
        *stats = life.stats;
        done
    })
}

/// Damages the files that a life left.
fn damages<S: KvStore>(harness: &Harness<S>, count: u64) -> Stats {
    let enough = |stats: &Stats| stats.damages >= count;
    seeds("damages", enough, |seed, stats| {
        let harness = &harness.of_seed(seed);
        let mut random = Random(seed);
        let mut life = Life::new(harness, seed, None);
        let mut older = Vec::new();
        for _ in 0..6 {
            life.run(10)?;
            older.push(life.files.cut().contents());
        }
        let disk = life.end(random.one_in(2))?;
        let contents = disk.contents();
        for number in 0..100 {
            let mut damaged = contents.clone();
            let what = damage(&mut damaged, &older, &mut random);
            if damaged == contents {
                continue;
            }
            let means = (random.split(), Workload::new(random.split()));
            let done = harness.check_damaged(&damaged, &life.world, means, stats);
            done.map_err(|failed| {
                if let Some(place) = std::env::var_os("SETTEE_DUMP") {
                    for (name, content) in &damaged {
                        let path = std::path::Path::new(&place).join(name);
                        std::fs::write(path, content.bytes()).expect("it can be written");
                    }
                }
                Failed(format!("damage {number}, {what}: {}", failed.0))
            })?;
        }
        Ok(())
    })
}

/// Lies of syncs that do nothing: changes may be lost, but no content is wrong.
fn lies<S: KvStore>(harness: &Harness<S>, lives: u64) -> Stats {
    let enough = |stats: &Stats| stats.damages >= lives;
    seeds("lies", enough, |seed, stats| {
        let harness = &harness.of_seed(seed);
        let mut random = Random(seed);
        let mut life = Life::new(harness, seed, None);
        life.past = Some(Past::default());
        let of = *random.pick(&[OpKind::Sync, OpKind::Sync, OpKind::SyncNames]);
        life.files.plan().faults.push(Fault {
            of: Some(of),
            named: "",
            from: random.next(if of == OpKind::Sync { 60 } else { 10 }),
            count: *random.pick(&[1, 1, 2, 10]),
            mishap: Mishap::Lie,
        });
        life.run(10 + random.next(40))?;
        let mut possible = Possible::default();
        for world in life.past.iter().flat_map(|past| &past.worlds) {
            for vb in VBS {
                possible.or(vb, Candidate::Exact(world.vbs.get(&vb).cloned()));
            }
            possible.manifests.push(world.manifest.clone());
        }
        possible.manifests.push(None);
        for _ in 0..10 {
            let disk: Disk = life.files.cut_somehow(&mut random);
            let contents = disk.contents();
            let files = SimFiles::over(disk, random.split());
            stats.damages += 1;
            if let Some((store, _)) = harness.open_damaged(&files, &contents, stats)? {
                stats.told += u64::from(judge_found(read(&store), &possible)?);
            }
        }
        Ok(())
    })
}

/// Opens a store with small limits, so that logs become runs, and runs are merged, all the time.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the harness gives each opening threads of its own"
)]
fn open(files: Arc<dyn Files>, threads: Arc<dyn Threads>) -> Opening<DiskStore> {
    let options = DiskOptions {
        log_bytes: 8 << 10,
        free_bytes_min: 0,
        apart_bytes_min: 300,
        runs_max: 3,
        quiet: Duration::from_millis(500),
        dead_bytes_min: 1,
    };
    match DiskStore::open_files(files, &*threads, options) {
        Ok((store, opened)) => Ok((store, opened.clean)),
        Err(error) => Err(Refused {
            damage: matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ),
            text: error.to_string(),
        }),
    }
}

#[test]
fn nothing_is_lost_when_the_power_is_cut() {
    power_cuts(&Harness::new(open), setting("SETTEE_IMAGES", 14_000));
}

#[test]
fn nothing_is_lost_when_operations_fail() {
    let stats = faults(&Harness::new(open), setting("SETTEE_FAULTS", 500));
    assert!(stats.poisoned > 0 && stats.refused > stats.poisoned);
}

#[test]
fn nothing_is_lost_when_the_disk_is_full() {
    let stats = full_disks(&Harness::new(open), setting("SETTEE_FULL", 10));
    assert!(stats.refused > 0);
}

#[test]
fn damage_is_noticed_or_does_no_harm() {
    damages(&Harness::new(open), setting("SETTEE_DAMAGES", 3_000));
}

#[test]
fn lying_disk_loses_changes_but_shows_no_wrong_data() {
    lies(&Harness::new(open), setting("SETTEE_LIES", 500));
}

/// One of three lives is encrypted, half of those from a restart on.
#[test]
fn lives_are_encrypted() {
    let encrypted = |seed: u64| {
        let harness = Harness::new(open).of_seed(seed);
        let mut life = Life::new(&harness, seed, None);
        life.run(20)
            .and_then(|()| life.restart())
            .expect("it lives");
        life.run(40).expect("it goes on");
        let files = life.files.killed().contents();
        let version = |name: &String| files[name].bytes()[8..12] == [0, 0, 0, 2];
        let mut names = files.keys().filter(|name| name.starts_with("log-"));
        names.any(version)
    };
    assert_eq!(
        [1, 2, 3, 6, 9].map(encrypted),
        [false, false, true, true, true]
    );
}

/// A test of the checks: each kind of sync is necessary, and a sync that does nothing is detected.
#[test]
fn each_sync_is_needed() {
    let harness = Harness::new(open);
    let syncs = ["log-", "run-", "values-", "MANIFEST"].map(|named| (OpKind::Sync, named));
    for (of, named) in syncs.into_iter().chain([(OpKind::SyncNames, "")]) {
        let found = (1..30).filter(|seed| {
            let mut life = Life::new(&harness, *seed, None);
            life.files.plan().faults.push(Fault {
                of: Some(of),
                named,
                from: 0,
                count: u64::MAX,
                mishap: Mishap::Lie,
            });
            life.run(40).is_err()
        });
        let found = found.count();
        assert!(found > 2, "{of:?} {named}: {found}");
    }
}

/// A document that is written again and again leaves dead rows in the log. Values are in runs, or apart.
#[test]
fn store_without_space_frees_what_its_log_does_not_need() {
    for apart_bytes_min in [u32::MAX, 300] {
        let options = DiskOptions {
            log_bytes: 1 << 20,
            free_bytes_min: 300 << 10,
            apart_bytes_min,
            quiet: Duration::from_millis(500),
            dead_bytes_min: 1,
            ..DiskOptions::default()
        };
        let files = SimFiles::over(Disk::default(), Random(1));
        files.set_space(900 << 10);
        let threads = SimThreads::default();
        let (store, _) =
            DiskStore::open_files(Arc::new(files), &threads, options).expect("it opens");
        let value = "v".repeat(4_000);
        let mut seqno = 0;
        let mut write = || {
            let replaced = Seqno(seqno);
            seqno += 1;
            try_put(&store, VBS[0], &[(document(seqno, "k", &value), replaced)])
        };
        let refused = (0..500).find_map(|_| write().err());
        let refused = refused.expect("the log takes more than fits");
        assert_eq!(refused.kind, ErrorKind::NoSpace);
        for _ in 0..4 {
            threads.run(WORK_MAX);
            threads.pass(1_000_000_000);
        }
        write().expect("there is space again");
    }
}
