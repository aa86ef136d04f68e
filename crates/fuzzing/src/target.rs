//! The list of targets with their seeds.

use crate::{
    accept_header, cel, cel_compile, cel_evaluate, certificate, discovery_json, forwarded_headers, object_body, patch,
    pattern, protobuf_body, request_line, selectors, stored_object, token, yaml_body,
};

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name of the target and of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Checks the invariants for one input.
    pub run: fn(&[u8]),
    /// Inputs of a short run: about half a second in an unoptimised build.
    pub short_run: usize,
    seeds: SeedList,
    dictionary: SeedList,
}

/// Inputs, as they are written in the source.
#[derive(Clone, Copy, Debug)]
enum SeedList {
    Text(&'static [&'static str]),
    /// Binary formats, in hexadecimal digits.
    Hex(&'static [&'static str]),
}

impl FuzzTarget {
    /// Inputs with good coverage, as starting points for mutations.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        self.seeds.decode()
    }

    /// Tokens of the input language, which mutations insert.
    pub fn dictionary(&self) -> Vec<Vec<u8>> {
        self.dictionary.decode()
    }

    const fn text(
        name: &'static str,
        run: fn(&[u8]),
        short_run: usize,
        seeds: &'static [&'static str],
        dictionary: &'static [&'static str],
    ) -> Self {
        Self { name, run, short_run, seeds: SeedList::Text(seeds), dictionary: SeedList::Text(dictionary) }
    }

    const fn binary(
        name: &'static str,
        run: fn(&[u8]),
        short_run: usize,
        seeds: &'static [&'static str],
        dictionary: &'static [&'static str],
    ) -> Self {
        Self { name, run, short_run, seeds: SeedList::Hex(seeds), dictionary: SeedList::Hex(dictionary) }
    }
}

impl SeedList {
    fn decode(self) -> Vec<Vec<u8>> {
        match self {
            Self::Text(list) => list.iter().map(|text| text.as_bytes().to_vec()).collect(),
            Self::Hex(list) => list.iter().map(|digits| decode_hex(digits)).collect(),
        }
    }
}

/// Decodes pairs of hexadecimal digits; other characters count as 0.
pub(crate) fn decode_hex(digits: &str) -> Vec<u8> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok()).unwrap_or(0);
    digits.as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | nibble(*digit))).collect()
}

/// All targets; each has a file in `fuzz/fuzz_targets`.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget::text("request_line", request_line, 20_000, request_line::SEEDS, request_line::DICTIONARY),
    FuzzTarget::text("accept_header", accept_header, 1_500, accept_header::SEEDS, accept_header::DICTIONARY),
    FuzzTarget::text("selectors", selectors, 10_000, selectors::SEEDS, selectors::DICTIONARY),
    FuzzTarget::text("discovery_json", discovery_json, 1_000, discovery_json::SEEDS, discovery_json::DICTIONARY),
    FuzzTarget::text("object_body", object_body, 3_000, object_body::SEEDS, object_body::DICTIONARY),
    FuzzTarget::text("patch", patch, 8_000, patch::SEEDS, patch::DICTIONARY),
    FuzzTarget::text("stored_object", stored_object, 20_000, stored_object::SEEDS, stored_object::DICTIONARY),
    FuzzTarget::text("cel_compile", cel_compile, 1_500, cel::SEEDS, cel::DICTIONARY),
    FuzzTarget::text("cel_evaluate", cel_evaluate, 3_000, cel::SEEDS, cel::DICTIONARY),
    FuzzTarget::text("pattern", pattern, 500, pattern::SEEDS, pattern::DICTIONARY),
    FuzzTarget::text(
        "forwarded_headers",
        forwarded_headers,
        2_000,
        forwarded_headers::SEEDS,
        forwarded_headers::DICTIONARY,
    ),
    FuzzTarget::text("token", token, 2_000, token::SEEDS, token::DICTIONARY),
    FuzzTarget::text("yaml_body", yaml_body, 3_000, yaml_body::SEEDS, yaml_body::DICTIONARY),
    FuzzTarget::binary("certificate", certificate, 5_000, certificate::HEX_SEEDS, certificate::HEX_DICTIONARY),
    FuzzTarget::binary("protobuf_body", protobuf_body, 3_000, protobuf_body::HEX_SEEDS, protobuf_body::HEX_DICTIONARY),
];
