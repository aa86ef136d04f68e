//! Peers over a network in memory: their responses, and the requests they got.

use std::collections::HashMap;
use std::sync::Arc;

use api::media::AggregatedVersion;
use discovery::{GroupDiscoveryList, aggregated};
use futures_util::FutureExt as _;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::groups_from_notation;
use crate::documents::ServerDocument;
use crate::ports::{Fetch, FetchError, FetchRequest, FetchResponse, PortFuture};

/// The network. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct MemoryNetwork {
    state: Arc<Mutex<NetworkState>>,
}

#[derive(Default)]
struct NetworkState {
    /// By `host:port`.
    peers: HashMap<String, PeerBehavior>,
    /// GETs of `/apis` by `host:port`, and the statuses of the responses.
    requests: Vec<(String, u16)>,
}

/// How a peer behaves.
#[derive(Clone, Debug)]
pub(crate) enum PeerBehavior {
    /// Serves this document.
    Serves(&'static str),
    /// Answers with this status.
    Responds(u16),
    /// Accepts and never answers.
    Hangs,
}

impl MemoryNetwork {
    pub(crate) fn set_behavior(&self, address: &str, behavior: PeerBehavior) {
        self.state.lock().peers.insert(address.to_owned(), behavior);
    }

    /// Takes the requests for `/apis` so far, as `address status`. The status is 0 for missing peers and 1 for hanging ones.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.state.lock().requests);
        requests.into_iter().map(|(address, status)| format!("{address} {status}")).collect()
    }
}

impl Fetch for MemoryNetwork {
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        let address = request.address.to_string();
        let behavior = self.state.lock().peers.get(&address).cloned();
        let (code, response) = match behavior {
            None => (0, Some(Err(FetchError::Unreachable { reason: "no such peer".to_owned() }))),
            Some(PeerBehavior::Hangs) => (1, None),
            Some(PeerBehavior::Responds(code)) => (code, Some(Ok(fetch_response(code, HeaderMap::new(), Vec::new())))),
            Some(PeerBehavior::Serves(notation)) => {
                let served = ServerDocument::from_all_groups(&groups_from_notation(notation));
                let groups: &GroupDiscoveryList = if request.path == "/api" { served.core() } else { served.apis() };
                let finished = aggregated::encode_json(groups, AggregatedVersion::V2);
                let etag = finished.etag.unwrap();
                if request.headers.get(IF_NONE_MATCH) == Some(&etag) {
                    (304, Some(Ok(fetch_response(304, HeaderMap::new(), Vec::new()))))
                } else {
                    let headers = HeaderMap::from_iter([(ETAG, etag)]);
                    (200, Some(Ok(fetch_response(200, headers, finished.identity.to_vec()))))
                }
            }
        };
        if request.path == "/apis" {
            self.state.lock().requests.push((address, code));
        }
        async move {
            match response {
                Some(response) => response,
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

fn fetch_response(code: u16, headers: HeaderMap, body: Vec<u8>) -> FetchResponse {
    FetchResponse { status: StatusCode::from_u16(code).unwrap(), headers, body: body.into() }
}
