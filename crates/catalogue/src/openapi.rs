//! OpenAPI documents of one server: types and fields without prose, and what one may do with each resource.
//!
//! `/openapi/v3` is an index with one document per group-version; `/openapi/v2` is one document for all, in JSON and in
//! protobuf. They are built when first asked for. Clients use them to explain types, to prepare patches, and to see that a server validates fields
//! itself; the deprecated `/watch/` paths are left out.

mod operation;
mod paths;
pub mod protobuf;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA512, digest};
use serde_json::{Map, Value, json};

use crate::served_resources::{ServedResource, ServedResources};
use operation::OpenApiOperation;
use types::Dialect;

/// The documents of one server, each built once, when it is first asked for.
#[derive(Debug)]
pub struct OpenApi {
    served_resources: Arc<ServedResources>,
    /// By path below `/openapi/v3/`.
    versions: BTreeMap<String, GroupVersionDocument>,
    index: OnceLock<OpenApiDocument>,
    swagger: OnceLock<OpenApiDocument>,
    swagger_protobuf: OnceLock<OpenApiDocument>,
}

/// One group-version: its resources by their positions in the surface.
#[derive(Debug)]
struct GroupVersionDocument {
    resources: Vec<usize>,
    document: OnceLock<OpenApiDocument>,
}

/// A finished document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenApiDocument {
    /// The bytes.
    pub body: Arc<[u8]>,
    /// Their SHA-512 in upper-case hexadecimal: the `hash` of a URL, and the ETag.
    pub hash: Box<str>,
}

impl OpenApi {
    /// The documents for what this surface serves. Nothing is built yet.
    pub fn new(served_resources: Arc<ServedResources>) -> Self {
        let mut versions: BTreeMap<String, GroupVersionDocument> = BTreeMap::new();
        for (position, served) in served_resources.resources().iter().enumerate() {
            let path = paths::group_version_path(served).trim_start_matches('/').to_owned();
            let version = versions
                .entry(path)
                .or_insert_with(|| GroupVersionDocument { resources: Vec::new(), document: OnceLock::new() });
            version.resources.push(position);
        }
        let [index, swagger, swagger_protobuf] = [const { OnceLock::new() }; 3];
        Self { served_resources, versions, index, swagger, swagger_protobuf }
    }

    /// `/openapi/v3`: where the document of each group-version is. The hash in its address changes with its content.
    pub fn index(&self) -> &OpenApiDocument {
        self.index.get_or_init(|| {
            let addresses = self.versions.iter().map(|(path, version)| {
                // Kept only if somebody asked for it: most clients want one or two of them.
                let hash = match version.document.get() {
                    Some(document) => document.hash.clone(),
                    None => self.build_group_version(version).hash,
                };
                (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}))
            });
            OpenApiDocument::new(json!({"paths": addresses.collect::<Map<_, _>>()}).to_string())
        })
    }

    /// The document of one group-version: `api/v1`, `apis/apps/v1`.
    pub fn version(&self, path: &str) -> Option<&OpenApiDocument> {
        let version = self.versions.get(path)?;
        Some(version.document.get_or_init(|| self.build_group_version(version)))
    }

    /// `/openapi/v2`: everything in one document.
    pub fn swagger(&self) -> &OpenApiDocument {
        self.swagger.get_or_init(|| {
            let dialect = Dialect::V2;
            let mut body = String::from(r#"{"swagger":"2.0","info":"#);
            body.push_str(&self.info().to_string());
            body.push_str(r#","securityDefinitions":"#);
            body.push_str(&security_definitions().to_string());
            body.push_str(r#","security":[{"BearerToken":[]}],"paths":"#);
            let all: Vec<&ServedResource> = self.served_resources.resources().iter().collect();
            let operations = paths::operations_by_path(&all);
            self.push_paths(&mut body, &operations, dialect);
            body.push_str(r#","definitions":"#);
            self.push_types(&mut body, &operations, dialect);
            body.push('}');
            OpenApiDocument::new(body)
        })
    }

    /// The same in protobuf.
    pub fn swagger_protobuf(&self) -> &OpenApiDocument {
        self.swagger_protobuf.get_or_init(|| {
            let (release, dialect) = (self.served_resources.release(), Dialect::V2);
            let all: Vec<&ServedResource> = self.served_resources.resources().iter().collect();
            let operations = paths::operations_by_path(&all);
            let mut document = protobuf::SwaggerProtobuf::default();
            for (path, operations) in &operations {
                document.push_path(path, &operation::path_item(path, release, operations, dialect));
            }
            for (name, definition) in self.definitions(&operations, dialect) {
                document.push_definition(&name, &definition);
            }
            OpenApiDocument::new(document.finish(&self.info()))
        })
    }

    fn build_group_version(&self, version: &GroupVersionDocument) -> OpenApiDocument {
        let dialect = Dialect::V3;
        let served: Vec<&ServedResource> =
            version.resources.iter().map(|position| &self.served_resources.resources()[*position]).collect();
        let operations = paths::operations_by_path(&served);
        let mut body = String::from(r#"{"openapi":"3.0.0","info":"#);
        body.push_str(&self.info().to_string());
        body.push_str(r#","paths":"#);
        self.push_paths(&mut body, &operations, dialect);
        body.push_str(r#","components":{"securitySchemes":"#);
        body.push_str(&security_definitions().to_string());
        body.push_str(r#","schemas":"#);
        self.push_types(&mut body, &operations, dialect);
        body.push_str("}}");
        OpenApiDocument::new(body)
    }

    fn info(&self) -> Value {
        json!({"title": "Kubernetes", "version": format!("v{}", self.served_resources.release())})
    }

    fn push_paths(&self, body: &mut String, operations: &BTreeMap<String, Vec<OpenApiOperation>>, dialect: Dialect) {
        let release = self.served_resources.release();
        push_object(
            body,
            operations
                .iter()
                .map(|(path, operations)| (path.as_str(), operation::path_item(path, release, operations, dialect))),
        );
    }

    /// Every type that the operations name, and every type that those are made of.
    fn definitions(
        &self,
        operations: &BTreeMap<String, Vec<OpenApiOperation>>,
        dialect: Dialect,
    ) -> impl Iterator<Item = (String, Value)> {
        let release = self.served_resources.release();
        let group_versions =
            self.served_resources.resources().iter().map(|served| (served.group.name, served.version.name));
        let group_versions: BTreeSet<_> = group_versions.collect();
        let group_versions: Vec<_> = group_versions.into_iter().collect();
        let named = operations.values().flatten().flat_map(|operation| operation.definitions(release));
        types::reachable_definitions(release, named).into_iter().map(move |name| {
            let definition = types::definition_schema(release, &name, dialect, &group_versions);
            (name, definition)
        })
    }

    fn push_types(&self, body: &mut String, operations: &BTreeMap<String, Vec<OpenApiOperation>>, dialect: Dialect) {
        push_object(body, self.definitions(operations, dialect));
    }
}

impl OpenApiDocument {
    fn new(body: impl Into<Vec<u8>>) -> Self {
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

/// Written piece by piece: a whole document as values would take ten times its bytes.
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

#[cfg(test)]
mod tests;
