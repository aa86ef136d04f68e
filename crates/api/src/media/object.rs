//! Negotiation of objects, lists and watches.

use super::accept::{MediaTypeParameters, RequestedKind, parse_accept};
use super::{Encoding, Encodings, NotAcceptable};

/// What an endpoint can give.
#[derive(Clone, Copy, Debug)]
pub struct ObjectOffer {
    /// Encodings of the object itself. Custom resources have no protobuf.
    pub object: Encodings,
    /// Encodings of a `Table` of it.
    pub table: Encodings,
    /// Encodings of its metadata alone.
    pub metadata: Encodings,
}

impl ObjectOffer {
    /// What kube-apiserver offers for built-in resources.
    pub const BUILT_IN: Self =
        Self { object: Encodings::ALL, table: Encodings::JSON_AND_YAML, metadata: Encodings::ALL };

    /// What kube-apiserver offers for custom resources.
    pub const CUSTOM: Self =
        Self { object: Encodings::JSON_AND_YAML, table: Encodings::JSON_AND_YAML, metadata: Encodings::ALL };

    /// A server that writes nothing but JSON.
    pub const JSON: Self = Self { object: Encodings::JSON, table: Encodings::JSON, metadata: Encodings::JSON };

    /// An object of one kind, such as a Status or a review, in all encodings.
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

/// What the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedMediaType {
    /// How it is written.
    pub encoding: Encoding,
    /// What it is turned into before that.
    pub transform: Option<Transform>,
    /// Whether the media type asked for indentation; see also [`super::is_pretty_print`].
    pub pretty: bool,
}

/// A kind of `meta.k8s.io` that an object is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The kind.
    pub kind: TransformKind,
    /// Its version.
    pub version: MetaVersion,
}

/// The kinds that an object can be turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransformKind {
    /// Rows and columns for people.
    Table,
    /// Nothing but the metadata.
    PartialObjectMetadata,
    /// Nothing but the metadata, of a list.
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

/// Chooses encoding and kind of an object or a list.
pub fn negotiate(accept: &str, offer: ObjectOffer) -> Result<NegotiatedMediaType, NotAcceptable> {
    choose_media_type(accept, offer).ok_or(NotAcceptable { offered: offer.all_encodings(), streaming: false })
}

/// Chooses encoding and kind of the objects in a watch. Only the first match counts, even if it cannot be streamed.
pub fn negotiate_stream(accept: &str, offer: ObjectOffer) -> Result<NegotiatedMediaType, NotAcceptable> {
    choose_media_type(accept, offer)
        .filter(|accepted| accepted.encoding.watch_media_type().is_some())
        .ok_or(NotAcceptable { offered: offer.all_encodings(), streaming: true })
}

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

/// Whether the endpoint knows the stream and the version of generic output that a clause asks for.
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

/// The outer `None` means that the kind is none of ours.
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
