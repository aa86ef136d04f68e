//! Runs `fuzzing::cel_compile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::cel_compile(input));
