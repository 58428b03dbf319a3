//! The store against the suite of all stores.

use std::path::PathBuf;

use super::*;

fn small() -> DiskOptions {
    DiskOptions {
        log_bytes: 16 << 10,
        free_bytes_min: 0,
        apart_bytes_min: 100,
        runs_max: 3,
        dead_bytes_min: 1,
        ..DiskOptions::default()
    }
}

fn directories() -> impl FnMut(&str) -> PathBuf {
    let place = tempfile::tempdir().expect("a directory");
    move |case| place.path().join(case)
}

#[test]
fn the_suite_passes() {
    let mut directory = directories();
    crate::suite::run(&mut |case| {
        let options = DiskOptions {
            free_bytes_min: 0,
            ..DiskOptions::default()
        };
        DiskStore::open(&directory(case), options)
            .expect("it opens")
            .0
    });
}

#[test]
fn the_suite_passes_with_a_run_of_each_commit() {
    let mut directory = directories();
    crate::suite::run(&mut |case| {
        DiskStore::open(&directory(case), small())
            .expect("it opens")
            .0
    });
}
