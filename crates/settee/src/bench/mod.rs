//! `settee bench`: a load generator for Couchbase and memcached servers.
//!
//! ```text
//! run -- Side A -- worker threads -- event loop -- connections     slices: A B A B ...
//!     `- Side B -- worker threads -- event loop -- connections     only one side works at a time
//! ```
//! A worker owns its connections from beginning to end; the coordinator gives it one [`job`]
//! after the other (load, warm up, slice, slice, ...) and merges what the workers counted.

mod connection;
mod cpu;
mod dcp;
mod distribution;
mod error;
mod job;
mod measure;
mod memcached;
mod options;
mod pace;
mod pressure;
mod random;
mod report;
mod side;
mod sizes;
mod verify;
mod worker;
mod workload;

pub(crate) use options::Args;

use crate::exit::{Failure, Sysexit};
use crate::output::{self, Progress, Style};
use memcached::Memcached;
use options::Plan;
use pressure::Watch;
use report::Report;
use side::{Side, Target};

/// Runs the command.
///
/// # Errors
/// A usage error; a server that cannot be reached or breaks; wrong values; refused operations.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut plan = args.plan()?;
    if let Some(scenario) = args.dcp {
        return dcp::run(scenario, args, plan);
    }
    if let Some(times) = args.overcommit {
        plan.keys = pressure::keys(&targets(args, None)?[0], &plan, times)?;
    }
    let memcached = match &args.vs_memcached {
        Some(program) => Some(Memcached::start(program, &plan)?),
        None => None,
    };
    let progress = Progress::new(args.json);
    let mut sides = Vec::new();
    for target in targets(args, memcached.as_ref())? {
        progress.show(&format!("connecting to {}", target.server.address));
        sides.push(Side::open(target, &plan, random_run()?)?);
    }
    let watched = args.overcommit.is_some() || args.watch_memory;
    let mut watch = watched
        .then(|| Watch::start(&sides[0].target))
        .transpose()?;
    measure(&mut sides, &plan, &progress, watch.as_mut())?;
    drop(progress);
    let report = Report::new(&plan, &sides);
    let counts = report.counts();
    if args.json {
        let mut json = report.to_json();
        if let Some(watch) = &watch {
            json["memory"] = watch.to_json(counts);
        }
        output::print_json(&json)?;
    } else {
        let mut text = report.to_text(Style::of_stdout());
        if let Some(watch) = &watch {
            text += &watch.to_text(counts);
        }
        output::print(text.as_bytes())?;
    }
    drop((sides, memcached));
    verdict(&report)
}

fn targets(args: &Args, memcached: Option<&Memcached>) -> Result<Vec<Target>, Failure> {
    let first = Target {
        name: "A".to_owned(),
        server: args.connect.options()?,
        pid: args.server_pid,
    };
    let second = match (memcached, &args.vs) {
        (Some(memcached), _) => {
            let server = args.connect.options_of(&memcached.address())?;
            Some((server, Some(memcached.pid())))
        }
        (None, Some(address)) => Some((args.connect.options_of(address)?, args.vs_pid)),
        (None, None) => None,
    };
    let second = second.map(|(server, pid)| Target {
        name: "B".to_owned(),
        server,
        pid,
    });
    Ok(std::iter::once(first).chain(second).collect())
}

/// Loads and warms up every side, then lets them take turns: A, B, A, B.
/// What the first server does with its memory is watched, if anything is.
fn measure(
    sides: &mut [Side],
    plan: &Plan,
    progress: &Progress,
    mut watch: Option<&mut Watch>,
) -> Result<(), Failure> {
    for side in &mut *sides {
        if plan.load_first {
            progress.show(&format!("{}: loading {} keys", side.target.name, plan.keys));
            side.load()?;
        }
        progress.show(&format!("{}: warming up", side.target.name));
        side.warm_up(plan)?;
    }
    if let Some(watch) = &mut watch {
        watch.loaded()?;
    }
    for slice in 1..=plan.slices {
        for (index, side) in sides.iter_mut().enumerate() {
            let name = side.target.name.clone();
            let measured = side.measure(plan)?;
            let rate = measured.ops_per_second();
            if let (0, Some(watch)) = (index, &mut watch) {
                watch.sliced(measured)?;
            }
            progress.show(&format!(
                "slice {slice}/{}  {name}: {rate:.0} ops/s",
                plan.slices
            ));
        }
    }
    Ok(())
}

/// Tells values of this run from those of earlier ones.
fn random_run() -> Result<u32, Failure> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Sysexit::Os, format!("no random numbers: {error}")))?;
    Ok(u32::from_be_bytes(bytes))
}

fn verdict(report: &Report) -> Result<(), Failure> {
    let violations = report.violations();
    if violations > 0 {
        return Err(Failure::new(
            Sysexit::Data,
            format!("{violations} wrong values were read"),
        ));
    }
    match report.errors() {
        0 => Ok(()),
        errors => Err(Failure::new(
            Sysexit::TempFail,
            format!("{errors} operations were refused"),
        )),
    }
}

/// A count as a fraction; exact below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds stay far below 2^53"
)]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
