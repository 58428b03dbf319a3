//! A small blocking client of the KV protocol: one connection, one request at a time, or a stream.
//!
//! It talks to Couchbase servers and, without login and collections, to memcached. [`ConnectOptions`] has all that
//! a connection needs; [`ClientError`] is the reason of a failure. This crate must not depend on a node, the command
//! line or exit codes; it must not print, nor read files or the environment.

mod address;
mod connection;
mod error;
mod feed;
mod input;
mod link;
mod login;
mod map;
mod message;
mod nodes;
mod random;
mod streams;
pub mod testing;
#[cfg(test)]
mod tests;

pub use address::{Address, AddressError, Login, PasswordSource};
pub use connection::{Client, ConnectOptions, KeyForm};
pub use error::ClientError;
pub use feed::{Feed, Outgoing, wait_for_any};
pub use identity::SaltedCache;
pub use input::{ANSWER_LIMITS, Input, Parsed};
pub use link::Link;
pub use message::{Answer, Request};
pub use nodes::{Nodes, map_in};
pub use random::random_u64;
