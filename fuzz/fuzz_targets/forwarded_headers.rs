//! Runs `fuzzing::forwarded_headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::forwarded_headers(input));
