//! Fuzz target: runs `wire::checks::frame` on any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::checks::frame(bytes));
