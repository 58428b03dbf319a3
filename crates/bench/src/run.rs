//! A run, from its options to its outcome.

use client::{ConnectOptions, Nodes};
use serde_json::Value;

use crate::console::{Progress, Style};
use crate::dcp;
use crate::error::{Cause, Error};
use crate::memcached::Memcached;
use crate::options::Options;
use crate::plan::Plan;
use crate::pressure::{self, Watch};
use crate::random::random_run;
use crate::report::Report;
use crate::side::{Side, Target};

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The table.
    pub text: String,
    /// The JSON object.
    pub json: Value,
    /// Whether the server returned correct data.
    pub verdict: Result<(), Error>,
}

/// Puts load on `server`, and in turn on a second one if there is one.
///
/// # Errors
/// Options do not fit; a server cannot be reached, breaks the protocol or refuses requests.
pub fn run(
    options: &Options,
    server: ConnectOptions,
    second: Option<ConnectOptions>,
    style: Style,
    progress: Progress,
) -> Result<Outcome, Error> {
    let mut plan = options.plan(&server)?;
    let memcached = options.vs_memcached.as_ref();
    let memcached = memcached.map(|program| Memcached::start(program, &plan));
    let memcached = memcached.transpose()?;
    let second = match &memcached {
        Some(memcached) => Some((memcached.server(plan.timeout), Some(memcached.pid()))),
        None => second.map(|server| (server, options.vs_pid)),
    };
    let first = Target {
        name: "A".to_owned(),
        server,
        pid: options.server_pid,
    };
    if let Some(option) = options.of_one_node() {
        is_on_one_node(&first, option)?;
    }
    if let Some(measurement) = options.measurement() {
        let sheet = dcp::run(measurement, first, plan, progress)?;
        return Ok(Outcome {
            text: sheet.to_text(style),
            json: sheet.to_json(),
            verdict: Ok(()),
        });
    }
    if let Some(times) = options.overcommit {
        plan.keys = pressure::keys(&first, &plan, times)?;
    }
    let second = second.map(|(server, pid)| Target {
        name: "B".to_owned(),
        server,
        pid,
    });
    let mut sides = Vec::new();
    for target in std::iter::once(first).chain(second) {
        progress(&format!("connecting to {}", target.server.address));
        sides.push(Side::open(target, &plan, random_run()?)?);
    }
    let watched = options.overcommit.is_some() || options.watch_memory;
    let mut watch = watched
        .then(|| Watch::start(&sides[0].target))
        .transpose()?;
    measure(&mut sides, &plan, &progress, watch.as_mut())?;
    let report = Report::new(&plan, &sides);
    let (mut text, mut json) = (report.to_text(style), report.to_json());
    if let Some(watch) = &watch {
        text += &watch.to_text(report.counts());
        json["memory"] = watch.to_json(report.counts());
    }
    Ok(Outcome {
        text,
        json,
        verdict: verdict(&report),
    })
}

/// Refuses an option that measures one node if the bucket is active on several nodes.
fn is_on_one_node(target: &Target, option: &str) -> Result<(), Error> {
    let (nodes, _) = Nodes::connect(&target.server)?;
    match nodes.active().len() {
        0 | 1 => Ok(()),
        count => Err(Error::usage(format!(
            "{option}: it measures one node, and {} is active on {count} nodes of a cluster",
            target.server.address
        ))),
    }
}

/// Loads and warms up every side, then lets the sides take turns: A, B, A, B. An interrupted run ends after a
/// turn. `watch` watches the memory of the first server.
pub(crate) fn measure(
    sides: &mut [Side],
    plan: &Plan,
    progress: &Progress,
    mut watch: Option<&mut Watch>,
) -> Result<(), Error> {
    for side in &mut *sides {
        if plan.load_first {
            progress(&format!("{}: loading {} keys", side.target.name, plan.keys));
            side.load()?;
        }
        progress(&format!("{}: warming up", side.target.name));
        side.warm_up(plan)?;
    }
    if let Some(watch) = &mut watch {
        watch.loaded()?;
    }
    for slice in 1..=plan.slices {
        let mut goes_on = true;
        for (index, side) in sides.iter_mut().enumerate() {
            let name = side.target.name.clone();
            let measured = side.measure(plan)?;
            let rate = measured.ops_per_second();
            if let (0, Some(watch)) = (index, &mut watch) {
                watch.sliced(measured)?;
            }
            goes_on &= progress(&format!(
                "slice {slice}/{}  {name}: {rate:.0} ops/s",
                plan.slices
            ));
        }
        if !goes_on {
            break;
        }
    }
    Ok(())
}

pub(crate) fn verdict(report: &Report) -> Result<(), Error> {
    let violations = report.violations();
    if violations > 0 {
        return Err(Error::new(
            Cause::WrongData,
            format!("{violations} wrong values were read"),
        ));
    }
    match report.errors() {
        0 => Ok(()),
        errors => Err(Error::new(
            Cause::Overload,
            format!("{errors} operations were refused"),
        )),
    }
}
