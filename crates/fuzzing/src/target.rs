//! The list of targets, with what each of them begins from.

use crate::{accept_header, discovery_json, object_body, patch, request_line, selectors, stored_object};

/// One thing to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of the file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Checks one input.
    pub run: fn(&[u8]),
    /// Inputs that reach far, for mutations to start from.
    pub seeds: &'static [&'static str],
    /// Pieces of the language, which mutations insert.
    pub words: &'static [&'static str],
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "request_line", run: request_line, seeds: request_line::SEEDS, words: request_line::WORDS },
    Target { name: "accept_header", run: accept_header, seeds: accept_header::SEEDS, words: accept_header::WORDS },
    Target { name: "selectors", run: selectors, seeds: selectors::SEEDS, words: selectors::WORDS },
    Target { name: "discovery_json", run: discovery_json, seeds: discovery_json::SEEDS, words: discovery_json::WORDS },
    Target { name: "object_body", run: object_body, seeds: object_body::SEEDS, words: object_body::WORDS },
    Target { name: "patch", run: patch, seeds: patch::SEEDS, words: patch::WORDS },
    Target { name: "stored_object", run: stored_object, seeds: stored_object::SEEDS, words: stored_object::WORDS },
];
