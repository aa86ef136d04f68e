//! OpenAPI documents: types and fields without descriptions, and the operations on each path.
//!
//! An [`ApiDescription`] is encoded as OpenAPI 3.0, as Swagger 2.0, and as Swagger 2.0 in protobuf. Clients use them to
//! explain types, to prepare patches, and to detect server-side field validation.

mod operation;
pub mod protobuf;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA512, digest};
use serde_json::{Value, json};

use crate::Types;

pub use operation::{OpenApiOperation, OperationAction};
pub use types::{Dialect, definitions};

/// Operations of some resources, and the types they refer to.
#[derive(Clone, Copy)]
pub struct ApiDescription<'a> {
    /// The types of the release.
    pub types: Types<'a>,
    /// The version of the server, such as `v1.36`.
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
    pub body: Arc<[u8]>,
    /// The SHA-512 of the body in upper-case hexadecimal: the `hash` of a URL, and the ETag.
    pub hash: Box<str>,
}

impl<'a> ApiDescription<'a> {
    /// The OpenAPI 3.0 document, in JSON.
    pub fn to_openapi_v3(self) -> OpenApiDocument {
        let dialect = Dialect::V3;
        let mut body = String::from(r#"{"openapi":"3.0.0","info":"#);
        body.push_str(&self.info().to_string());
        body.push_str(r#","paths":"#);
        self.push_paths(&mut body, dialect);
        body.push_str(r#","components":{"securitySchemes":"#);
        body.push_str(&security_definitions().to_string());
        body.push_str(r#","schemas":"#);
        push_object(&mut body, self.definitions(dialect));
        body.push_str("}}");
        OpenApiDocument::new(body)
    }

    /// The Swagger 2.0 document, in JSON.
    pub fn to_swagger(self) -> OpenApiDocument {
        let dialect = Dialect::V2;
        let mut body = String::from(r#"{"swagger":"2.0","info":"#);
        body.push_str(&self.info().to_string());
        body.push_str(r#","securityDefinitions":"#);
        body.push_str(&security_definitions().to_string());
        body.push_str(r#","security":[{"BearerToken":[]}],"paths":"#);
        self.push_paths(&mut body, dialect);
        body.push_str(r#","definitions":"#);
        push_object(&mut body, self.definitions(dialect));
        body.push('}');
        OpenApiDocument::new(body)
    }

    /// The Swagger 2.0 document, in protobuf.
    pub fn to_swagger_protobuf(self) -> OpenApiDocument {
        let dialect = Dialect::V2;
        let mut document = protobuf::SwaggerProtobuf::default();
        for (path, operations) in self.operations {
            document.push_path(path, &operation::path_item(path, self.types, operations, dialect));
        }
        for (name, definition) in self.definitions(dialect) {
            document.push_definition(&name, &definition);
        }
        OpenApiDocument::new(document.finish(&self.info()))
    }

    fn info(self) -> Value {
        json!({"title": "Kubernetes", "version": self.version})
    }

    fn push_paths(self, body: &mut String, dialect: Dialect) {
        let item = |(path, operations): (&'a String, &'a Vec<_>)| {
            (path, operation::path_item(path, self.types, operations, dialect))
        };
        push_object(body, self.operations.iter().map(item));
    }

    /// Every type that the operations refer to, directly or through other types.
    fn definitions(self, dialect: Dialect) -> impl Iterator<Item = (String, Value)> {
        let named = self.operations.values().flatten().flat_map(move |operation| operation.definitions(self.types));
        types::reachable_definitions(self.types, named).into_iter().map(move |name| {
            let definition = types::definition_schema(self.types, &name, dialect, self.group_versions);
            (name, definition)
        })
    }
}

impl OpenApiDocument {
    /// A document with its hash.
    pub fn new(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let hash: String = digest(&SHA512, &body).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Self { body: body.into(), hash: hash.into() }
    }
}

fn security_definitions() -> Value {
    json!({"BearerToken": {
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
        "description": "Bearer Token authentication",
    }})
}

/// Writes an object member by member: a whole document as `Value` would take ten times the memory.
fn push_object<N: AsRef<str>>(body: &mut String, members: impl Iterator<Item = (N, Value)>) {
    body.push('{');
    for (position, (name, value)) in members.enumerate() {
        if position > 0 {
            body.push(',');
        }
        body.push_str(&Value::from(name.as_ref()).to_string());
        body.push(':');
        body.push_str(&value.to_string());
    }
    body.push('}');
}
