//! The client: TLS and connections per webhook, limits, and the exchange of one request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use transport::Reloading;
use transport::peer::{
    ClientCertificate, ClientTls, ConnectionPool, Connector, Dialer, PoolLimits, PooledConnection, RequestBody,
    ServerTrust,
};

use crate::error::{TIMED_OUT, connection_reason, dial_reason};
use crate::response::{refusal, retry_after};
use crate::{ClientConfig, Endpoint, ServiceAddress, ServiceResolver, WebhookError};

/// Webhooks whose TLS settings and connections are kept, as in kube-apiserver. Beyond it the least recently used goes.
const WEBHOOKS_MAX: usize = 200;
/// The largest response body. Review responses hold at most a batch of objects, each below 3 MiB.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Concurrent calls of one webhook.
const CALLS_PER_WEBHOOK_MAX: usize = 64;
/// Callers of one webhook that wait for others. With the calls they are fewer than the requests that a server has in
/// flight by default, so that a webhook that hangs leaves room for requests that do not need it.
const WAITING_PER_WEBHOOK_MAX: usize = 64;
/// Idle connections per address, as in kube-apiserver.
const IDLE_CONNECTIONS_MAX: usize = 25;
/// Addresses of one webhook with connections of their own; beyond it the connections to all others are closed.
const ADDRESSES_PER_WEBHOOK_MAX: usize = 16;
/// Limit of dial and TLS handshake, as in kube-apiserver.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a request is sent again because the webhook asks for it, as in client-go.
const RETRIES_MAX: usize = 10;
const AGENT: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");

/// The routes to webhooks.
#[derive(Clone, Debug)]
pub struct Dialers {
    /// The route to services: the egress selection `cluster`.
    pub service: Dialer,
    /// The route to URLs: the egress selection `controlplane`.
    pub url: Dialer,
}

/// Calls webhooks. Connections are reused between calls of the same configuration.
pub struct WebhookClient {
    resolver: Arc<dyn ServiceResolver>,
    dialers: Dialers,
    webhooks: Mutex<HashMap<ClientConfig, KnownWebhook>>,
}

impl std::fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookClient").field("webhooks", &self.webhooks.lock().len()).finish_non_exhaustive()
    }
}

struct KnownWebhook {
    webhook: Arc<Webhook>,
    used_at: Instant,
}

/// What calls of one configuration share.
struct Webhook {
    /// Scheme and authority, such as `https://name.namespace.svc:443`.
    origin: String,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    path: String,
    /// The name that the certificate must have.
    server_name: String,
    connector: Arc<Connector>,
    calls: Semaphore,
    /// Room for callers and those who wait.
    queue: Semaphore,
    pools: Mutex<HashMap<ServiceAddress, Arc<ConnectionPool>>>,
}

impl WebhookClient {
    /// Creates a client without connections.
    pub fn new(resolver: Arc<dyn ServiceResolver>, dialers: Dialers) -> Self {
        Self { resolver, dialers, webhooks: Mutex::default() }
    }

    /// Posts a JSON body to a webhook and returns the body of a successful response. `timeout` bounds the whole call; the
    /// webhook learns it as `?timeout=`.
    pub async fn call(&self, config: &ClientConfig, body: Bytes, timeout: Duration) -> Result<Bytes, WebhookError> {
        let webhook = self.webhook(config)?;
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let path_and_query = format!("{}?timeout={seconds}s", webhook.path);
        let url = format!("{}{path_and_query}", webhook.origin);
        let Ok(_place) = webhook.queue.try_acquire() else { return Err(WebhookError::Busy { url }) };
        let exchange = async {
            let _permit = webhook.calls.acquire().await;
            self.exchange(config, &webhook, &path_and_query, &url, body).await
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(done) => done,
            Err(_) => Err(WebhookError::NoResponse { url, reason: TIMED_OUT.to_owned() }),
        }
    }

