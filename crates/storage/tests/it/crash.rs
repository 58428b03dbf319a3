//! A process is killed during a commit.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use storage::{DiskStore, KvStore};

use crate::workload::{Random, VBS, World, open, options, read};

const CHILD: &str = "SETTEE_STORAGE_CRASH_CHILD";
const ROUNDS: u64 = 8;

/// Returns the content of the store in the workload, each vBucket separately: at least commit
/// `acknowledged`, and at most one more.
fn check(store: &DiskStore, acknowledged: u64) -> World {
    let mut world = World::default();
    for _ in 0..acknowledged {
        world.advance();
    }
    let before = world.clone();
    world.advance();
    let mut ahead = 0;
    for vb in VBS {
        let found = read(store, vb).expect("every row can be read");
        let old = before.vbs.get(&vb).cloned().unwrap_or_default();
        if found != old {
            assert_eq!(
                found, world.vbs[&vb],
                "{vb} is neither at commit {acknowledged} nor after"
            );
            ahead += 1;
        }
    }
    if ahead == VBS.len() { world } else { before }
}

/// Commits for ever, and prints a line after each commit.
fn child(path: &Path, from: u64) -> ! {
    let store = open(path);
    let mut world = World::default();
    while world.commits < from {
        world.advance();
    }
    let mut out = std::io::stdout();
    loop {
        world.commit(&store).expect("the commit succeeds");
        // On a line of its own, because the test harness may have printed before.
        writeln!(out, "\ncommitted {}", world.commits).expect("somebody listens");
    }
}

fn commits_until_killed(path: &Path, from: u64, random: &mut Random) -> u64 {
    let mut process = Command::new(std::env::current_exe().expect("a path"))
        .args([
            "crash::a_killed_process_loses_nothing_acknowledged",
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, path)
        .env("SETTEE_STORAGE_CRASH_FROM", from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    let target = from + 1 + random.next(60);
    let mut acknowledged = from;
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    for line in lines.by_ref() {
        let line = line.expect("text");
        if let Some(number) = line.strip_prefix("committed ") {
            acknowledged = number.parse().expect("a number");
        }
        if acknowledged >= target {
            // A random moment within the next commit.
            for _ in 0..random.next(200_000) {
                std::hint::spin_loop();
            }
            process.kill().expect("it was running");
            break;
        }
    }
    process.wait().expect("it can be waited for");
    // Lines printed before the end of the process.
    for line in lines.map_while(Result::ok) {
        if let Some(number) = line.strip_prefix("committed ") {
            acknowledged = number.parse().expect("a number");
        }
    }
    acknowledged
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    if let Some(path) = std::env::var_os(CHILD) {
        let from = std::env::var("SETTEE_STORAGE_CRASH_FROM").expect("set together");
        child(Path::new(&path), from.parse().expect("a number"));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let mut commits = 0;
    for round in 0..ROUNDS {
        let acknowledged = commits_until_killed(dir.path(), commits, &mut random);
        assert!(
            acknowledged > commits,
            "the child of round {round} committed nothing"
        );
        let (store, opened) = DiskStore::open(dir.path(), options()).unwrap();
        assert!(!opened.clean);
        let mut world = check(&store, acknowledged);
        if world.commits == acknowledged {
            // Some vBuckets may be one commit ahead: bring the others there.
            for vb in VBS {
                store.remove(&[vb]).unwrap();
            }
            rebuild(&store, &world);
        }
        world.commit(&store).unwrap();
        assert_eq!(check(&store, world.commits).commits, world.commits);
        commits = world.commits;
        store.close().unwrap();
    }
}

/// Writes the content of `world` into an empty store.
fn rebuild(store: &DiskStore, world: &World) {
    for (vb, contents) in &world.vbs {
        let changes: Vec<_> = contents
            .rows
            .iter()
            .map(|(seqno, (key, value))| {
                (
                    crate::workload::document(*seqno, key, value),
                    model::Seqno::ZERO,
                )
            })
            .collect();
        let record = crate::workload::record(contents.high);
        let batch = storage::VbBatch {
            vb: *vb,
            record: &record,
            changes: &changes.as_slice(),
        };
        store.commit(&[batch]).unwrap();
    }
}
