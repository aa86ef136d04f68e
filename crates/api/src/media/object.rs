//! Negotiation of objects, lists and watches.

use super::accept::{MediaTypeParameters, RequestedKind, parse_accept};
use super::{Encoding, Encodings, NotAcceptable};

/// What an endpoint offers.
#[derive(Clone, Copy, Debug)]
pub struct ObjectOffer {
    /// Encodings of the object itself. Custom resources have no protobuf.
    pub object: Encodings,
    /// Encodings as a `Table`.
    pub table: Encodings,
    /// Encodings as `PartialObjectMetadata`.
    pub metadata: Encodings,
}

impl ObjectOffer {
    /// kube-apiserver's offer for built-in resources.
    pub const BUILT_IN: Self =
        Self { object: Encodings::ALL, table: Encodings::JSON_AND_YAML, metadata: Encodings::ALL };

    /// kube-apiserver's offer for custom resources, and that of a server whose full objects have no protobuf.
    pub const CUSTOM: Self =
        Self { object: Encodings::JSON_AND_YAML, table: Encodings::JSON_AND_YAML, metadata: Encodings::ALL };

    /// The offer of a server that writes only JSON.
    pub const JSON: Self = Self { object: Encodings::JSON, table: Encodings::JSON, metadata: Encodings::JSON };

    /// The offer for a resource without a table, such as a review, of a server that writes only JSON.
    pub const JSON_WITHOUT_TABLE: Self =
        Self { object: Encodings::JSON, table: Encodings::NONE, metadata: Encodings::JSON };

    /// An object without transforms, such as a Status or a review, in all encodings.
    pub const OBJECT_ONLY: Self = Self { object: Encodings::ALL, table: Encodings::NONE, metadata: Encodings::NONE };

    fn all_encodings(self) -> Encodings {
        self.object.union(self.table).union(self.metadata)
    }

    fn encodings_for(self, transform: Option<Transform>) -> Encodings {
        match transform.map(|transform| transform.kind) {
            None => self.object,
            Some(TransformKind::Table) => self.table,
            Some(TransformKind::PartialObjectMetadata | TransformKind::PartialObjectMetadataList) => self.metadata,
        }
    }
}

/// The negotiated form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedMediaType {
    /// The encoding of the body.
    pub encoding: Encoding,
    /// The conversion before encoding.
    pub transform: Option<Transform>,
    /// True if the media type has `pretty=1`; see also [`super::is_pretty_print`].
    pub pretty: bool,
}

/// A conversion to a kind of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The target kind.
    pub kind: TransformKind,
    /// The version of the target kind.
    pub version: MetaVersion,
}

/// The kinds that objects can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransformKind {
    /// Rows and columns for humans.
    Table,
    /// The metadata only.
    PartialObjectMetadata,
    /// The metadata only, of a list.
    PartialObjectMetadataList,
}

/// The versions of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// The `apiVersion` of its kinds.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Selects encoding and transform of an object or list.
pub fn negotiate(accept: &str, offer: ObjectOffer) -> Result<NegotiatedMediaType, NotAcceptable> {
    choose_media_type(accept, offer).ok_or(NotAcceptable { offered: offer.all_encodings(), streaming: false })
}

/// Selects encoding and transform of watch events. Only the first match counts, even if it cannot be streamed.
pub fn negotiate_stream(accept: &str, offer: ObjectOffer) -> Result<NegotiatedMediaType, NotAcceptable> {
    let accepted = negotiate(accept, offer)?;
    match accepted.encoding.watch_media_type() {
        Some(_) => Ok(accepted),
        None => Err(NotAcceptable { offered: offer.all_encodings(), streaming: true }),
    }
}

/// Returns the first clause, in preference order, for which the endpoint offers encoding and transform.
fn choose_media_type(accept: &str, offer: ObjectOffer) -> Option<NegotiatedMediaType> {
    if accept.is_empty() {
        let encoding = offer.all_encodings().iter().next()?;
        return Some(NegotiatedMediaType { encoding, transform: None, pretty: false });
    }
    for clause in parse_accept(accept) {
        if !Encoding::ALL.into_iter().any(|encoding| clause.covers(encoding)) {
            continue;
        }
        let parameters = clause.parameters();
        let Some(transform) = parse_transform(parameters.kind) else { continue };
        let is_usable = |encoding: &Encoding| {
            clause.covers(*encoding)
                && offer.encodings_for(transform).contains(*encoding)
                && supports_parameters(&parameters, *encoding, "v1")
        };
        if let Some(encoding) = Encoding::ALL.into_iter().find(is_usable) {
            return Some(NegotiatedMediaType { encoding, transform, pretty: parameters.pretty });
        }
    }
    None
}

/// Reports whether the endpoint supports the clause's `stream` and `sv` parameters.
pub(super) fn supports_parameters(
    parameters: &MediaTypeParameters<'_>,
    encoding: Encoding,
    server_version: &str,
) -> bool {
    let stream_is_known = match parameters.stream {
        "" => true,
        "watch" => encoding.watch_media_type().is_some(),
        _ => false,
    };
    stream_is_known && (parameters.server_version.is_empty() || parameters.server_version == server_version)
}

/// Parses the requested kind; the outer `None` means an unsupported kind.
fn parse_transform(kind: Option<RequestedKind<'_>>) -> Option<Option<Transform>> {
    let Some(RequestedKind { group, version, kind }) = kind else { return Some(None) };
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    let kind = match kind {
        "Table" => TransformKind::Table,
        "PartialObjectMetadata" => TransformKind::PartialObjectMetadata,
        "PartialObjectMetadataList" => TransformKind::PartialObjectMetadataList,
        _ => return None,
    };
    Some(Some(Transform { kind, version }))
}
