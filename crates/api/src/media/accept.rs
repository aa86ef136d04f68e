//! Parses the `Accept` header into clauses, in kube-apiserver's order.

use smallvec::SmallVec;

use super::Encoding;

/// Limit on parsed clauses; further ones are ignored. Browsers send about eight, Kubernetes clients at most five.
pub const ACCEPT_CLAUSES_MAX: usize = 64;

/// One acceptable media range with its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptClause<'a> {
    media_type: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: &'a str,
}

pub(super) type AcceptClauses<'a> = SmallVec<[AcceptClause<'a>; 8]>;

/// The parameters with a meaning. Empty values are treated as absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MediaTypeParameters<'a> {
    /// Set if any of `g`, `v` and `as` is given.
    pub(super) kind: Option<RequestedKind<'a>>,
    pub(super) profile: &'a str,
    pub(super) stream: &'a str,
    pub(super) server_version: &'a str,
    pub(super) pretty: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestedKind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

/// Splits and sorts the clauses; malformed ones are skipped.
pub(super) fn parse_accept(header: &str) -> AcceptClauses<'_> {
    let mut clauses: AcceptClauses<'_> =
        header.split(',').filter_map(AcceptClause::parse).take(ACCEPT_CLAUSES_MAX).collect();
    // Go's comparison is not a strict order: a concrete type can precede a wildcard of higher quality and vice versa.
    // The result depends on the algorithm, which in Go is insertion sort for so few elements.
    for sorted in 1..clauses.len() {
        let mut at = sorted;
        while at > 0 && clauses[at].precedes(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

impl<'a> AcceptClause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (range, parameters) = split_at_first(trim_spaces(text), ';');
        let (media_type, rest) = split_at_first(range, '/');
        let media_type = trim_spaces(media_type);
        let subtype = match split_at_first(rest, '/') {
            ("", "") if rest.is_empty() && media_type == "*" => "*",
            _ if rest.is_empty() => return None,
            (subtype, "") => trim_spaces(subtype),
            _ => return None,
        };
        let mut quality = 1.0;
        for (name, value) in raw_parameters(parameters) {
            if name == "q" {
                // Not trimmed, and 0 if malformed, as in Go.
                quality = value.parse().unwrap_or(0.0);
            }
        }
        Some(Self { media_type, subtype, quality, parameters })
    }

    /// Reports whether the media range includes the encoding.
    pub(super) fn covers(&self, encoding: Encoding) -> bool {
        match (self.media_type, self.subtype) {
            ("*" | "application", "*") => true,
            ("application", subtype) => subtype == encoding.subtype(),
            _ => false,
        }
    }

    pub(super) fn parameters(&self) -> MediaTypeParameters<'a> {
        let mut parameters = MediaTypeParameters::default();
        for (name, value) in raw_parameters(self.parameters) {
            let value = trim_spaces(value);
            match name {
                "as" => parameters.kind.get_or_insert_default().kind = value,
                "g" => parameters.kind.get_or_insert_default().group = value,
                "v" => parameters.kind.get_or_insert_default().version = value,
                "profile" => parameters.profile = value,
                "stream" => parameters.stream = value,
                "sv" => parameters.server_version = value,
                "pretty" => parameters.pretty = value == "1",
                _ => {}
            }
        }
        parameters
    }

    fn precedes(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.media_type != "*" && other.media_type == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// Iterates over names and untrimmed values; skips parameters without a value or with two.
fn raw_parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|parameter| {
        let (name, rest) = split_at_first(parameter, '=');
        let (value, more) = split_at_first(rest, '=');
        (!rest.is_empty() && more.is_empty()).then_some((trim_spaces(name), value))
    })
}

/// Splits at the first separator; the second part is empty if there is none.
fn split_at_first(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

/// Trims spaces only: goautoneg does not trim tabs.
fn trim_spaces(text: &str) -> &str {
    text.trim_matches(' ')
}
