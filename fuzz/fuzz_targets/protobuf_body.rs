//! Runs `fuzzing::protobuf_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::protobuf_body(input));
