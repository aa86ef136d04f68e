//! OpenAPI documents: types and fields without descriptions, and the operations on each path.
//!
//! An [`ApiDescription`] is encoded as OpenAPI 3.0, as Swagger 2.0, and as Swagger 2.0 in protobuf. Clients use them to
//! explain types, to prepare patches, and to detect server-side field validation.

pub mod descriptions;
mod kept;
pub mod merge;
mod operation;
mod part;
pub mod protobuf;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest::{Context, SHA512};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Types;

pub use kept::KeptDocuments;
pub use operation::{ConnectMethod, OpenApiOperation, OperationAction, ServerPage};
pub use part::{JsonMembers, OpenApiPart};
pub use types::{Dialect, definitions};

/// Operations of some resources, and the types they refer to.
#[derive(Clone, Copy)]
pub struct ApiDescription<'a> {
    /// The types of the release.
    pub types: Types<'a>,
    /// The version of the server, such as `1.36`.
    pub version: &'a str,
    /// The operations by path.
    pub operations: &'a BTreeMap<String, Vec<OpenApiOperation<'a>>>,
    /// Every group and version that the server serves, in order: some types belong to all of them.
    pub group_versions: &'a [(&'a str, &'a str)],
}

/// An encoded document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenApiDocument {
    /// The encoded document.
    pub body: Bytes,
    /// A SHA-512 in upper-case hexadecimal: the `hash` of a URL, and the ETag. That of the body, or of what the body is made from.
    pub hash: Box<str>,
}

