//! Runs `fuzzing::discovery_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::discovery_json(input));
