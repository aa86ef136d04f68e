//! The OpenAPI documents of built-in and custom resources.
//!
//! Documents of custom resources follow the served definitions: each request compares the inputs of the last request
//! with the current definitions and hashes only those that changed. The hash of a document is made from the hashes of its
//! inputs, so the index needs no document, and a document is encoded only when a client requests it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use apiextensions::definition::ResourceNames;
use apiextensions::openapi::{ReleaseParameters, describe, document, input_hash, is_structural};
use edge::openapi::page::SwaggerEncoding;
use kinds::openapi::OpenApi;
use kinds::{ServedResources, types_of};
use schema::openapi::{Dialect, KeptDocuments, OpenApiDocument, OpenApiPart, hash, index_document};
use store::Revision;

use crate::definitions::{CustomResources, LiveDefinition};

/// The limit of all encoded documents of custom resources that are kept. The newest is kept whatever its size.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Part of every hash: another version of the program may encode the same inputs differently.
const PROGRAM: &str = concat!("unskew ", env!("CARGO_PKG_VERSION"));

/// The documents of one server.
#[derive(Debug)]
pub(crate) struct OpenApiDocuments {
    built_in: OpenApi,
    latest: Mutex<Arc<CustomIndex>>,
    kept: Mutex<KeptDocuments>,
    /// One document of custom resources is encoded at a time, so that concurrent requests for it share the result.
    encoding: tokio::sync::Mutex<()>,
}

/// What the documents of all served definitions are made from. Immutable.
#[derive(Debug, Default)]
struct CustomIndex {
    revision: Revision,
    definitions: BTreeMap<Box<str>, Arc<DefinitionInputs>>,
    /// By path below `/openapi/v3/`.
    versions: BTreeMap<Box<str>, VersionInputs>,
    index: OnceLock<OpenApiDocument>,
}

/// What decides whether the documents of a definition change.
#[derive(Debug)]
struct DefinitionInputs {
    uid: Box<str>,
    generation: i64,
    accepted_names: ResourceNames,
    is_non_structural: bool,
    /// Served versions: position in the definition, path below `/openapi/v3/` and hash of the inputs.
    versions: Vec<(usize, Box<str>, Box<str>)>,
}

/// The custom resources in one group-version, sorted by the names of their definitions.
#[derive(Debug)]
struct VersionInputs {
    hash: Box<str>,
    /// Name of the definition, and position of the version in it.
    parts: Vec<(Box<str>, usize)>,
}

/// A custom resource in a group-version: the name of its definition, the position of the version, the hash of its inputs.
struct VersionMember<'i> {
    name: &'i str,
    position: usize,
    hash: &'i str,
}

impl OpenApiDocuments {
    pub(crate) fn new(served_resources: Arc<ServedResources>) -> Self {
        Self {
            built_in: OpenApi::new(served_resources),
            latest: Mutex::default(),
            kept: Mutex::new(KeptDocuments::new(KEPT_BYTES_MAX)),
            encoding: tokio::sync::Mutex::default(),
        }
    }

    /// `/openapi/v3`.
    pub(crate) fn index(&self, custom: &CustomResources) -> OpenApiDocument {
        let latest = self.derive(custom);
        if latest.versions.is_empty() {
            return self.built_in.index().clone();
        }
        let index = latest.index.get_or_init(|| {
            let all = self.addresses_with(&latest);
            index_document(all.iter().map(|(path, hash)| (path.as_str(), &**hash)))
        });
        index.clone()
    }

    /// The paths of all group-versions below `/openapi/v3/`, sorted, and the hashes of their documents.
    pub(crate) fn addresses(&self, custom: &CustomResources) -> Vec<(String, Box<str>)> {
        self.addresses_with(&self.derive(custom))
    }

    fn addresses_with(&self, custom: &CustomIndex) -> Vec<(String, Box<str>)> {
        let built_in = self.built_in.addresses().iter().map(|(path, hash)| (&**path, hash));
        let custom = custom.versions.iter().map(|(path, version)| (&**path, &version.hash));
        let all: BTreeMap<&str, &Box<str>> = built_in.chain(custom).collect();
        all.into_iter().map(|(path, hash)| (path.to_owned(), hash.clone())).collect()
    }

    /// `/openapi/v3/<path>`; `None` if nothing is served in the group-version.
    pub(crate) async fn version(self: &Arc<Self>, path: &str, custom: Arc<CustomResources>) -> Option<OpenApiDocument> {
        if self.built_in.has_version(path) {
            return self.built_in.version(path).cloned();
        }
        let latest = self.derive(&custom);
        let hash = latest.versions.get(path)?.hash.clone();
        let (documents, path) = (self.clone(), path.to_owned());
        let encode = move || {
            let parts = latest.versions.get(path.as_str()).map(|version| &*version.parts).unwrap_or_default();
            let types = types_of(documents.built_in.release());
            let parts = parts_of(parts.iter(), &custom, Dialect::V3, ReleaseParameters::of_types(types));
            document(parts, types, &documents.built_in.group_versions()).into_bytes().into()
        };
        Some(self.keep(hash, encode).await)
    }