    /// Sends the request until the response asks for no other by `Retry-After`, each time to where the service is then.
    async fn exchange(
        &self,
        config: &ClientConfig,
        webhook: &Webhook,
        path_and_query: &str,
        url: &str,
        body: Bytes,
    ) -> Result<Bytes, WebhookError> {
        let mut retries = 0;
        loop {
            let pool = self.pool(config, webhook, url)?;
            let (code, headers, received) = webhook.send(&pool, path_and_query, url, body.clone()).await?;
            if let Some(seconds) = retry_after(code, &headers)
                && retries < RETRIES_MAX
            {
                retries += 1;
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                continue;
            }
            return match refusal(code, &headers, &received) {
                None => Ok(received),
                Some(error) => Err(error),
            };
        }
    }

    fn webhook(&self, config: &ClientConfig) -> Result<Arc<Webhook>, WebhookError> {
        let now = Instant::now();
        let mut webhooks = self.webhooks.lock();
        if let Some(known) = webhooks.get_mut(config) {
            known.used_at = now;
            return Ok(known.webhook.clone());
        }
        let dialer = match &config.endpoint {
            Endpoint::Service { .. } => &self.dialers.service,
            Endpoint::Url(_) => &self.dialers.url,
        };
        let webhook = Arc::new(Webhook::new(config, dialer).map_err(WebhookError::InvalidConfig)?);
        if webhooks.len() >= WEBHOOKS_MAX
            && let Some(oldest) = webhooks.iter().min_by_key(|(_, known)| known.used_at).map(|(key, _)| key.clone())
        {
            webhooks.remove(&oldest);
        }
        // Rare enough to look at all: connections to webhooks that nothing calls any more.
        webhooks.values().for_each(|known| known.webhook.pools.lock().values().for_each(|pool| pool.close_expired()));
        webhooks.insert(config.clone(), KnownWebhook { webhook: webhook.clone(), used_at: now });
        Ok(webhook)
    }

    /// The connections to where the webhook is now.
    fn pool(&self, config: &ClientConfig, webhook: &Webhook, url: &str) -> Result<Arc<ConnectionPool>, WebhookError> {
        let address = match &config.endpoint {
            Endpoint::Service { namespace, name, port, .. } => self
                .resolver
                .resolve(namespace, name, *port)
                .map_err(|error| WebhookError::NoResponse { url: url.to_owned(), reason: error.to_string() })?,
            Endpoint::Url(_) => {
                let uri: Uri = webhook.origin.parse().map_err(|_| WebhookError::InvalidConfig(url.to_owned()))?;
                ServiceAddress { host: webhook.server_name.clone(), port: uri.port_u16().unwrap_or(443) }
            }
        };
        let mut pools = webhook.pools.lock();
        if !pools.contains_key(&address) && pools.len() >= ADDRESSES_PER_WEBHOOK_MAX {
            pools.clear();
        }
        let limits = PoolLimits { idle_max: IDLE_CONNECTIONS_MAX, ..PoolLimits::default() };
        let open = |address: &ServiceAddress| {
            ConnectionPool::new(webhook.connector.clone(), &address.host, address.port, limits)
        };
        let pool = pools.entry(address).or_insert_with_key(open).clone();
        pool.close_expired();
        Ok(pool)
    }
}

