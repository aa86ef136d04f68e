//! What a client wants to see of objects: all of them, their metadata, or a table for people.

use api::media::{Accepted, MetaVersion, Offer, Transform, TransformKind, negotiate, negotiate_stream};
use api::metadata::ListMeta;
use api::{GroupKind, Status, query};
use bytes::Bytes;
use catalogue::Served;
use object::table::{Headings, IncludeObject, TableOptions, table};
use object::{Stored, partial};
use serde_json::Value;

use crate::forms::{self, Object};
use crate::rest::now;

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The object as it is: the bytes that are there.
    Whole,
    /// Nothing but its metadata.
    Metadata(MetaVersion),
    /// Rows and columns.
    Table(MetaVersion, IncludeObject),
}

impl Shape {
    /// What a request for objects or lists wants.
    pub(crate) fn negotiate(accept: &str, query: &str) -> Result<Self, Status> {
        Self::of(negotiate(accept, Offer::JSON)?, query)
    }

    /// What a watch wants.
    pub(crate) fn negotiate_stream(accept: &str, query: &str) -> Result<Self, Status> {
        Self::of(negotiate_stream(accept, Offer::JSON)?, query)
    }

    fn of(accepted: Accepted, query: &str) -> Result<Self, Status> {
        let Some(Transform { kind, version }) = accepted.transform else { return Ok(Self::Whole) };
        Ok(match kind {
            TransformKind::PartialObjectMetadata | TransformKind::PartialObjectMetadataList => Self::Metadata(version),
            TransformKind::Table => {
                let include = query::first(query, "includeObject").unwrap_or_default();
                let include =
                    IncludeObject::parse(&include).map_err(|refusal| Status::bad_request(refusal.to_string()))?;
                Self::Table(version, include)
            }
        })
    }

    /// One object in this shape.
    pub(crate) fn body_of(self, stored: &Stored, served: &Served, headings: Headings) -> Bytes {
        if self == Self::Whole {
            return forms::body_of(stored, served);
        }
        let object = forms::object_of(stored, served);
        let value = match self {
            Self::Whole => unreachable!("answered above"),
            Self::Metadata(version) => partial::object(&object, api_version(version)),
            Self::Table(version, include) => {
                let metadata = ListMeta { resource_version: stored.revision.to_string(), ..ListMeta::default() };
                table([&object], &metadata, &table_options(served, version, include, headings))
            }
        };
        api::json::to_go_json(&value).into()
    }

    /// A list in this shape; `None` if whole objects are wanted, which need not be made into values.
    pub(crate) fn list(self, objects: &[Object], metadata: &ListMeta, served: &Served) -> Option<Bytes> {
        let value: Value = match self {
            Self::Whole => return None,
            Self::Metadata(version) => partial::list(objects, metadata, api_version(version)),
            Self::Table(version, include) => {
                table(objects, metadata, &table_options(served, version, include, Headings::Shown))
            }
        };
        let mut bytes = api::json::to_go_json(&value);
        bytes.push(b'\n');
        Some(bytes.into())
    }
}

fn api_version(version: MetaVersion) -> &'static str {
    match version {
        MetaVersion::V1 => "meta.k8s.io/v1",
        MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
    }
}

fn table_options(
    served: &Served,
    version: MetaVersion,
    include: IncludeObject,
    headings: Headings,
) -> TableOptions<'static> {
    TableOptions {
        kind: GroupKind { group: served.group.name, kind: served.kind.name },
        api_version: api_version(version),
        include,
        headings,
        now: now(),
    }
}
