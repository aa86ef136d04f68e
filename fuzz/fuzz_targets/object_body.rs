//! Runs `fuzzing::object_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::object_body(input));
