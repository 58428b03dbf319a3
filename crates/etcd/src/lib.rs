//! A client of etcd: it sends the requests of `cluster::coord`, and delivers the answers.
//!
//! This crate must not know of nodes, buckets or maps of vBuckets. It uses the JSON gateway that etcd 3.4 and
//! newer serve at their client port, over HTTP/1.1, on one thread of its own.

mod access;
mod check;
mod connection;
mod etcd;
mod lines;
mod members;
mod messages;
mod names;
mod options;
mod problem;
mod refusal;
mod watches;

pub use check::EtcdVersion;
pub use etcd::Etcd;
pub use names::find;
pub use options::{ClusterAddress, Endpoint, Endpoints, Login, Options, check_name};
pub use problem::{AnswerResult, Problem, ProblemKind};
