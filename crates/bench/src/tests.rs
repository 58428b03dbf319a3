//! Tests of whole runs against a fake server.

use std::time::Duration;

use client::testing::{FakeServer, Fault};
use wire::Status;

use crate::console::Progress;
use crate::distribution::Distribution;
use crate::error::{Cause, Error};
use crate::measure::Counts;
use crate::plan::{Amount, Plan, Ratio};
use crate::protocol::Protocol;
use crate::report::Report;
use crate::run::{measure, verdict};
use crate::side::{Side, Target};
use crate::sizes::Sizes;

const KEYS: u64 = 50;

/// Returns a plan with little load, as a base for tests.
pub(crate) fn small_plan() -> Plan {
    Plan {
        connections: 1,
        threads: 1,
        depth: 1,
        keys: 1_000,
        distribution: Distribution::Uniform,
        ratio: Ratio { sets: 1, gets: 3 },
        sizes: Sizes::of(100),
        deletes_percent: 0,
        slice: Amount::Ops(1),
        slices: 1,
        warmup: Duration::ZERO,
        rate: None,
        verify: false,
        protocol: Protocol::Binary,
        durability: None,
        load_first: true,
        seed: 1,
        timeout: Duration::from_secs(10),
        stamped_since: None,
    }
}

fn plan() -> Plan {
    Plan {
        connections: 5,
        threads: 2,
        depth: 4,
        keys: KEYS,
        ratio: Ratio { sets: 1, gets: 2 },
        sizes: Sizes::of(64),
        slice: Amount::Ops(1_001),
        slices: 2,
        verify: true,
        ..small_plan()
    }
}

fn cause(error: Error) -> Cause {
    match error {
        Error::Run { cause, .. } => cause,
        Error::Client(error) => panic!("{error}"),
    }
}

fn run_against(server: &FakeServer, plan: &Plan) -> Result<Vec<Side>, Error> {
    run_while(server, plan, &(Box::new(|_: &str| true) as Progress))
}

fn run_while(server: &FakeServer, plan: &Plan, goes_on: &Progress) -> Result<Vec<Side>, Error> {
    let target = Target {
        name: "A".to_owned(),
        server: server.options(),
        pid: None,
    };
    let mut sides = vec![Side::open(target, plan, 7)?];
    measure(&mut sides, plan, goes_on, None)?;
    Ok(sides)
}

fn counts(fault: Fault, plan: &Plan) -> Counts {
    let sides = run_against(&FakeServer::start(false, fault), plan).unwrap();
    let mut counts = Counts::default();
    for slice in &sides[0].slices {
        counts.merge(&slice.counts);
    }
    counts
}

fn failure(fault: Fault) -> Cause {
    let failed = run_against(&FakeServer::start(false, fault), &plan());
    cause(failed.err().unwrap())
}

#[test]
fn stopped_run_keeps_its_slices() {
    let server = FakeServer::start(false, Fault::None);
    let goes_on: Progress = Box::new(|text: &str| !text.starts_with("slice 1"));
    let sides = run_while(&server, &plan(), &goes_on).unwrap();
    let counts: Vec<u64> = sides[0].slices.iter().map(|one| one.counts.ops).collect();
    assert_eq!(counts, [1_001]);
}

#[test]
fn correct_server_has_no_violations() {
    for login in [true, false] {
        let server = FakeServer::start(login, Fault::None);
        let plan = plan();
        let sides = run_against(&server, &plan).unwrap();
        assert_eq!(server.documents() as u64, KEYS);
        for slice in &sides[0].slices {
            let counts = &slice.counts;
            assert_eq!((counts.ops, counts.gets + counts.sets), (1_001, 1_001));
            assert_eq!(counts.latencies.count(), 1_001);
            assert!(counts.sets > 200 && counts.gets > 500);
            assert_eq!(
                counts.misses + counts.errors_total() + counts.violations.total(),
                0
            );
        }
        assert!(verdict(&Report::new(&plan, &sides)).is_ok());
    }
}

