//! A server to which a request may be forwarded.

use std::sync::Arc;

use api::Address;
use transport::peer::Connector;

/// A server that can serve a request.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Identifies the server in metrics, logs and [`crate::RespondingPeer`]; what it means is the caller's concern.
    pub id: Arc<str>,
    /// Where the server listens. A candidate with another address under the same id is a new one: nothing that was observed of the
    /// old one counts.
    pub address: Address,
    /// Connections with the front-proxy certificate to a server that is verified in a way of its own; `None` for
    /// [`crate::ForwarderConfig::front_proxy_connector`]. With another connector a candidate is a new one, as with another address.
    pub connector: Option<Arc<Connector>>,
}

impl Candidate {
    /// A candidate that is verified like all others.
    pub fn new(id: Arc<str>, address: Address) -> Self {
        Self { id, address, connector: None }
    }

    /// True if what was observed of the other candidate counts for this one.
    pub(crate) fn is_reached_like(&self, other: &Self) -> bool {
        let is_same_connector = match (&self.connector, &other.connector) {
            (None, None) => true,
            (Some(connector), Some(other)) => Arc::ptr_eq(connector, other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        self.address == other.address && is_same_connector
    }
}
