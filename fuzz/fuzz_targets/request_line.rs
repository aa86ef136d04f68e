//! Runs `fuzzing::request_line`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::request_line(input));
