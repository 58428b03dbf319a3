//! Whole clusters in one process, from a seed: the code of crates `cluster` and `copies` on every node, a modelled etcd, a network that
//! delays, loses and doubles, nodes that crash, stop and go on; real buckets on modelled disks, with real streams between them. Half of the runs aim:
//! faults come at moments that matter, when copies are sealed or become active, when nodes are marked or come back.
//!
//! `cargo xtask sim cluster` sets `SETTEE_SEEDS=N`, which runs N seeds, and `SETTEE_SEED=N`, which runs one and tells what happens in it; both run so many from there.

mod adoptions;
mod buckets;
mod bugs;
mod cases;
mod checks;
mod damage;
mod disk;
mod etcd;
mod failed_over;
mod failures;
mod faults;
mod link;
mod moments;
mod node;
mod planted;
mod producer;
mod restore;
mod rng;
mod spoil;
mod stepping;
mod traffic;
mod world;