impl<'a> ApiDescription<'a> {
    /// The OpenAPI 3.0 document, in JSON.
    pub fn to_openapi_v3(self) -> OpenApiDocument {
        let dialect = Dialect::V3;
        let [mut paths, mut schemas] = [JsonMembers::default(), JsonMembers::default()];
        paths.extend(self.paths(dialect));
        schemas.extend(self.definitions(&self.definition_names(), dialect));
        let mut body = String::from(r#"{"openapi":"3.0.0","info":"#);
        body.push_str(&self.info().to_string());
        body.push_str(r#","paths":"#);
        paths.push_to(&mut body);
        body.push_str(r#","components":{"securitySchemes":"#);
        body.push_str(&security_definitions().to_string());
        if !schemas.is_empty() {
            body.push_str(r#","schemas":"#);
            schemas.push_to(&mut body);
        }
        body.push_str("}}");
        OpenApiDocument::new(body)
    }

    /// The Swagger 2.0 document, in JSON, with the parts of custom resources.
    pub fn to_swagger(self, parts: impl IntoIterator<Item = OpenApiPart>) -> OpenApiDocument {
        let dialect = Dialect::V2;
        let [mut paths, mut models] = [JsonMembers::default(), JsonMembers::default()];
        paths.extend(self.paths(dialect));
        let mut names = self.definition_names();
        let built_in = names.clone();
        for mut part in parts {
            part.rename_clashes(&built_in, dialect);
            names.extend(types::reachable_definitions(self.types, part.built_in_types.into_iter()));
            paths.extend(part.paths);
            models.extend(part.models);
        }
        models.extend(self.definitions(&names, dialect));
        let mut body = String::from(r#"{"swagger":"2.0","info":"#);
        body.push_str(&self.info().to_string());
        body.push_str(r#","securityDefinitions":"#);
        body.push_str(&security_definitions().to_string());
        body.push_str(r#","security":[{"BearerToken":[]}],"paths":"#);
        paths.push_to(&mut body);
        body.push_str(r#","definitions":"#);
        models.push_to(&mut body);
        body.push('}');
        OpenApiDocument::new(body)
    }

    /// The Swagger 2.0 document, in protobuf, with the parts of custom resources.
    pub fn to_swagger_protobuf(self, parts: impl IntoIterator<Item = OpenApiPart>) -> OpenApiDocument {
        let dialect = Dialect::V2;
        let mut document = protobuf::SwaggerProtobuf::default();
        for (path, item) in self.paths(dialect) {
            document.push_path(path, &item);
        }
        let mut names = self.definition_names();
        let built_in = names.clone();
        for mut part in parts {
            part.rename_clashes(&built_in, dialect);
            names.extend(types::reachable_definitions(self.types, part.built_in_types.into_iter()));
            part.paths.iter().for_each(|(path, item)| document.push_path(path, item));
            part.models.iter().for_each(|(name, model)| document.push_definition(name, model));
        }
        for (name, definition) in self.definitions(&names, dialect) {
            document.push_definition(name, &definition);
        }
        OpenApiDocument::new(document.finish(&self.info()))
    }

    fn info(self) -> Value {
        json!({"title": "Kubernetes", "version": self.version})
    }

    fn paths(self, dialect: Dialect) -> impl Iterator<Item = (&'a String, Value)> {
        self.operations
            .iter()
            .map(move |(path, operations)| (path, operation::path_item(path, self.types, operations, dialect)))
    }

    /// The names of all types that the operations refer to, directly or through other types.
    fn definition_names(self) -> BTreeSet<String> {
        let named = self.operations.values().flatten().flat_map(move |operation| operation.definitions(self.types));
        types::reachable_definitions(self.types, named)
    }

    fn definitions(self, names: &BTreeSet<String>, dialect: Dialect) -> impl Iterator<Item = (&String, Value)> {
        names.iter().map(move |name| (name, types::definition_schema(self.types, name, dialect, self.group_versions)))
    }
}

impl OpenApiDocument {
    /// A document with its hash.
    pub fn new(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let hash = hash([&*body]);
        Self { body: body.into(), hash }
    }
}

/// Characters of an entry of an index, its hash and a usual path included.
const ENTRY_LENGTH: usize = 256;

/// Characters of the hash of each group-version that the hash of an index is made from: 128 bits.
const INDEXED_HASH_LENGTH: usize = 32;

/// The index of group-versions, from the path and the hash of each, sorted by path. Its own hash is that of what the entries
/// differ in: with thousands of group-versions, hashing the body takes longer than writing it.
pub fn index_document<'d>(addresses: impl Iterator<Item = (&'d str, &'d str)>) -> OpenApiDocument {
    let count = addresses.size_hint().0;
    let mut body = String::with_capacity((count + 1) * ENTRY_LENGTH);
    let mut differences = String::with_capacity((count + 1) * (INDEXED_HASH_LENGTH + ENTRY_LENGTH / 4));
    body.push_str(r#"{"paths":{"#);
    for (position, (path, hash)) in addresses.enumerate() {
        let separator = if position == 0 { "" } else { "," };
        // Paths of group-versions and hashes have no character that JSON escapes.
        for piece in [separator, "\"", path, r#"":{"serverRelativeURL":"/openapi/v3/"#, path, "?hash=", hash, r#""}"#] {
            body.push_str(piece);
        }
        for piece in [path, " ", hash.get(..INDEXED_HASH_LENGTH).unwrap_or(hash), " "] {
            differences.push_str(piece);
        }
    }
    body.push_str("}}");
    OpenApiDocument { body: body.into_bytes().into(), hash: hash([differences.as_bytes()]) }
}

/// Parses an index: the hashes of the documents by path below `/openapi/v3/`. Documents without a hash are left out, and those whose
/// hash has characters that do not belong into a URL.
pub fn parse_index(body: &[u8]) -> Result<BTreeMap<Box<str>, Box<str>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Index {
        paths: BTreeMap<Box<str>, Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(rename = "serverRelativeURL")]
        server_relative_url: String,
    }
    let index: Index = serde_json::from_slice(body)?;
    let addresses = index.paths.into_iter().filter_map(|(path, entry)| {
        let hash = entry.server_relative_url.split_once("?hash=")?.1;
        hash.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| (path, hash.into()))
    });
    Ok(addresses.collect())
}

/// The SHA-512 of the concatenated pieces in upper-case hexadecimal.
pub fn hash<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Box<str> {
    let mut context = Context::new(&SHA512);
    pieces.into_iter().for_each(|piece| context.update(piece));
    let nibble = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value & 0xF)]);
    let digest = context.finish();
    let mut text = String::with_capacity(2 * digest.as_ref().len());
    digest.as_ref().iter().for_each(|byte| text.extend([nibble(byte >> 4), nibble(*byte)]));
    text.into()
}

fn security_definitions() -> Value {
    json!({"BearerToken": {
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
        "description": "Bearer Token authentication",
    }})
}
