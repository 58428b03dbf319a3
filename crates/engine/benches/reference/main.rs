//! The benchmarks of the reference engine, with their names and set-up: one JSON object a line. The
//! argument after `--` filters by name.
//!
//! They measure the time for which the vBucket's lock would be held. Where the mechanism differs,
//! the functions explain the equivalent.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "benchmarks read clocks, run threads and share a vBucket between them"
)]

mod checkpoint;
mod table;
mod track;
mod vbucket;

#[expect(dead_code, reason = "some of it is for other benchmarks")]
#[path = "../common/mod.rs"]
mod common;

use benchkit::Rows;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut rows = Rows::default();
    checkpoint::add(&mut rows);
    track::add(&mut rows);
    table::add(&mut rows);
    vbucket::add(&mut rows);
    rows.run();
}
