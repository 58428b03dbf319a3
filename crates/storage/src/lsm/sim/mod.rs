//! A store over a simulated file system: power failures at all times, failures of every operation, and damage at rest.
//!
//! After each of them the store must have exactly the acknowledged changes.

mod call;
mod content;
mod damage;
mod disk;
mod files;
mod harness;
mod life;
mod plan;
mod possible;
mod random;
mod read;
mod reads;
mod tests;
mod threads;
mod verdict;
mod workload;
mod world;
