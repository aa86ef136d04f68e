//! The OpenAPI documents of built-in and custom resources.
//!
//! Documents of custom resources follow the served definitions: each request compares the inputs of the last request
//! with the current definitions and hashes only those that changed. The hash of a document is made from the hashes of its
//! inputs, so the index needs no document, and a document is encoded only when a client requests it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use apiextensions::definition::ResourceNames;
use apiextensions::openapi::{ReleaseParameters, describe, document, input_hash, is_structural};
use bytes::Bytes;
use edge::openapi::page::SwaggerEncoding;
use kinds::openapi::OpenApi;
use kinds::{ServedResources, types_of};
use schema::openapi::merge::{add_extension, swagger_to_protobuf};
use schema::openapi::{Dialect, KeptDocuments, OpenApiDocument, OpenApiPart, hash, index_document};
use store::Revision;

use crate::definitions::{CustomResources, LiveDefinition};
use crate::extension_apis::ExtensionSwagger;

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

/// What the documents of all served definitions are made from.
#[derive(Clone, Debug, Default)]
struct CustomIndex {
    revision: Revision,
    /// The names of the definitions of that revision, by address, which no other has while it is referenced: those that are still
    /// there have not changed.
    derived_from: HashMap<usize, (Weak<LiveDefinition>, Arc<str>)>,
    /// The established ones.
    definitions: BTreeMap<Arc<str>, Arc<DefinitionInputs>>,
    /// By path below `/openapi/v3/`.
    versions: BTreeMap<Arc<str>, Arc<VersionInputs>>,
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
    versions: Vec<(usize, Arc<str>, Arc<str>)>,
}

/// The custom resources in one group-version, sorted by the names of their definitions.
#[derive(Debug)]
struct VersionInputs {
    hash: Box<str>,
    parts: Vec<VersionPart>,
}

