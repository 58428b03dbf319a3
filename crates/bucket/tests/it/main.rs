//! A bucket over real stores, with workers and without.

#![expect(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

mod backfilling;
mod backfills;
mod chosen;
mod collections;
mod compaction;
mod crashes;
mod crowd;
mod ephemeral;
mod expiry;
mod faults;
mod faulty;
mod flushing;
mod full_eviction;
mod history;
mod hooked;
mod leases;
mod lifecycle;
mod policy;
mod pool;
mod pressure;
mod quarantine;
mod refill;
mod replica;
mod restart;
mod settings;
mod stores;
mod summary;
mod world;
