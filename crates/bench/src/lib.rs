//! The load generator behind `settee bench`, for Couchbase and memcached servers.
//!
//! This crate may not be used by a node, print, use exit codes, or look for passwords or certificates: servers
//! are given as [`client::ConnectOptions`]. It defines its [`Options`] as a clap struct, since a plain copy of
//! thirty options would have to be kept in step.
//!
//! ```text
//! run -- Side A -- worker threads -- event loop -- connections     slices: A B A B ...
//!     `- Side B -- worker threads -- event loop -- connections     only one side works at a time
//! ```
//! A connection has a socket to each node of the bucket, and sends each request to the node of its vBucket. A
//! worker owns its connections from beginning to end. The coordinator gives it one job after the other (load,
//! warm up, slice, slice, ...) and merges the counts of the workers.

mod connection;
mod console;
mod dcp;
mod distribution;
mod error;
mod job;
mod measure;
mod memcached;
mod numbers;
mod options;
mod pace;
mod plan;
mod pressure;
mod process;
mod protocol;
mod random;
mod report;
mod routes;
mod run;
mod scenario;
mod side;
mod sizes;
mod table;
#[cfg(test)]
mod tests;
mod times;
mod verify;
mod worker;
mod workload;

pub use console::{Progress, Style};
pub use error::{Cause, Error};
pub use options::Options;
pub use run::{Outcome, run};