/// A custom resource in a group-version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VersionPart {
    /// The name of its definition.
    name: Arc<str>,
    /// The position of the version in the definition.
    position: usize,
    /// The hash of its inputs.
    hash: Arc<str>,
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
        let index = latest.index.get_or_init(|| index_document(self.addresses_with(&latest).into_iter()));
        index.clone()
    }

    /// The paths of all group-versions below `/openapi/v3/`, sorted, and the hashes of their documents.
    pub(crate) fn addresses(&self, custom: &CustomResources) -> Vec<(String, Box<str>)> {
        let custom = self.derive(custom);
        self.addresses_with(&custom).into_iter().map(|(path, hash)| (path.to_owned(), hash.into())).collect()
    }

    fn addresses_with<'i>(&'i self, custom: &'i CustomIndex) -> Vec<(&'i str, &'i str)> {
        let built_in = self.built_in.addresses().iter().map(|(path, hash)| (&**path, &**hash));
        let custom = custom.versions.iter().map(|(path, version)| (&**path, &*version.hash));
        let mut addresses: Vec<_> = built_in.chain(custom).collect();
        // Both are sorted, so that this merges them.
        addresses.sort();
        addresses
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

    /// `/openapi/v2` with the documents of extension API servers. A document that cannot be read adds nothing.
    pub(crate) async fn swagger_with_extensions(
        self: &Arc<Self>,
        encoding: SwaggerEncoding,
        custom: Arc<CustomResources>,
        extensions: Vec<ExtensionSwagger>,
    ) -> OpenApiDocument {
        let own = self.swagger(SwaggerEncoding::Json, custom).await;
        let inputs = extensions.iter().flat_map(|extension| {
            let group_versions = extension.group_versions.iter().flat_map(|path| [" ", path.as_str()]);
            [" ", &*extension.document.hash].into_iter().chain(group_versions)
        });
        let pieces: Vec<&str> = [PROGRAM, " v2 extensions ", &*own.hash].into_iter().chain(inputs).collect();
        let merged_hash = hash(pieces.into_iter().map(str::as_bytes));
        let merged = self.keep(merged_hash, move || add_extensions(own, &extensions)).await;
        if encoding == SwaggerEncoding::Json {
            return merged;
        }
        let hash = hash(["protobuf ", &*merged.hash].map(str::as_bytes));
        let encode = move || swagger_to_protobuf(&merged.body).expect("a merged document is JSON").into();
        self.keep(hash, encode).await
    }

    /// The inputs of all documents for these definitions. Only those of changed definitions are hashed.
    fn derive(&self, custom: &CustomResources) -> Arc<CustomIndex> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.revision > custom.revision() {
            // The request began before the last change.
            let mut older = CustomIndex::clone(&latest);
            self.update(&mut older, custom);
            return Arc::new(older);
        }
        if latest.revision != custom.revision() {
            self.update(Arc::make_mut(&mut latest), custom);
        }
        latest.clone()
    }

    /// Brings an index to the state of these definitions.
    fn update(&self, index: &mut CustomIndex, custom: &CustomResources) {
        (index.revision, index.index) = (custom.revision(), OnceLock::new());
        let current: HashMap<usize, &Arc<LiveDefinition>> =
            custom.definitions().map(|live| (Arc::as_ptr(live).addr(), live)).collect();
        let mut changed: BTreeMap<Arc<str>, Option<Arc<DefinitionInputs>>> = BTreeMap::new();
        let gone = index.derived_from.extract_if(|address, _| !current.contains_key(address));
        changed.extend(gone.map(|(_, (_, name))| (name, None)));
        for (address, live) in current {
            let Entry::Vacant(entry) = index.derived_from.entry(address) else { continue };
            let name: Arc<str> = live.definition.metadata.name.as_str().into();
            entry.insert((Arc::downgrade(live), name.clone()));
            if live.definition.is_established() {
                let known = index.definitions.get(&name).filter(|known| known.is_from(live)).cloned();
                changed.insert(name, Some(known.unwrap_or_else(|| Arc::new(DefinitionInputs::new(live)))));
            }
        }
        let mut touched: BTreeMap<Arc<str>, Vec<VersionPart>> = BTreeMap::new();
        for (name, inputs) in changed {
            let last = match &inputs {
                Some(inputs) => index.definitions.insert(name.clone(), inputs.clone()),
                None => index.definitions.remove(&name),
            };
            let versions = last.iter().chain(&inputs).flat_map(|inputs| &inputs.versions);
            // A group-version with built-in resources hides custom ones.
            for (_, path, _) in versions.filter(|(_, path, _)| !self.built_in.has_version(path)) {
                let known = || index.versions.get(path).map(|version| version.parts.clone()).unwrap_or_default();
                let parts = touched.entry(path.clone()).or_insert_with(known);
                parts.retain(|part| part.name != name);
                parts.extend(inputs.iter().flat_map(|inputs| inputs.parts(&name, path)));
            }
        }
        for (path, mut parts) in touched {
            parts.sort_by(|a, b| (&a.name, a.position).cmp(&(&b.name, b.position)));
            match index.versions.get(&path) {
                Some(same) if same.parts == parts => {}
                _ if parts.is_empty() => _ = index.versions.remove(&path),
                _ => _ = index.versions.insert(path, Arc::new(self.version_inputs(parts))),
            }
        }
    }

    fn version_inputs(&self, parts: Vec<VersionPart>) -> VersionInputs {
        // What the built-in types in a document depend on.
        let release = self.built_in.release().to_string();
        let group_versions = self.built_in.group_versions();
        let group_versions = group_versions.iter().flat_map(|(group, version)| [*group, "/", *version, " "]);
        let server = [PROGRAM, " v3 ", &release, " "].into_iter().chain(group_versions);
        let hash = hash(server.chain(parts.iter().map(|part| &*part.hash)).map(str::as_bytes));
        VersionInputs { hash, parts }
    }

    /// The kept document of this hash; otherwise it is encoded, on a thread that may block.
    async fn keep(&self, hash: Box<str>, encode: impl FnOnce() -> Bytes + Send + 'static) -> OpenApiDocument {
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
            (position, path.into(), input_hash(version).into())
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

    /// What the definition of this name adds to a group-version.
    fn parts(&self, name: &Arc<str>, path: &str) -> impl Iterator<Item = VersionPart> {
        let versions = self.versions.iter().filter(move |(_, version, _)| **version == *path);
        versions.map(|(position, _, hash)| VersionPart { name: name.clone(), position: *position, hash: hash.clone() })
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

/// Adds the paths of extension API servers and the types that they need.
fn add_extensions(own: OpenApiDocument, extensions: &[ExtensionSwagger]) -> Bytes {
    let mut merged = own.body;
    for extension in extensions {
        let takes = |path: &str| {
            let below = |group_version: &String| {
                path.strip_prefix('/')
                    .and_then(|path| path.strip_prefix(group_version.as_str()))
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            extension.group_versions.iter().any(below)
        };
        match add_extension(&merged, &extension.document.body, takes, Dialect::V2) {
            Ok(body) => merged = body.into(),
            Err(error) => {
                let group_versions = extension.group_versions.join(", ");
                tracing::warn!(group_versions, %error, "Swagger document of an extension API server left out");
            }
        }
    }
    merged
}

fn parts_of<'p>(
    parts: impl Iterator<Item = &'p VersionPart>,
    custom: &CustomResources,
    dialect: Dialect,
    release_parameters: ReleaseParameters,
) -> impl Iterator<Item = OpenApiPart> {
    parts.filter_map(move |part| {
        let version = custom.definition(&part.name)?.live.versions.get(part.position)?;
        Some(describe(version, is_structural(version), dialect, release_parameters))
    })
}