#[test]
fn refused_requests_are_sent_to_node_named_in_refusal() {
    let there = FakeServer::start(true, Fault::None);
    let here = FakeServer::start(true, Fault::Moved(there.port()));
    for rate in [None, Some(100_000.0)] {
        let plan = Plan { rate, ..plan() };
        let sides = run_against(&here, &plan).unwrap();
        let (here, there) = (here.documents(), there.documents());
        assert!(here > 0 && there > 0, "{here} {there}");
        assert_eq!((here + there) as u64, KEYS);
        let report = Report::new(&plan, &sides);
        assert!(verdict(&report).is_ok());
        let counts = report.counts();
        assert_eq!((counts.ops, counts.latencies.count()), (2_002, 2_002));
        assert_eq!(counts.misses, 0);
    }
}

#[test]
fn refused_requests_are_counted_once() {
    let there = FakeServer::start(true, Fault::None);
    let here = FakeServer::start(true, Fault::Moved(there.port()));
    let plan = Plan {
        load_first: false,
        ratio: Ratio { sets: 1, gets: 0 },
        slices: 1,
        ..plan()
    };
    let sides = run_against(&here, &plan).unwrap();
    let counts = &sides[0].slices[0].counts;
    assert_eq!((counts.sets, counts.errors_total()), (1_001, 0));
    // At most the requests that each connection sent before it had the newer map.
    assert!((1..=5 * 4).contains(&counts.retries), "{}", counts.retries);
}

#[test]
fn faulty_servers_have_violations() {
    let plan = plan();
    assert!(counts(Fault::OldRevision, &plan).violations.stale > 0);
    assert!(counts(Fault::OldValue, &plan).violations.stale > 0);
    assert!(counts(Fault::OtherKey, &plan).violations.wrong_key > 0);
    let flipped = counts(Fault::FlippedBit, &plan);
    assert_eq!(flipped.violations.corrupt, flipped.gets);
}

#[test]
fn wrong_values_and_refusals_decide_the_verdict() {
    for (fault, blamed) in [
        (Fault::FlippedBit, Cause::WrongData),
        (Fault::TemporaryFailure, Cause::Overload),
    ] {
        let plan = plan();
        let sides = run_against(&FakeServer::start(false, fault), &plan).unwrap();
        let verdict = verdict(&Report::new(&plan, &sides));
        assert_eq!(cause(verdict.unwrap_err()), blamed);
    }
}

#[test]
fn a_load_goes_on_after_temporary_failures_only() {
    let server = FakeServer::start(false, Fault::TemporaryFailure);
    let plan = Plan {
        ratio: Ratio { sets: 0, gets: 1 },
        ..plan()
    };
    let sides = run_against(&server, &plan).unwrap();
    assert_eq!(
        server.documents() as u64,
        KEYS,
        "every key was loaded in the end"
    );
    assert_eq!(sides[0].slices[0].counts.misses, 0);
    assert_eq!(failure(Fault::TooBig), Cause::Refused(Status::E2BIG));
}

#[test]
fn without_load_reads_miss() {
    let plan = Plan {
        load_first: false,
        ratio: Ratio { sets: 0, gets: 1 },
        ..plan()
    };
    let counts = counts(Fault::None, &plan);
    assert_eq!((counts.misses, counts.gets), (2_002, 2_002));
}

#[test]
fn a_broken_server_ends_the_run() {
    assert_eq!(failure(Fault::WrongOpaque), Cause::Protocol);
    assert_eq!(failure(Fault::Close), Cause::Unavailable);
}

#[test]
fn open_loop_follows_schedule() {
    let slice = Amount::Time(Duration::from_millis(100));
    let plan = Plan {
        rate: Some(5_000.0),
        slice,
        slices: 1,
        ..plan()
    };
    let counts = counts(Fault::None, &plan);
    // There are two workers, and each sends operation 0 at once: 200 and 300 operations.
    assert_eq!(counts.latencies.count(), 500);
    assert_eq!(counts.violations.total() + counts.errors_total(), 0);
}

#[test]
fn a_closed_loop_ends_in_time() {
    let slice = Amount::Time(Duration::from_millis(50));
    let plan = Plan {
        slice,
        slices: 1,
        verify: false,
        ..plan()
    };
    let sides = run_against(&FakeServer::start(true, Fault::None), &plan).unwrap();
    let measured = &sides[0].slices[0];
    assert_eq!(measured.elapsed, Duration::from_millis(50));
    assert!(measured.counts.ops > 0 && measured.counts.ops <= measured.counts.latencies.count());
}