    /// `/openapi/v2`.
    pub(crate) async fn swagger(
        self: &Arc<Self>,
        encoding: SwaggerEncoding,
        custom: Arc<CustomResources>,
    ) -> OpenApiDocument {
        let latest = self.derive(&custom);
        if latest.versions.is_empty() {
            return match encoding {
                SwaggerEncoding::Json => self.built_in.swagger().clone(),
                SwaggerEncoding::Protobuf => self.built_in.swagger_protobuf().clone(),
            };
        }
        let kind = match encoding {
            SwaggerEncoding::Json => "v2 json",
            SwaggerEncoding::Protobuf => "v2 protobuf",
        };
        let built_in = self.built_in.addresses().iter().map(|(_, hash)| hash);
        let inputs = latest.versions.values().map(|version| &version.hash);
        let hash =
            hash([PROGRAM, kind].into_iter().chain(built_in.chain(inputs).map(|hash| &**hash)).map(str::as_bytes));
        let documents = self.clone();
        let encode = move || {
            let parts = latest.versions.values().flat_map(|version| &version.parts);
            let release_parameters = ReleaseParameters::of_types(types_of(documents.built_in.release()));
            let parts = parts_of(parts, &custom, Dialect::V2, release_parameters);
            let document = match encoding {
                SwaggerEncoding::Json => documents.built_in.swagger_with(parts),
                SwaggerEncoding::Protobuf => documents.built_in.swagger_protobuf_with(parts),
            };
            document.body
        };
        self.keep(hash, encode).await
    }

    /// The inputs of all documents for these definitions. Only those of changed definitions are hashed.
    fn derive(&self, custom: &CustomResources) -> Arc<CustomIndex> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.revision != custom.revision() {
            let derived = Arc::new(self.derive_from(&latest, custom));
            if derived.revision < latest.revision {
                return derived;
            }
            *latest = derived;
        }
        latest.clone()
    }

    fn derive_from(&self, known: &CustomIndex, custom: &CustomResources) -> CustomIndex {
        let established = custom.definitions().filter(|live| live.definition.is_established());
        let definitions: BTreeMap<Box<str>, _> = established
            .map(|live| {
                let name: Box<str> = live.definition.metadata.name.as_str().into();
                let same = known.definitions.get(&name).filter(|known| known.is_from(live)).cloned();
                (name, same.unwrap_or_else(|| Arc::new(DefinitionInputs::new(live))))
            })
            .collect();
        let mut members: BTreeMap<&str, Vec<VersionMember<'_>>> = BTreeMap::new();
        for (name, inputs) in &definitions {
            for (position, path, hash) in &inputs.versions {
                // A group-version with built-in resources hides custom ones.
                if !self.built_in.has_version(path) {
                    members.entry(path).or_default().push(VersionMember { name, position: *position, hash });
                }
            }
        }
        // What the built-in types in a document depend on.
        let release = self.built_in.release().to_string();
        let group_versions = self.built_in.group_versions();
        let group_versions = group_versions.iter().flat_map(|(group, version)| [*group, "/", *version, " "]);
        let server: Vec<&str> = [PROGRAM, " v3 ", &release, " "].into_iter().chain(group_versions).collect();
        let versions = members.into_iter().map(|(path, members)| {
            let hashes = members.iter().map(|member| member.hash);
            let hash = hash(server.iter().copied().chain(hashes).map(str::as_bytes));
            let parts = members.iter().map(|member| (member.name.into(), member.position)).collect();
            (path.into(), VersionInputs { hash, parts })
        });
        let versions = versions.collect();
        CustomIndex { revision: custom.revision(), definitions, versions, index: OnceLock::new() }
    }

    /// The kept document of this hash; otherwise it is encoded, on a thread that may block.
    async fn keep(&self, hash: Box<str>, encode: impl FnOnce() -> Arc<[u8]> + Send + 'static) -> OpenApiDocument {
        let find = || self.kept.lock().unwrap_or_else(PoisonError::into_inner).find(&hash);
        if let Some(body) = find() {
            return OpenApiDocument { body, hash };
        }
        let _guard = self.encoding.lock().await;
        if let Some(body) = find() {
            return OpenApiDocument { body, hash };
        }
        let body = match tokio::task::spawn_blocking(encode).await {
            Ok(body) => body,
            // Cancelled: the server stops.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(&hash, body.clone());
        OpenApiDocument { body, hash }
    }
}

impl DefinitionInputs {
    fn new(live: &LiveDefinition) -> Self {
        let served = live.versions.iter().enumerate().filter(|(_, version)| version.version().served);
        let versions = served.map(|(position, version)| {
            let path = format!("apis/{}", version.group_version());
            (position, path.into(), input_hash(version))
        });
        let metadata = &live.definition.metadata;
        Self {
            uid: metadata.uid.as_str().into(),
            generation: metadata.generation,
            accepted_names: live.definition.status.accepted_names.clone(),
            is_non_structural: live.definition.has_condition("NonStructuralSchema"),
            versions: versions.collect(),
        }
    }

    /// True if a definition is in a state with the same documents. Generations count from 1.
    fn is_from(&self, live: &LiveDefinition) -> bool {
        let metadata = &live.definition.metadata;
        *self.uid == *metadata.uid
            && self.generation == metadata.generation
            && self.generation > 0
            && self.accepted_names == live.definition.status.accepted_names
            && self.is_non_structural == live.definition.has_condition("NonStructuralSchema")
    }
}

fn parts_of<'p>(
    parts: impl Iterator<Item = &'p (Box<str>, usize)>,
    custom: &CustomResources,
    dialect: Dialect,
    release_parameters: ReleaseParameters,
) -> impl Iterator<Item = OpenApiPart> {
    parts.filter_map(move |(name, position)| {
        let version = custom.definition(name)?.live.versions.get(*position)?;
        Some(describe(version, is_structural(version), dialect, release_parameters))
    })
}
