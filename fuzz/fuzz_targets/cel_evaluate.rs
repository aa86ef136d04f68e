//! Runs `fuzzing::cel_evaluate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::cel_evaluate(input));
