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

use crate::surface::{Served, Surface};
use operation::Operation;
use types::Dialect;

/// The documents of one server, each built once, when it is first asked for.
#[derive(Debug)]
pub struct OpenApi {
    surface: Arc<Surface>,
    /// By path below `/openapi/v3/`.
    versions: BTreeMap<String, Version>,
    index: OnceLock<Document>,
    swagger: OnceLock<Document>,
    swagger_protobuf: OnceLock<Document>,
}

/// One group-version: its resources by their positions in the surface.
#[derive(Debug)]
struct Version {
    served: Vec<usize>,
    document: OnceLock<Document>,
}

/// A finished document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The bytes.
    pub body: Arc<[u8]>,
    /// Their SHA-512 in upper-case hexadecimal: the `hash` of a URL, and the ETag.
    pub hash: Box<str>,
}

impl OpenApi {
    /// The documents for what this surface serves. Nothing is built yet.
    pub fn new(surface: Arc<Surface>) -> Self {
        let mut versions: BTreeMap<String, Version> = BTreeMap::new();
        for (position, served) in surface.served().iter().enumerate() {
            let path = paths::root_of(served).trim_start_matches('/').to_owned();
            let version =
                versions.entry(path).or_insert_with(|| Version { served: Vec::new(), document: OnceLock::new() });
            version.served.push(position);
        }
        let [index, swagger, swagger_protobuf] = [const { OnceLock::new() }; 3];
        Self { surface, versions, index, swagger, swagger_protobuf }
    }

    /// `/openapi/v3`: where the document of each group-version is. The hash in its address changes with its content.
    pub fn index(&self) -> &Document {
        self.index.get_or_init(|| {
            let addresses = self.versions.iter().map(|(path, version)| {
                // Kept only if somebody asked for it: most clients want one or two of them.
                let hash = match version.document.get() {
                    Some(document) => document.hash.clone(),
                    None => self.build(version).hash,
                };
                (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}))
            });
            Document::of(json!({"paths": addresses.collect::<Map<_, _>>()}).to_string())
        })
    }

    /// The document of one group-version: `api/v1`, `apis/apps/v1`.
    pub fn version(&self, path: &str) -> Option<&Document> {
        let version = self.versions.get(path)?;
        Some(version.document.get_or_init(|| self.build(version)))
    }

    /// `/openapi/v2`: everything in one document.
    pub fn swagger(&self) -> &Document {
        self.swagger.get_or_init(|| {
            let dialect = Dialect::V2;
            let mut body = String::from(r#"{"swagger":"2.0","info":"#);
            body.push_str(&self.info().to_string());
            body.push_str(r#","securityDefinitions":"#);
            body.push_str(&security().to_string());
            body.push_str(r#","security":[{"BearerToken":[]}],"paths":"#);
            let all: Vec<&Served> = self.surface.served().iter().collect();
            let operations = paths::operations(&all);
            self.push_paths(&mut body, &operations, dialect);
            body.push_str(r#","definitions":"#);
            self.push_types(&mut body, &operations, dialect);
            body.push('}');
            Document::of(body)
        })
    }

    /// The same in protobuf.
    pub fn swagger_protobuf(&self) -> &Document {
        self.swagger_protobuf.get_or_init(|| {
            let (release, dialect) = (self.surface.release(), Dialect::V2);
            let all: Vec<&Served> = self.surface.served().iter().collect();
            let operations = paths::operations(&all);
            let mut document = protobuf::Document::default();
            for (path, operations) in &operations {
                document.push_path(path, &operation::path_item(path, release, operations, dialect));
            }
            for (name, definition) in self.definitions(&operations, dialect) {
                document.push_definition(&name, &definition);
            }
            Document::of(document.finish(&self.info()))
        })
    }

    fn build(&self, version: &Version) -> Document {
        let dialect = Dialect::V3;
        let served: Vec<&Served> = version.served.iter().map(|position| &self.surface.served()[*position]).collect();
        let operations = paths::operations(&served);
        let mut body = String::from(r#"{"openapi":"3.0.0","info":"#);
        body.push_str(&self.info().to_string());
        body.push_str(r#","paths":"#);
        self.push_paths(&mut body, &operations, dialect);
        body.push_str(r#","components":{"securitySchemes":"#);
        body.push_str(&security().to_string());
        body.push_str(r#","schemas":"#);
        self.push_types(&mut body, &operations, dialect);
        body.push_str("}}");
        Document::of(body)
    }

    fn info(&self) -> Value {
        json!({"title": "Kubernetes", "version": format!("v{}", self.surface.release())})
    }

    fn push_paths(&self, body: &mut String, operations: &BTreeMap<String, Vec<Operation>>, dialect: Dialect) {
        let release = self.surface.release();
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
        operations: &BTreeMap<String, Vec<Operation>>,
        dialect: Dialect,
    ) -> impl Iterator<Item = (String, Value)> {
        let release = self.surface.release();
        let group_versions = self.surface.served().iter().map(|served| (served.group.name, served.version.name));
        let group_versions: BTreeSet<_> = group_versions.collect();
        let group_versions: Vec<_> = group_versions.into_iter().collect();
        let named = operations.values().flatten().flat_map(|operation| operation.definitions(release));
        types::reachable(release, named).into_iter().map(move |name| {
            let definition = types::definition(release, &name, dialect, &group_versions);
            (name, definition)
        })
    }

    fn push_types(&self, body: &mut String, operations: &BTreeMap<String, Vec<Operation>>, dialect: Dialect) {
        push_object(body, self.definitions(operations, dialect));
    }
}

impl Document {
    fn of(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let hash: String = digest(&SHA512, &body).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Self { body: body.into(), hash: hash.into() }
    }
}

fn security() -> Value {
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
