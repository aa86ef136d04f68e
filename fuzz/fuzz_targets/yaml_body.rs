//! Runs `fuzzing::yaml_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::yaml_body(input));
