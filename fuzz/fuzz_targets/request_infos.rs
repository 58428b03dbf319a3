//! Fuzz target: runs `wire::checks::request_infos` on any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::checks::request_infos(bytes));
