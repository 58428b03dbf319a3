//! Tests of the crate from outside: input from peers, and output to them.

mod corpus;
mod dcp;
mod frame;
mod golden;
mod properties;
mod rules;
mod support;
