//! OpenAPI documents of peers: fetched when a client needs them, and kept by their hash.
//!
//! Peers are asked with the marks of a forwarded request, so that they answer with their own documents. What was fetched last stays
//! while a peer does not answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::headers::lowercase::{HOP_MARK_VALUE, PEER_PROXIED, REROUTED};
use bytes::Bytes;
use futures_util::future::join_all;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use membership::members::Member;
use membership::ports::{Fetch, FetchError, FetchRequest};
use membership::{HolderIdentity, ServerId};
use parking_lot::Mutex;
use schema::openapi::{KeptDocuments, hash, parse_index};
use serde::Deserialize;
use tokio::time::Instant;

use super::peer_only::Contributor;
use crate::response::JSON;

/// How long the index of a peer counts as current. kube-apiserver itself updates its index once per second.
const INDEX_AGE_MAX: Duration = Duration::from_secs(2);
/// How long a peer that did not answer is not asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Limit for the index and the version of a peer; clients wait for them.
const INDEX_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit for one document; clients wait for it.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of an index: several thousand group-versions.
const INDEX_BYTES_MAX: usize = 4 << 20;
/// Limit of a document. `/openapi/v2` of kube-apiserver has 5 MB without custom resources.
const DOCUMENT_BYTES_MAX: usize = 32 << 20;
/// Limit of all fetched documents that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Fetches and keeps the documents of peers.
pub(super) struct PeerDocuments {
    fetch: Arc<dyn Fetch>,
    indexes: Mutex<HashMap<ServerId, KnownIndex>>,
    /// One task fetches at a time, so that concurrent requests share the result.
    fetching: tokio::sync::Mutex<()>,
    bodies: Mutex<KeptDocuments>,
}

/// What is known of a peer.
#[derive(Clone, Debug)]
struct KnownIndex {
    /// The process that was asked.
    holder: Option<HolderIdentity>,
    asked_at: Instant,
    has_answered: bool,
    index: Option<Arc<PeerIndex>>,
}

/// The documents that a peer has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PeerIndex {
    pub(super) release: PeerRelease,
    /// The hashes of the documents by path below `/openapi/v3/`.
    pub(super) addresses: BTreeMap<Box<str>, Box<str>>,
    /// The hash of all addresses.
    pub(super) hash: Box<str>,
}

/// The release of a peer, as `/version` tells it: the emulated minor version first, then the version of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerRelease {
    emulated: [u32; 2],
    program: [u32; 3],
}

impl PeerDocuments {
    pub(super) fn new(fetch: Arc<dyn Fetch>) -> Self {
        let bodies = Mutex::new(KeptDocuments::new(KEPT_BYTES_MAX));
        Self { fetch, indexes: Mutex::default(), fetching: tokio::sync::Mutex::default(), bodies }
    }

    /// The index of each contributor as far as it is known. Indexes that are not current are fetched before.
    pub(super) async fn indexes(&self, contributors: &[Contributor]) -> Vec<Option<Arc<PeerIndex>>> {
        if contributors.iter().any(|contributor| self.is_due(&contributor.member)) {
            let _guard = self.fetching.lock().await;
            let due = contributors.iter().filter(|contributor| self.is_due(&contributor.member));
            join_all(due.map(|contributor| self.refresh_index(&contributor.member))).await;
            self.indexes.lock().retain(|server, _| contributors.iter().any(|known| known.server == *server));
        }
        let indexes = self.indexes.lock();
        contributors.iter().map(|contributor| indexes.get(&contributor.server)?.index.clone()).collect()
    }

    /// A document of a group-version, from any of these members.
    pub(super) async fn version(&self, members: &[&Member], path: &str, hash: &str) -> Option<Bytes> {
        self.document(members, &format!("{path} {hash}"), &format!("/openapi/v3/{path}?hash={hash}")).await
    }

    /// `/openapi/v2` in JSON, from any of these members, all of which have the same index.
    pub(super) async fn swagger(&self, members: &[&Member], index: &PeerIndex) -> Option<Bytes> {
        self.document(members, &format!("v2 {}", index.hash), "/openapi/v2").await
    }

    async fn document(&self, members: &[&Member], key: &str, path: &str) -> Option<Bytes> {
        let find = || self.bodies.lock().find(key);
        if let Some(body) = find() {
            return Some(body);
        }
        let _guard = self.fetching.lock().await;
        if let Some(body) = find() {
            return Some(body);
        }
        for member in members {
            let has_answered = self.indexes.lock().get(&member.server).is_some_and(|known| known.has_answered);
            if !has_answered {
                continue;
            }
            match self.get(member, path, DOCUMENT_TIMEOUT, DOCUMENT_BYTES_MAX).await {
                Ok(body) => {
                    self.bodies.lock().insert(key, body.clone());
                    return Some(body);
                }
                Err(error) => {
                    tracing::warn!(peer = %member.server, path, %error, "failed to fetch an OpenAPI document");
                    if let Some(known) = self.indexes.lock().get_mut(&member.server) {
                        known.has_answered = false;
                        known.asked_at = Instant::now();
                    }
                }
            }
        }
        None
    }

