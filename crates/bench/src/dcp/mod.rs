//! `settee bench --dcp`: measures cost and speed of change streams.
//!
//! ```text
//! Side -- connections that write and read      (as in every other run)
//! Follower -- one connection with a stream of every vBucket, read by one thread
//! Producer -- one connection that brings changes to the node, in scenario `consumer`
//! ```
//! A scenario drives them and fills a [`Sheet`].

mod consumer;
mod cpu;
mod drain;
mod dropped;
mod follower;
mod front;
mod idle;
mod latency;
mod scene;
mod sheet;

use crate::console::Progress;
use crate::error::Error;
use crate::plan::Plan;
use crate::scenario::{Measurement, Scenario};
use crate::side::Target;
use scene::Scene;

pub(crate) use sheet::Sheet;

/// Runs one scenario.
pub(crate) fn run(
    measurement: Measurement,
    target: Target,
    plan: Plan,
    progress: Progress,
) -> Result<Sheet, Error> {
    let mut scene = Scene::new(target, plan, progress);
    match measurement.scenario {
        Scenario::Drain => drain::run(&mut scene, measurement.from),
        Scenario::Latency => latency::run(&mut scene),
        Scenario::Front => front::run(&mut scene),
        Scenario::Idle => idle::run(&mut scene),
        Scenario::Dropped => dropped::run(&mut scene),
        Scenario::Consumer => consumer::run(&mut scene, measurement.load),
    }
}
