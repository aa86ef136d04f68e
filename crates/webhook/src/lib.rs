//! Calls webhooks: servers that an API object names by a service reference or a URL, with a CA bundle of its own.
//!
//! A call is one POST of JSON over HTTP/1.1 with TLS. Redirects are refused. A request that may have reached the webhook is
//! not sent again, unless the webhook asks for it by `Retry-After`. Error texts are those of a kube-apiserver.
//!
//! Peers are reached through crate `forward`, webhooks are not: a webhook has its own CA, name and address per object
//! instead of one identity for all, no candidates to choose from and no user to name, and its response is read whole.

mod client;
mod credentials;
mod error;
mod resolver;
mod response;
#[cfg(test)]
mod tests;

pub use client::{Dialers, WebhookClient};
pub use credentials::{UserCredentials, WebhookCredentials};
pub use error::{TIMED_OUT, WebhookError, connection_reason, dial_reason};
pub use resolver::{ResolveError, ServiceAddress, ServiceResolver};

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// How an API object names a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// The address.
    pub endpoint: Endpoint,
    /// Trusted certificates in PEM; empty: the system's CAs.
    pub ca_bundle: Vec<u8>,
    /// What the webhook is shown of this server.
    pub credentials: Option<Arc<UserCredentials>>,
}

impl ClientConfig {
    /// The name and port by which credentials are chosen; `None` if the URL has none.
    pub fn target(&self) -> Option<(String, u16)> {
        match &self.endpoint {
            Endpoint::Service { namespace, name, port, .. } => Some((format!("{name}.{namespace}.svc"), *port)),
            Endpoint::Url(url) => {
                let uri: http::Uri = url.parse().ok()?;
                Some((uri.host()?.to_owned(), uri.port_u16().unwrap_or(443)))
            }
        }
    }
}

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A service of this cluster. The webhook's certificate has the name `<name>.<namespace>.svc`.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service's name.
        name: String,
        /// The service's port.
        port: u16,
        /// The path of the request; may be empty.
        path: String,
    },
    /// A URL such as `https://example.com:8443/convert`.
    Url(String),
}

/// Returns the time that a call may take: its own timeout, but not beyond the deadline of the request that needs it.
pub fn timeout_within(own_timeout: Duration, deadline: Instant) -> Duration {
    own_timeout.min(deadline.saturating_duration_since(Instant::now()))
}
