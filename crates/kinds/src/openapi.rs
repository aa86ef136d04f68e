//! OpenAPI documents of one server, made from its served resources.
//!
//! `/openapi/v3` is an index with one document per group-version and per page that describes the server; `/openapi/v2` is one document for all, in JSON and in
//! protobuf. Each is built at its first request.

mod group_versions;
mod pages;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use schema::openapi::{ApiDescription, OpenApiDocument, OpenApiOperation, OpenApiPart, index_document};

use crate::release::Release;
use crate::served_resources::ServedResources;
use crate::types::types_of;

type Operations = BTreeMap<String, Vec<OpenApiOperation<'static>>>;

/// Group and version of the core types.
const CORE_VERSION: (&str, &str) = ("", "v1");

/// The documents of one server, each built once, at its first request.
#[derive(Debug)]
pub struct OpenApi {
    served_resources: Arc<ServedResources>,
    /// By path below `/openapi/v3/`.
    versions: BTreeMap<String, GroupVersionDocument>,
    index: OnceLock<OpenApiDocument>,
    addresses: OnceLock<Vec<(String, Box<str>)>>,
    swagger: OnceLock<OpenApiDocument>,
    swagger_protobuf: OnceLock<OpenApiDocument>,
}

/// One group-version: the positions of its resources among the served ones; none for a page that describes the server.
#[derive(Debug, Default)]
struct GroupVersionDocument {
    resources: Vec<usize>,
    document: OnceLock<OpenApiDocument>,
}

impl OpenApi {
    /// The documents of these served resources; each is built at its first request.
    pub fn new(served_resources: Arc<ServedResources>) -> Self {
        let mut versions: BTreeMap<String, GroupVersionDocument> = BTreeMap::new();
        for (position, served) in served_resources.resources().iter().enumerate() {
            let path = paths::group_version_path(served).trim_start_matches('/').to_owned();
            versions.entry(path).or_default().resources.push(position);
        }
        for page in pages::pages(group_names(&served_resources)) {
            versions.entry(page.path).or_default();
        }
        let [index, swagger, swagger_protobuf] = [const { OnceLock::new() }; 3];
        Self { served_resources, versions, index, addresses: OnceLock::new(), swagger, swagger_protobuf }
    }

    /// `/openapi/v3`: where the document of each group-version is. The hash in its address changes with its content.
    pub fn index(&self) -> &OpenApiDocument {
        self.index.get_or_init(|| index_document(self.addresses().iter().map(|(path, hash)| (&**path, &**hash))))
    }

    /// The paths of the group-versions below `/openapi/v3/`, sorted, and the hashes of their documents.
    pub fn addresses(&self) -> &[(String, Box<str>)] {
        self.addresses.get_or_init(|| {
            let addresses = self.versions.iter().map(|(path, version)| {
                // Not kept: most clients request one or two of the documents.
                let hash = match version.document.get() {
                    Some(document) => document.hash.clone(),
                    None => self.build_document(path, version).hash,
                };
                (path.clone(), hash)
            });
            addresses.collect()
        })
    }

    /// True if the server has a document of built-in resources or of a page: `apis/apps/v1`, `version`.
    pub fn has_version(&self, path: &str) -> bool {
        self.versions.contains_key(path)
    }

    /// The document of one group-version: `api/v1`, `apis/apps/v1`.
    pub fn version(&self, path: &str) -> Option<&OpenApiDocument> {
        let version = self.versions.get(path)?;
        Some(version.document.get_or_init(|| self.build_document(path, version)))
    }

    /// `/openapi/v2`: everything in one document.
    pub fn swagger(&self) -> &OpenApiDocument {
        self.swagger.get_or_init(|| self.swagger_with([]))
    }

    /// `/openapi/v2` in protobuf.
    pub fn swagger_protobuf(&self) -> &OpenApiDocument {
        self.swagger_protobuf.get_or_init(|| self.swagger_protobuf_with([]))
    }

    /// `/openapi/v2` with the parts of custom resources. Not kept.
    pub fn swagger_with(&self, parts: impl IntoIterator<Item = OpenApiPart>) -> OpenApiDocument {
        self.build(&self.all_operations(), &self.all_group_versions(), |api| api.to_swagger(parts))
    }

    /// `/openapi/v2` in protobuf, with the parts of custom resources. Not kept.
    pub fn swagger_protobuf_with(&self, parts: impl IntoIterator<Item = OpenApiPart>) -> OpenApiDocument {
        self.build(&self.all_operations(), &self.all_group_versions(), |api| api.to_swagger_protobuf(parts))
    }

    /// The release whose built-in types the documents have.
    pub fn release(&self) -> Release {
        self.served_resources.release()
    }

    /// Every group and version with built-in resources, sorted.
    pub fn group_versions(&self) -> Vec<(&str, &str)> {
        let all = self.served_resources.resources().iter();
        let sorted: BTreeSet<_> = all.map(|served| (served.group.name, served.version.name)).collect();
        sorted.into_iter().collect()
    }

    /// Every group and version that types common to all of them stand for.
    fn all_group_versions(&self) -> Vec<(&str, &str)> {
        let mut all: BTreeSet<(&str, &str)> = self.group_versions().into_iter().collect();
        for known in group_versions::known_group_versions(self.release()) {
            all.insert(known);
        }
        all.into_iter().collect()
    }

    fn all_operations(&self) -> Operations {
        let mut operations = paths::operations_by_path(self.served_resources.resources());
        for page in pages::pages(group_names(&self.served_resources)) {
            operations.insert(page.url_path(), vec![page.operation]);
        }
        operations
    }

    fn build_document(&self, path: &str, version: &GroupVersionDocument) -> OpenApiDocument {
        let resources = version.resources.iter().map(|position| &self.served_resources.resources()[*position]);
        let Some(first) = resources.clone().next() else { return self.build_page(path) };
        let operations = paths::operations_by_path(resources);
        // Until 1.35 types that belong to all group-versions name all of them; later, that of the document and the core version.
        if self.release() <= Release::R35 {
            return self.build(&operations, &self.all_group_versions(), |api| api.to_openapi_v3());
        }
        let own = (first.group.name, first.version.name);
        let group_versions: BTreeSet<_> = [CORE_VERSION, own].into_iter().collect();
        let group_versions: Vec<_> = group_versions.into_iter().collect();
        self.build(&operations, &group_versions, |api| api.to_openapi_v3())
    }

    fn build_page(&self, path: &str) -> OpenApiDocument {
        let pages = pages::pages(group_names(&self.served_resources)).into_iter();
        let operations =
            pages.filter(|page| page.path == path).map(|page| (page.url_path(), vec![page.operation])).collect();
        self.build(&operations, &[], |api| api.to_openapi_v3())
    }

    fn build(
        &self,
        operations: &Operations,
        group_versions: &[(&str, &str)],
        encode: impl FnOnce(ApiDescription<'_>) -> OpenApiDocument,
    ) -> OpenApiDocument {
        let release = self.served_resources.release();
        encode(ApiDescription { types: types_of(release), version: &release.to_string(), operations, group_versions })
    }
}

/// The groups with built-in resources, sorted.
fn group_names(served_resources: &ServedResources) -> impl Iterator<Item = &str> {
    let names: BTreeSet<&str> = served_resources.resources().iter().map(|served| served.group.name).collect();
    names.into_iter()
}

#[cfg(test)]
mod tests;
