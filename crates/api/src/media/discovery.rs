//! Negotiation of discovery documents.

use super::accept::{AcceptClauses, RequestedKind, parse_accept};
use super::object::supports_parameters;
use super::{Encoding, Encodings, NotAcceptable};

/// What a discovery endpoint offers.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryOffer {
    /// Encodings of the aggregated document; none on endpoints with only the legacy form.
    pub aggregated: Encodings,
    /// Encodings of the legacy document.
    pub legacy: Encodings,
    /// The oldest offered version of the aggregated document. Releases up to 1.32 also offer v2beta1.
    pub oldest_version: AggregatedVersion,
}

/// The versions of `apidiscovery.k8s.io`, older first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AggregatedVersion {
    /// `v2beta1`.
    V2Beta1,
    /// `v2`.
    V2,
}

/// The negotiated form of a discovery document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryFormat {
    /// All groups with their resources in one document.
    Aggregated {
        /// The `apidiscovery.k8s.io` version.
        version: AggregatedVersion,
        /// The encoding of the body.
        encoding: Encoding,
        /// Whether resources of peers are included.
        profile: Profile,
        /// True if the media type has `pretty=1`; see also [`super::is_pretty_print`].
        pretty: bool,
    },
    /// `APIVersions`, `APIGroupList`, `APIGroup` or `APIResourceList`, depending on the path.
    Legacy {
        /// The encoding of the body.
        encoding: Encoding,
        /// True if the media type has `pretty=1`; see also [`super::is_pretty_print`].
        pretty: bool,
    },
}

/// Whose resources an aggregated document lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Those of all servers, if merging is enabled.
    Merged,
    /// Those of this server: `profile=nopeer`, or `profile=local` from older peers.
    Local,
}

impl AggregatedVersion {
    /// Returns the `Content-Type` of an aggregated document.
    pub const fn media_type(self, encoding: Encoding) -> &'static str {
        match (self, encoding) {
            (Self::V2, Encoding::Json) => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            (Self::V2, Encoding::Yaml) => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            (Self::V2, Encoding::Protobuf) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Self::V2Beta1, Encoding::Json) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Self::V2Beta1, Encoding::Yaml) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Self::V2Beta1, Encoding::Protobuf) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    fn from_requested_kind(kind: RequestedKind<'_>) -> Option<Self> {
        match (kind.group, kind.version, kind.kind) {
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some(Self::V2),
            ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => Some(Self::V2Beta1),
            _ => None,
        }
    }
}

impl DiscoveryFormat {
    /// Returns the `Content-Type` of the response, which never includes the profile.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Aggregated { version, encoding, .. } => version.media_type(encoding),
            Self::Legacy { encoding, .. } => encoding.media_type(),
        }
    }
}

/// Selects the form. An acceptable aggregated form wins wherever it is in the header; otherwise the header is matched
/// against the legacy form.
pub fn negotiate_discovery(accept: &str, offer: DiscoveryOffer) -> Result<DiscoveryFormat, NotAcceptable> {
    let error = NotAcceptable { offered: offer.legacy, streaming: false };
    if accept.is_empty() {
        let encoding = offer.legacy.iter().next().ok_or(error)?;
        return Ok(DiscoveryFormat::Legacy { encoding, pretty: false });
    }
    let clauses = parse_accept(accept);
    choose_aggregated(&clauses, offer).or_else(|| choose_legacy(&clauses, offer)).ok_or(error)
}

fn choose_aggregated(clauses: &AcceptClauses<'_>, offer: DiscoveryOffer) -> Option<DiscoveryFormat> {
    clauses.iter().find_map(|clause| {
        let parameters = clause.parameters();
        let version = parameters
            .kind
            .and_then(AggregatedVersion::from_requested_kind)
            .filter(|version| *version >= offer.oldest_version)?;
        let encoding = offer
            .aggregated
            .iter()
            .find(|encoding| clause.covers(*encoding) && supports_parameters(&parameters, *encoding, ""))?;
        let profile = match parameters.profile {
            "nopeer" | "local" => Profile::Local,
            _ => Profile::Merged,
        };
        Some(DiscoveryFormat::Aggregated { version, encoding, profile, pretty: parameters.pretty })
    })
}

fn choose_legacy(clauses: &AcceptClauses<'_>, offer: DiscoveryOffer) -> Option<DiscoveryFormat> {
    clauses.iter().find_map(|clause| {
        let parameters = clause.parameters();
        if parameters.kind.is_some() {
            return None;
        }
        let encoding = offer
            .legacy
            .iter()
            .find(|encoding| clause.covers(*encoding) && supports_parameters(&parameters, *encoding, ""))?;
        Some(DiscoveryFormat::Legacy { encoding, pretty: parameters.pretty })
    })
}
