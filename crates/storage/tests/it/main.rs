//! Tests of the disk store: crashes, damage, full file systems, foreign directories.

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