impl Webhook {
    fn new(config: &ClientConfig, dialer: &Dialer) -> Result<Self, String> {
        let (origin, server_name, path) = match &config.endpoint {
            Endpoint::Service { namespace, name, port, path } => {
                let server_name = format!("{name}.{namespace}.svc");
                (format!("https://{server_name}:{port}"), server_name, path.as_str())
            }
            Endpoint::Url(url) => {
                let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
                let authority = uri.authority().ok_or("webhook configuration must have either service or URL")?;
                if uri.scheme_str() != Some("https") {
                    return Err(format!("Unparsable URL: {url:?} is not https"));
                }
                let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
                (format!("https://{authority}"), host, url_path(url))
            }
        };
        let credentials = config.credentials.as_deref();
        let certificate = credentials.and_then(|shown| shown.client_certificate.as_ref());
        let certificate = certificate.map(|(chain, key)| ClientCertificate::from_pem(chain, key)).transpose()?;
        // As in kube-apiserver, a bundle of white space is none.
        let trust = match config.ca_bundle.trim_ascii() {
            [] => ServerTrust::System,
            bundle => ServerTrust::Bundle(bundle),
        };
        let tls = ClientTls::for_object(trust, certificate.as_ref());
        let tls = tls.map_err(|error| format!("unable to load root certificates: {error}"))?;
        let name = ServerName::try_from(server_name.clone()).map_err(|error| format!("{server_name:?}: {error}"))?;
        let connector = Connector::new(Reloading::fixed(tls), dialer.clone()).with_server_name(name);
        let authorization = credentials.and_then(|shown| shown.authorization.as_ref()).map(|value| {
            let value = HeaderValue::try_from(value).map(|mut value| {
                value.set_sensitive(true);
                value
            });
            value.map_err(|_| "the credentials of the kubeconfig are no value of a header".to_owned())
        });
        let host = origin.trim_start_matches("https://");
        Ok(Self {
            host: HeaderValue::try_from(host).map_err(|error| format!("{host:?}: {error}"))?,
            path: clean_path(path),
            connector: Arc::new(connector),
            calls: Semaphore::new(CALLS_PER_WEBHOOK_MAX),
            queue: Semaphore::new(CALLS_PER_WEBHOOK_MAX + WAITING_PER_WEBHOOK_MAX),
            pools: Mutex::default(),
            authorization: authorization.transpose()?,
            origin,
            server_name,
        })
    }

    /// Sends a request on an idle connection, or on a new one if none of it was sent, and reads the response.
    async fn send(
        &self,
        pool: &Arc<ConnectionPool>,
        path_and_query: &str,
        url: &str,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Bytes), WebhookError> {
        let no_response = |reason: String| WebhookError::NoResponse { url: url.to_owned(), reason };
        let uri: Uri = path_and_query
            .parse()
            .map_err(|error| WebhookError::InvalidConfig(format!("{path_and_query:?}: {error}")))?;
        let request = || {
            let mut request = Request::new(json_body(body.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = uri.clone();
            let headers = request.headers_mut();
            headers.insert(HOST, self.host.clone());
            if let Some(authorization) = &self.authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            headers.insert(USER_AGENT, AGENT);
            headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request
        };
        let mut response = None;
        if let Some(idle) = pool.take_idle() {
            response = match idle.send(request()).await {
                Ok(response) => Some(response),
                // The webhook closed the idle connection before it got the request.
                Err(failed) if failed.unsent.is_some() => None,
                Err(failed) => return Err(no_response(connection_reason(&failed.error))),
            };
        }
        let response = match response {
            Some(response) => response,
            None => {
                let connection = self.open(pool).await.map_err(no_response)?;
                connection.send(request()).await.map_err(|failed| no_response(connection_reason(&failed.error)))?
            }
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                WebhookError::TooLong { url: url.to_owned(), bytes_max: RESPONSE_BYTES_MAX }
            } else {
                no_response(format!("unexpected EOF: {error}"))
            }
        })?;
        Ok((head.status, head.headers, body.to_bytes()))
    }

    async fn open(&self, pool: &Arc<ConnectionPool>) -> Result<PooledConnection, String> {
        let (host, port) = pool.address();
        pool.open(CONNECT_TIMEOUT).await.map_err(|error| dial_reason(&error, host, port, &self.server_name))
    }
}

fn json_body(body: Bytes) -> RequestBody {
    RequestBody::new(Full::new(body).map_err(|never| match never {}))
}

/// The path of a URL as written.
fn url_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    path.split(['?', '#']).next().unwrap_or_default()
}

/// Go's `path.Join("/", path)`.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod path_tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_client_go_does() {
        for (path, expected) in [("", "/"), ("/", "/"), ("/a/b/", "/a/b"), ("a//b/./c/../d", "/a/b/d"), ("/..", "/")] {
            assert_eq!(clean_path(path), expected, "{path:?}");
        }
        assert_eq!(url_path("https://h:1/a/b?x#y"), "/a/b");
        assert_eq!(url_path("https://h"), "");
    }
}