    fn is_due(&self, member: &Member) -> bool {
        if member.address.is_none() {
            return false;
        }
        let indexes = self.indexes.lock();
        let Some(known) = indexes.get(&member.server) else { return true };
        let age_max = if known.has_answered { INDEX_AGE_MAX } else { RETRY_INTERVAL };
        known.holder != member.holder || known.asked_at.elapsed() >= age_max
    }

    async fn refresh_index(&self, member: &Member) {
        let asked_at = Instant::now();
        let fetched = self.fetch_index(member).await;
        if let Err(error) = &fetched {
            tracing::warn!(peer = %member.server, %error, "failed to fetch the OpenAPI index");
        }
        let mut indexes = self.indexes.lock();
        let last = indexes.get(&member.server).and_then(|known| known.index.clone());
        let has_answered = fetched.is_ok();
        let index = match fetched {
            Ok(index) => Some(last.filter(|last| **last == index).unwrap_or_else(|| Arc::new(index))),
            Err(_) => last,
        };
        let known = KnownIndex { holder: member.holder.clone(), asked_at, has_answered, index };
        indexes.insert(member.server.clone(), known);
    }

    async fn fetch_index(&self, member: &Member) -> Result<PeerIndex, DocumentError> {
        let (index, version) = tokio::try_join!(
            self.get(member, "/openapi/v3", INDEX_TIMEOUT, INDEX_BYTES_MAX),
            self.get(member, "/version", INDEX_TIMEOUT, INDEX_BYTES_MAX),
        )?;
        PeerIndex::parse(&index, PeerRelease::parse(&version)?)
    }

    async fn get(
        &self,
        member: &Member,
        path: &str,
        timeout: Duration,
        bytes_max: usize,
    ) -> Result<Bytes, DocumentError> {
        let address = member.address.clone().ok_or(DocumentError::NoAddress)?;
        let mut headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
        for name in [PEER_PROXIED, REROUTED] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(HOP_MARK_VALUE));
        }
        let server = member.server.clone();
        let request = FetchRequest { server, address, path: path.to_owned(), headers, bytes_max };
        let response = tokio::time::timeout(timeout, self.fetch.fetch(request)).await;
        let response = response.unwrap_or(Err(FetchError::TimedOut))?;
        match response.status {
            StatusCode::OK => Ok(response.body),
            status => Err(DocumentError::Status(status)),
        }
    }
}

/// Why a document could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    #[error("the peer has no address")]
    NoAddress,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("not an OpenAPI index or version: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl PeerIndex {
    fn parse(body: &[u8], release: PeerRelease) -> Result<Self, DocumentError> {
        let addresses = parse_index(body)?;
        let pieces = addresses.iter().flat_map(|(path, hash)| [&**path, " ", &**hash, " "]);
        let hash = hash(pieces.map(str::as_bytes));
        Ok(Self { release, addresses, hash })
    }
}

impl PeerRelease {
    fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Version {
            major: String,
            minor: String,
            emulation_major: String,
            emulation_minor: String,
            git_version: String,
        }
        let version: Version = serde_json::from_slice(body)?;
        // Some distributions write `36+`.
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_default();
        let emulated = match version.emulation_minor.is_empty() {
            true => [number(&version.major), number(&version.minor)],
            false => [number(&version.emulation_major), number(&version.emulation_minor)],
        };
        let mut numbers = version.git_version.trim_start_matches('v').split(['.', '-', '+']).map(number);
        let program = std::array::from_fn(|_| numbers.next().unwrap_or_default());
        Ok(Self { emulated, program })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_emulated_version_then_program() {
        let parse = |body: &str| PeerRelease::parse(body.as_bytes()).unwrap();
        let old = parse(r#"{"major":"1","minor":"35","gitVersion":"v1.35.8"}"#);
        let emulating =
            parse(r#"{"major":"1","minor":"36","emulationMajor":"1","emulationMinor":"35","gitVersion":"v1.36.4"}"#);
        let new = parse(r#"{"major":"1","minor":"36+","gitVersion":"v1.36.4-eks-1"}"#);
        assert!(old < emulating && emulating < new);
        assert_eq!(new, PeerRelease { emulated: [1, 36], program: [1, 36, 4] });
        assert!(PeerRelease::parse(b"").is_err());
    }

    #[test]
    fn index_is_parsed_and_hostile_hashes_are_left_out() {
        let body = br#"{"paths":{
            "api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=AB12"},
            "apis/x/v1":{"serverRelativeURL":"/openapi/v3/apis/x/v1?hash=A&b"},
            "version":{"serverRelativeURL":"/openapi/v3/version"}}}"#;
        let index = PeerIndex::parse(body, PeerRelease::default()).unwrap();
        assert_eq!(index.addresses, BTreeMap::from([("api/v1".into(), "AB12".into())]));
        assert!(PeerIndex::parse(b"{}", PeerRelease::default()).is_err());
    }
}
