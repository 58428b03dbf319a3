//! Whole clusters in one process, from a seed: the code of crates `cluster` and `copies` on every node, a
//! modelled etcd, a network that delays, loses and duplicates messages, and nodes that crash and pause.
//! Buckets are real, on modelled disks, with real streams between them. Half of the runs aim their faults at
//! critical moments: when copies are sealed or become active, when nodes are marked or come back.
//!
//! `cargo xtask sim cluster` sets `SETTEE_SEEDS=N`, which runs N seeds, and `SETTEE_SEED=N`, which runs one
//! seed and prints its events. With both, N seeds run from that seed on.

mod adoptions;
mod buckets;
mod bugs;
mod cases;
mod checks;
mod clocks;
mod damage;
mod disk;
mod etcd;
mod failed_over;
mod failures;
mod faults;
mod link;
mod moments;
mod node;
mod operators;
mod parts;
mod planted;
mod producer;
mod restore;
mod rng;
mod spoil;
mod stepping;
mod stops;
mod subscriber;
mod traffic;
mod world;
