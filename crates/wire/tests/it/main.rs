//! Tests of the crate from outside: what a peer may send, and what is sent to it.

mod corpus;
mod dcp;
mod frame;
mod golden;
mod properties;
mod rules;
mod support;
