//! A store over a file system that is simulated: power cuts at all times, faults at every operation, and damage at rest.
//!
//! What a store acknowledged must be there after each of them, and nothing else.

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
