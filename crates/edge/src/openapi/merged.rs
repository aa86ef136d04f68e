//! The documents of this server with the resources that only peers serve.
//!
//! The hash of a merged document is made from the hashes of its inputs, so that the index needs no document, and servers with equal
//! inputs have equal hashes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use membership::members::Member;
use membership::ports::Fetch;
use membership::route::IncompleteViewReason;
use membership::view::FirstSync;
use membership::{UnavailableReason, View};
use parking_lot::Mutex;
use schema::openapi::merge::{Addition, DocumentedResource, MergeError, merge, swagger_to_protobuf};
use schema::openapi::{Dialect, KeptDocuments, OpenApiDocument, hash, index_document};

use super::LocalOpenApi;
use super::page::{OpenApiPage, SwaggerEncoding};
use super::peer_documents::{PeerDocuments, PeerIndex};
use super::peer_only::{PeerOnlyResources, ResourceNames};
use crate::{Request, Response, routing_status};

/// Limit of all merged documents that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Part of every hash: another version of the program may merge the same inputs differently.
const PROGRAM: &str = concat!("unskew ", env!("CARGO_PKG_VERSION"), " merged ");

/// The OpenAPI documents of all servers.
pub struct MergedOpenApi {
    /// `None` in a gateway, whose documents are those of the upstreams.
    local: Option<Arc<dyn LocalOpenApi>>,
    peers: PeerDocuments,
    /// Derived from the view of the last request.
    derived: Mutex<Option<(Arc<View>, Arc<PeerOnlyResources>)>>,
    merged: Mutex<KeptDocuments>,
    /// One document is merged at a time, so that concurrent requests for it share the result.
    merging: tokio::sync::Mutex<()>,
}

impl fmt::Debug for MergedOpenApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergedOpenApi").field("local", &self.local).finish_non_exhaustive()
    }
}

/// The documents of members with the same content.
struct Source<'c> {
    is_live: bool,
    index: &'c PeerIndex,
    /// The hash of the document.
    hash: &'c str,
    /// The members that have it.
    members: Vec<&'c Member>,
}

/// The contributors of a view with their indexes.
struct Contributions<'c> {
    resources: &'c PeerOnlyResources,
    indexes: Vec<Option<Arc<PeerIndex>>>,
}

/// A document to merge, and where it comes from.
struct MergeInputs {
    dialect: Dialect,
    documents: Vec<Bytes>,
    /// The resources of the group-versions that are taken from the documents after the first.
    resources: Arc<PeerOnlyResources>,
}

impl MergedOpenApi {
    /// The documents of this server, if it has any of its own, and of the peers that `fetch` reaches.
    pub fn new(local: Option<Arc<dyn LocalOpenApi>>, fetch: Arc<dyn Fetch>) -> Self {
        Self {
            local,
            peers: PeerDocuments::new(fetch),
            derived: Mutex::default(),
            merged: Mutex::new(KeptDocuments::new(KEPT_BYTES_MAX)),
            merging: tokio::sync::Mutex::default(),
        }
    }

    /// Serves a merged document; `None` leaves the request to the local handler: the path is none of OpenAPI, or no peer adds
    /// anything.
    pub(crate) async fn serve(&self, view: Arc<View>, request: &Request) -> Option<Result<Response, Status>> {
        let (path, headers) = (request.uri().path(), request.headers());
        let page = OpenApiPage::from_request(path, headers)?;
        if view.first_sync() == FirstSync::Pending {
            let reason = UnavailableReason::ViewIncomplete(IncompleteViewReason::NotSynced);
            return Some(Err(routing_status::unavailable_status(reason)));
        }
        let resources = self.peer_only_resources(view);
        if resources.versions.is_empty() {
            return None;
        }
        if let (OpenApiPage::Version(path), Some(_)) = (page, &self.local)
            && !resources.versions.contains_key(path)
        {
            return None;
        }
        let indexes = self.peers.indexes(&resources.contributors).await;
        let contributions = Contributions { resources: &resources, indexes };
        // The upstreams of a gateway have the same documents: any of them answers.
        if self.local.is_none() && contributions.are_alike() && !contributions.lacks(page) {
            return None;
        }
        let document = match page {
            OpenApiPage::Index => Some(self.index(&contributions).await),
            OpenApiPage::Version(path) => self.version(&contributions, &resources, path).await,
            OpenApiPage::Swagger(encoding) => self.swagger(&contributions, &resources, encoding).await,
        };
        let query = request.uri().query().unwrap_or_default();
        match document {
            Some(document) => Some(page.respond(&document, query, headers)),
            None if contributions.has_version(page) => {
                Some(Err(routing_status::unavailable_status(UnavailableReason::OnlyUnreachableMembers)))
            }
            None => None,
        }
    }

