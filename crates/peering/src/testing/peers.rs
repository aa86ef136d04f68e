//! Peers over a network in memory, for tests: what they answer, and how often they were asked.

use std::collections::HashMap;
use std::sync::Arc;

use api::media::AggregatedVersion;
use discovery::{Groups, aggregated};
use futures_util::FutureExt as _;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::document;
use crate::documents::ServerDocument;
use crate::ports::{Fetch, FetchAnswer, FetchFault, FetchRequest, Pending};

/// The network. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Network {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By `host:port`.
    peers: HashMap<String, Conduct>,
    /// `GET`s of `/apis` by `host:port`, and what was answered.
    asked: Vec<(String, u16)>,
}

/// How a peer behaves.
#[derive(Clone, Debug)]
pub(crate) enum Conduct {
    /// Serves this document.
    Serves(&'static str),
    /// Answers with this status.
    Says(u16),
    /// Accepts and never answers.
    Hangs,
}

impl Network {
    pub(crate) fn set(&self, address: &str, conduct: Conduct) {
        self.state.lock().peers.insert(address.to_owned(), conduct);
    }

    /// The answers given to requests for `/apis` so far, as `address status`; forgotten then. Peers that are not there are 0,
    /// those that hang 1.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.state.lock().asked);
        asked.into_iter().map(|(address, status)| format!("{address} {status}")).collect()
    }
}

impl Fetch for Network {
    fn fetch(&self, request: FetchRequest) -> Pending<'_, FetchAnswer, FetchFault> {
        let address = request.address.to_string();
        let conduct = self.state.lock().peers.get(&address).cloned();
        let (code, answer) = match conduct {
            None => (0, Some(Err(FetchFault::Unreachable { reason: "nobody there".to_owned() }))),
            Some(Conduct::Hangs) => (1, None),
            Some(Conduct::Says(code)) => (code, Some(Ok(answer(code, HeaderMap::new(), Vec::new())))),
            Some(Conduct::Serves(notation)) => {
                let served = ServerDocument::from_whole(&document(notation));
                let groups: &Groups = if request.path == "/api" { served.core() } else { served.apis() };
                let finished = aggregated::json(groups, AggregatedVersion::V2);
                let etag = finished.etag.unwrap();
                if request.headers.get(IF_NONE_MATCH) == Some(&etag) {
                    (304, Some(Ok(answer(304, HeaderMap::new(), Vec::new()))))
                } else {
                    let headers = HeaderMap::from_iter([(ETAG, etag)]);
                    (200, Some(Ok(answer(200, headers, finished.identity.to_vec()))))
                }
            }
        };
        if request.path == "/apis" {
            self.state.lock().asked.push((address, code));
        }
        async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

fn answer(code: u16, headers: HeaderMap, body: Vec<u8>) -> FetchAnswer {
    FetchAnswer { status: StatusCode::from_u16(code).unwrap(), headers, body: body.into() }
}
