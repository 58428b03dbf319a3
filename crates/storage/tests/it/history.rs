//! A process is killed while it writes, trims and compacts a history.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use model::{Seqno, VbId};
use storage::{Change, Changes, DiskStore, HistoryLimits, Keep, KvStore, VbBatch};

use crate::workload::{Random, document, open, options, record};

const CHILD: &str = "SETTEE_STORAGE_HISTORY_CHILD";
const ROUNDS: u64 = 6;
const VB: VbId = VbId(3);
/// Versions of one commit, with different keys.
const VERSIONS: u64 = 5;
const KEYS: u64 = 40;
/// Number of the last commits whose versions a trim keeps.
const KEPT_COMMITS: u64 = 40;

/// Returns key and value of a seqno.
fn version(seqno: u64) -> (String, Vec<u8>) {
    let mut random = Random(seqno);
    let length = random.next(400) as usize;
    (format!("key{}", seqno % KEYS), vec![seqno as u8; length])
}

/// Changes of commit `number`, counted from 1; the number is also its time.
struct Versions(u64);

impl Versions {
    fn seqnos(number: u64) -> std::ops::RangeInclusive<u64> {
        (number - 1) * VERSIONS + 1..=number * VERSIONS
    }
}

impl Changes for Versions {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        for seqno in Self::seqnos(self.0) {
            let (key, value) = version(seqno);
            let document = &document(seqno, &key, &value);
            let at_s = self.0 as u32;
            f(Change::Keep { document, at_s });
            let supersedes = Seqno(seqno.saturating_sub(KEYS));
            f(Change::Put {
                document,
                supersedes,
            });
        }
    }
}

fn commit(store: &DiskStore, number: u64) {
    let record = record(number * VERSIONS);
    let batch = VbBatch {
        vb: VB,
        record: &record,
        changes: &Versions(number),
    };
    store.commit(&[batch]).expect("the commit succeeds");
}

fn say(word: &str, number: u64) {
    // On a line of its own, because the test harness may have printed before.
    writeln!(std::io::stdout(), "\n{word} {number}").expect("somebody listens");
}

/// Commits for ever, with trims and compactions beside that; prints each.
fn child(path: &Path, from: u64) -> ! {
    let store = open(path);
    let (tell, told) = std::sync::mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in told {
                let before = number.saturating_sub(KEPT_COMMITS);
                say("trimming", before);
                let limits = HistoryLimits {
                    bytes: u64::MAX,
                    before_s: before as u32,
                };
                let trimmed = store.trim_history(VB, limits, &mut |_, _| false);
                trimmed.expect("it is trimmed");
                let compacted = store.compact(VB, &mut |_, _| Keep::Keep);
                compacted.expect("it is compacted");
            }
        });
        for number in from + 1.. {
            commit(&store, number);
            say("committed", number);
            if number.is_multiple_of(20) {
                tell.send(number).expect("it listens");
            }
        }
    });
    unreachable!("it commits for ever")
}

/// Kills a child at a random moment. Returns its last successful commit, and the latest time before
/// which a trim may have dropped everything.
fn run_until_killed(path: &Path, from: u64, random: &mut Random) -> (u64, u64) {
    let mut process = Command::new(std::env::current_exe().expect("a path"))
        .args([
            "history::a_killed_process_loses_nothing_of_a_history",
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, path)
        .env("SETTEE_STORAGE_HISTORY_FROM", from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    let target = from + 1 + random.next(160);
    let (mut committed, mut trimmed) = (from, 0);
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let mut note = |line: &str| {
        if let Some(number) = line.strip_prefix("committed ") {
            committed = number.parse().expect("a number");
        }
        if let Some(number) = line.strip_prefix("trimming ") {
            trimmed = number.parse().expect("a number");
        }
        committed
    };
    for line in lines.by_ref() {
        if note(&line.expect("text")) >= target {
            // A random moment within the next commit.
            for _ in 0..random.next(200_000) {
                std::hint::spin_loop();
            }
            process.kill().expect("it was running");
            break;
        }
    }
    process.wait().expect("it can be waited for");
    for line in lines.map_while(Result::ok) {
        note(&line);
    }
    (committed, trimmed)
}

/// Checks that the last commit is complete: the newest version of each key once, and every version
/// since `trimmed` once in the history, in order. Returns the last commit.
fn check(store: &DiskStore, committed: u64, trimmed: u64) -> u64 {
    let snapshot = store.snapshot(VB).unwrap();
    let high = snapshot.high_seqno().0;
    let last = high / VERSIONS;
    assert!(high.is_multiple_of(VERSIONS) && (committed..=committed + 1).contains(&last));

    let mut newest = BTreeMap::new();
    for row in snapshot.by_seqno(Seqno::ZERO) {
        let row = row.unwrap();
        let twice = newest.insert(row.key().to_vec(), row.seqno().0);
        assert_eq!(twice, None, "a key has two rows");
    }
    let rows: Vec<u64> = newest.into_values().collect();
    let wanted = high.saturating_sub(KEYS) + 1..=high;
    assert!(rows.len() == wanted.clone().count() && rows.iter().all(|row| wanted.contains(row)));

    let from = snapshot.history_from().unwrap().expect("a history").0;
    let oldest = *Versions::seqnos(trimmed.max(1)).start();
    assert!(from <= oldest, "from {from}, and {oldest} was to stay");
    let mut next = from;
    for row in snapshot.with_history(Seqno(from)) {
        let row = row.expect("a row");
        let (key, value) = version(next);
        assert_eq!((row.seqno().0, row.key()), (next, key.as_bytes()));
        assert_eq!(row.value(), value);
        next += 1;
    }
    assert_eq!(next, high + 1);
    last
}

#[test]
fn a_killed_process_loses_nothing_of_a_history() {
    if let Some(path) = std::env::var_os(CHILD) {
        let from = std::env::var("SETTEE_STORAGE_HISTORY_FROM").expect("set together");
        child(Path::new(&path), from.parse().expect("a number"));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    let (mut commits, mut trimmed) = (0, 0);
    for _ in 0..ROUNDS {
        let (committed, before) = run_until_killed(dir.path(), commits, &mut random);
        assert!(committed > commits, "the child committed nothing");
        trimmed = trimmed.max(before);
        let (store, opened) = DiskStore::open(dir.path(), options()).unwrap();
        assert!(!opened.clean);
        commits = check(&store, committed, trimmed) + 1;
        commit(&store, commits);
        check(&store, commits, trimmed);
        store.close().unwrap();
    }
    assert!(trimmed > 1, "something was dropped");
}

/// A salvage reports the data that it does not copy.
#[test]
fn salvage_reports_a_history_that_it_does_not_copy() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = open(&at("old"));
    for number in 1..=200 {
        commit(&store, number);
    }
    store.close().unwrap();
    drop(store);
    let report = storage::salvage(&at("old"), &at("new"), None).unwrap();
    assert_eq!(report.rows, KEYS);
    assert_eq!(report.history_left, 200 * VERSIONS);
    assert!(!report.is_whole());
    let (store, _) = DiskStore::open(&at("new"), options()).unwrap();
    assert_eq!(store.snapshot(VB).unwrap().history_from().unwrap(), None);
}