    fn peer_only_resources(&self, view: Arc<View>) -> Arc<PeerOnlyResources> {
        let mut derived = self.derived.lock();
        match &*derived {
            Some((last, resources)) if Arc::ptr_eq(last, &view) => resources.clone(),
            _ => {
                let resources = Arc::new(PeerOnlyResources::from_view(&view));
                *derived = Some((view, resources.clone()));
                resources
            }
        }
    }

    async fn index(&self, contributions: &Contributions<'_>) -> OpenApiDocument {
        let local = match &self.local {
            Some(local) => local.addresses().await,
            None => Vec::new(),
        };
        let mut addresses: BTreeMap<String, Box<str>> = local.into_iter().collect();
        for (path, names) in &contributions.resources.versions {
            let sources = contributions.sources(path);
            let local = addresses.get(path.as_ref()).map(|hash| &**hash);
            let inputs = local.into_iter().chain(sources.iter().map(|source| source.hash));
            if let Some(hash) = merged_hash("v3 ", inputs, [(&**path, names)]) {
                addresses.insert(path.to_string(), hash);
            }
        }
        if self.local.is_none() {
            // Documents that describe no group-version, such as `version`.
            for index in contributions.newest_first() {
                for (path, hash) in &index.addresses {
                    if !contributions.resources.versions.contains_key(path) {
                        addresses.entry(path.to_string()).or_insert_with(|| hash.clone());
                    }
                }
            }
        }
        index_document(addresses.iter().map(|(path, hash)| (path.as_str(), &**hash)))
    }

    async fn version(
        &self,
        contributions: &Contributions<'_>,
        resources: &Arc<PeerOnlyResources>,
        path: &str,
    ) -> Option<OpenApiDocument> {
        let local = match &self.local {
            Some(local) => local.version(path).await,
            None => None,
        };
        let mut inputs: Vec<OpenApiDocument> = local.into_iter().collect();
        let names = resources.versions.get_key_value(path).map(|(path, names)| (&**path, names));
        // A document without a group-version is that of the newest upstream.
        let sources_max = if names.is_some() { usize::MAX } else { 1 };
        for source in contributions.sources(path).into_iter().take(sources_max) {
            if let Some(body) = self.peers.version(&source.members, path, source.hash).await {
                inputs.push(OpenApiDocument { body, hash: source.hash.into() });
            }
        }
        let hash = merged_hash("v3 ", inputs.iter().map(|input| &*input.hash), names)?;
        self.merge(hash, inputs, Dialect::V3, resources).await
    }

    async fn swagger(
        &self,
        contributions: &Contributions<'_>,
        resources: &Arc<PeerOnlyResources>,
        encoding: SwaggerEncoding,
    ) -> Option<OpenApiDocument> {
        let local = match &self.local {
            Some(local) => Some(local.swagger().await),
            None => None,
        };
        let mut inputs: Vec<OpenApiDocument> = local.into_iter().collect();
        for source in contributions.all_sources() {
            if let Some(body) = self.peers.swagger(&source.members, source.index).await {
                inputs.push(OpenApiDocument { body, hash: source.hash.into() });
            }
        }
        let names = resources.versions.iter().map(|(path, names)| (&**path, names));
        let hash = merged_hash("v2 ", inputs.iter().map(|input| &*input.hash), names)?;
        let json = self.merge(hash, inputs, Dialect::V2, resources).await?;
        if encoding == SwaggerEncoding::Json {
            return Some(json);
        }
        let hash = hash_of(["protobuf ", &json.hash]);
        self.keep(hash, move || swagger_to_protobuf(&json.body)).await
    }

    /// Merges documents; one alone stays as it is.
    async fn merge(
        &self,
        hash: Box<str>,
        mut inputs: Vec<OpenApiDocument>,
        dialect: Dialect,
        resources: &Arc<PeerOnlyResources>,
    ) -> Option<OpenApiDocument> {
        if inputs.len() == 1 {
            return inputs.pop();
        }
        let documents = inputs.into_iter().map(|input| input.body).collect();
        let inputs = MergeInputs { dialect, documents, resources: resources.clone() };
        self.keep(hash, move || inputs.merge()).await
    }

    /// The kept document of this hash; otherwise it is made, on a thread that may block.
    async fn keep(
        &self,
        hash: Box<str>,
        make: impl FnOnce() -> Result<Vec<u8>, MergeError> + Send + 'static,
    ) -> Option<OpenApiDocument> {
        let find = || self.merged.lock().find(&hash);
        if let Some(body) = find() {
            return Some(OpenApiDocument { body, hash });
        }
        let _guard = self.merging.lock().await;
        if let Some(body) = find() {
            return Some(OpenApiDocument { body, hash });
        }
        match tokio::task::spawn_blocking(make).await.ok()? {
            Ok(body) => {
                let body = Bytes::from(body);
                self.merged.lock().insert(&hash, body.clone());
                Some(OpenApiDocument { body, hash })
            }
            Err(error) => {
                tracing::warn!(%error, "failed to merge OpenAPI documents");
                None
            }
        }
    }
}

