//! Whole clusters in one process, from a seed: the code of this crate on every node, a modelled etcd, a network that
//! delays, loses and doubles, nodes that crash, stop and go on, and copies that are a list of writes. Half of the runs aim:
//! faults come at moments that matter, when copies are sealed or become active, when nodes are marked or come back.
//!
//! `cargo xtask sim cluster` sets `SETTEE_SEEDS=N`, which runs N seeds, and `SETTEE_SEED=N`, which runs one and tells what happens in it; both run so many from there.

mod adoptions;
mod bugs;
mod cases;
mod checks;
mod copy;
mod damage;
mod etcd;
mod failed_over;
mod failures;
mod faults;
mod log;
mod moments;
mod node;
mod restore;
mod rng;
mod spoil;
mod traffic;
mod world;
