//! Fuzz target: runs `wire::checks::response` on any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::checks::response(bytes));