impl MergeInputs {
    fn merge(&self) -> Result<Vec<u8>, MergeError> {
        let takes = |path: &str| {
            DocumentedResource::from_path(path).is_some_and(|documented| {
                let names = self.resources.versions.get(documented.group_version);
                names.is_some_and(|names| documented.resource.is_empty() || names.contains(documented))
            })
        };
        let [base, others @ ..] = &*self.documents else { return Ok(Vec::new()) };
        let additions: Vec<Addition<'_>> = others.iter().map(|body| Addition { body, takes: &takes }).collect();
        merge(base, &additions, self.dialect)
    }
}

impl<'c> Contributions<'c> {
    /// True if every contributor has the same documents, as far as they are known.
    fn are_alike(&self) -> bool {
        let mut known = self.indexes.iter().flatten().map(|index| &index.hash);
        let first = known.next();
        known.all(|hash| Some(hash) == first)
    }

    /// True if the page is a group-version of which no known index has a document.
    fn lacks(&self, page: OpenApiPage<'_>) -> bool {
        matches!(page, OpenApiPage::Version(path)
            if self.resources.versions.contains_key(path) && self.sources(path).is_empty())
    }

    /// True if some peer lists the group-version of a page, so that a missing document proves nothing.
    fn has_version(&self, page: OpenApiPage<'_>) -> bool {
        match page {
            OpenApiPage::Version(path) => self.resources.versions.contains_key(path),
            OpenApiPage::Index | OpenApiPage::Swagger(_) => true,
        }
    }

    /// The documents of a group-version: those of live members first, the newest release first.
    fn sources(&'c self, path: &str) -> Vec<Source<'c>> {
        let serves = |position: usize| {
            let contributor = &self.resources.contributors[position];
            // Documents without a group-version come from every upstream of a gateway.
            contributor.versions.contains(path) || !self.resources.versions.contains_key(path)
        };
        self.sources_by(|position, index| index.addresses.get(path).map(|hash| &**hash).filter(|_| serves(position)))
    }

    /// All documents of each contributor.
    fn all_sources(&'c self) -> Vec<Source<'c>> {
        self.sources_by(|_, index| Some(&index.hash))
    }

    fn newest_first(&'c self) -> impl Iterator<Item = &'c PeerIndex> {
        self.all_sources().into_iter().map(|source| source.index)
    }

    fn sources_by(&'c self, hash_of: impl Fn(usize, &'c PeerIndex) -> Option<&'c str>) -> Vec<Source<'c>> {
        let mut sources: Vec<Source<'c>> = Vec::new();
        for (position, index) in self.indexes.iter().enumerate() {
            let contributor = &self.resources.contributors[position];
            let Some(index) = index else { continue };
            let Some(hash) = hash_of(position, index) else { continue };
            match sources.iter_mut().find(|source| source.hash == hash) {
                Some(source) => {
                    source.is_live |= contributor.is_live;
                    source.index = if index.release > source.index.release { index } else { source.index };
                    source.members.push(&contributor.member);
                }
                None => {
                    let (is_live, members) = (contributor.is_live, vec![&contributor.member]);
                    sources.push(Source { is_live, index, hash, members });
                }
            }
        }
        sources.sort_by(|a, b| (b.is_live, b.index.release, b.hash).cmp(&(a.is_live, a.index.release, a.hash)));
        sources
    }
}

/// The hash of a merged document: that of the only input, or one made from all inputs and the names of what is added; `None`
/// without input.
fn merged_hash<'i>(
    kind: &'i str,
    inputs: impl IntoIterator<Item = &'i str>,
    names: impl IntoIterator<Item = (&'i str, &'i ResourceNames)>,
) -> Option<Box<str>> {
    let inputs: Vec<&str> = inputs.into_iter().collect();
    if let [] | [_] = &*inputs {
        return inputs.first().map(|hash| (*hash).into());
    }
    let separated = |piece: &'i str| [piece, " "];
    let names = names.into_iter().flat_map(|(path, names)| std::iter::once(path).chain(names.iter().flatten()));
    let inputs = inputs.into_iter().flat_map(separated);
    Some(hash_of([PROGRAM, kind].into_iter().chain(inputs).chain(names.flat_map(separated))))
}

fn hash_of<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Box<str> {
    hash(pieces.into_iter().map(str::as_bytes))
}
