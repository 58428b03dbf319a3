//! The load generator behind `settee bench`, for Couchbase and memcached servers.
//!
//! What this crate may not do: be known by a node; print; know exit codes; look for passwords or
//! certificates, since servers come as [`client::ConnectOptions`]. It owns its [`Options`] as a
//! clap struct: a plain copy of thirty options would only be one more thing to keep in step.
//!
//! ```text
//! run -- Side A -- worker threads -- event loop -- connections     slices: A B A B ...
//!     `- Side B -- worker threads -- event loop -- connections     only one side works at a time
//! ```
//! A connection has a socket to each node of the bucket, and sends each request to the node that has its vBucket.
//! A worker owns its connections from beginning to end; the coordinator gives it one job after
//! the other (load, warm up, slice, slice, ...) and merges what the workers counted.

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
