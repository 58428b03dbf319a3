//! Fuzz target: runs `wire::checks::text` on any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::checks::text(bytes));
