//! Runs `fuzzing::accept_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::accept_header(input));
