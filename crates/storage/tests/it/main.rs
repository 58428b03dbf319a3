//! The disk store against the world: crashes, damage, full file systems, strange directories.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "these tests damage files")]

mod at_rest;
mod crash;
mod damage;
mod directory;
mod encryption;
mod formats;
mod full;
mod history;
mod salvage;
mod workload;
