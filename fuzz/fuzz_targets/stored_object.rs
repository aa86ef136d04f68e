//! Runs `fuzzing::stored_object`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::stored_object(input));
