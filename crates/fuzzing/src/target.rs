//! The list of targets with their seeds.

use crate::{
    accept_header, cel, cel_compile, cel_evaluate, discovery_json, object_body, patch, pattern, request_line,
    selectors, stored_object,
};

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name of the target and of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Checks the invariants for one input.
    pub run: fn(&[u8]),
    /// Inputs with good coverage, as starting points for mutations.
    pub seeds: &'static [&'static str],
    /// Tokens of the input language, which mutations insert.
    pub dictionary: &'static [&'static str],
}

/// All targets; each has a file in `fuzz/fuzz_targets`.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "request_line",
        run: request_line,
        seeds: request_line::SEEDS,
        dictionary: request_line::DICTIONARY,
    },
    FuzzTarget {
        name: "accept_header",
        run: accept_header,
        seeds: accept_header::SEEDS,
        dictionary: accept_header::DICTIONARY,
    },
    FuzzTarget { name: "selectors", run: selectors, seeds: selectors::SEEDS, dictionary: selectors::DICTIONARY },
    FuzzTarget {
        name: "discovery_json",
        run: discovery_json,
        seeds: discovery_json::SEEDS,
        dictionary: discovery_json::DICTIONARY,
    },
    FuzzTarget {
        name: "object_body",
        run: object_body,
        seeds: object_body::SEEDS,
        dictionary: object_body::DICTIONARY,
    },
    FuzzTarget { name: "patch", run: patch, seeds: patch::SEEDS, dictionary: patch::DICTIONARY },
    FuzzTarget {
        name: "stored_object",
        run: stored_object,
        seeds: stored_object::SEEDS,
        dictionary: stored_object::DICTIONARY,
    },
    FuzzTarget { name: "cel_compile", run: cel_compile, seeds: cel::SEEDS, dictionary: cel::DICTIONARY },
    FuzzTarget { name: "cel_evaluate", run: cel_evaluate, seeds: cel::SEEDS, dictionary: cel::DICTIONARY },
    FuzzTarget { name: "pattern", run: pattern, seeds: pattern::SEEDS, dictionary: pattern::DICTIONARY },
];
