//! A plain HTTPS client that adds no headers besides `Host` and the token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Prevents a hanging server from hanging the test run.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Credentials of a client.
#[derive(Clone, Debug)]
pub enum ClientCredentials {
    /// A client certificate.
    Certificate {
        /// The certificate, PEM.
        certificate: PathBuf,
        /// The key, PEM.
        key: PathBuf,
    },
    /// A bearer token.
    Token(String),
    /// No credentials.
    Anonymous,
}

/// Client of one server; opens a connection per request.
#[derive(Clone)]
pub struct Client {
    address: String,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

/// A response with its whole body.
#[derive(Debug)]
pub struct FullResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Response headers.
    pub headers: http::HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why a request got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// The connection could not be opened; the server has not seen the request.
    NotSent,
    /// The connection broke after sending; the server may have executed the request.
    ConnectionBroken,
}

impl FullResponse {
    /// Parses the body as JSON; fails if it is not.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The status code, followed by `message` if the body is a Status.
    pub fn summary(&self) -> String {
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        format!("{} {}", self.status.as_u16(), json["message"].as_str().unwrap_or_default())
    }
}

impl Client {
    /// Creates a client for `host:port` that trusts serving certificates of this CA.
    pub fn new(address: &str, ca_file: &Path, credentials: ClientCredentials) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca_file).expect("the authority can be read") {
            roots.add(certificate.expect("the authority is PEM")).expect("the authority is a certificate");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports them")
            .with_root_certificates(roots);
        let (tls, token) = match credentials {
            ClientCredentials::Certificate { certificate, key } => {
                let chain = CertificateDer::pem_file_iter(certificate).expect("the client certificate can be read");
                let chain = chain.collect::<Result<_, _>>().expect("the client certificate is PEM");
                let key = PrivateKeyDer::from_pem_file(key).expect("the key can be read");
                (builder.with_client_auth_cert(chain, key).expect("certificate and key belong together"), None)
            }
            ClientCredentials::Token(token) => (builder.with_no_client_auth(), Some(token)),
            ClientCredentials::Anonymous => (builder.with_no_client_auth(), None),
        };
        Self { address: address.to_owned(), tls: Arc::new(tls), token }
    }

    /// The server's `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// True if `/readyz` returns 200.
    pub async fn is_ready(&self) -> bool {
        let Ok(mut connection) = self.connect().await else { return false };
        let request = self.request_builder(Method::GET, "/readyz").body(Full::default()).expect("it is well-formed");
        connection.send_request(request).await.is_ok_and(|response| response.status() == StatusCode::OK)
    }

    /// Sends GET.
    pub async fn get(&self, path: &str) -> FullResponse {
        self.send(self.request_builder(Method::GET, path), Bytes::new()).await
    }

    /// Sends POST with a JSON body.
    pub async fn create(&self, path: &str, object: &Value) -> FullResponse {
        self.send_body(Method::POST, path, "application/json", object.to_string().into()).await
    }

    /// Sends PUT with a JSON body.
    pub async fn update(&self, path: &str, object: &Value) -> FullResponse {
        self.send_body(Method::PUT, path, "application/json", object.to_string().into()).await
    }

    /// Sends DELETE without a body.
    pub async fn delete(&self, path: &str) -> FullResponse {
        self.send(self.request_builder(Method::DELETE, path), Bytes::new()).await
    }

    /// Sends a body with the given content type.
    pub async fn send_body(&self, method: Method, path: &str, content_type: &str, body: Bytes) -> FullResponse {
        self.send(self.request_builder(method, path).header("content-type", content_type), body).await
    }

    /// Starts a request with `Host` and the token.
    pub fn request_builder(&self, method: Method, path: &str) -> http::request::Builder {
        let builder = Request::builder().method(method).uri(path).header("host", &self.address);
        match &self.token {
            Some(token) => builder.header("authorization", format!("Bearer {token}")),
            None => builder,
        }
    }

    /// Sends a request and reads the whole response; fails if there is none.
    pub async fn send(&self, request: http::request::Builder, body: Bytes) -> FullResponse {
        let sending = async {
            let response = self.send_streaming(request, body).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("the body arrives").to_bytes();
            FullResponse { status: parts.status, headers: parts.headers, body }
        };
        tokio::time::timeout(RESPONSE_TIMEOUT, sending).await.expect("the server responds in time")
    }

    /// Like `send`, but returns a failure if the connection cannot be opened or breaks.
    pub async fn try_send(&self, request: http::request::Builder, body: Bytes) -> Result<FullResponse, SendFailure> {
        let sending = async {
            let mut connection = self.connect().await.map_err(|_| SendFailure::NotSent)?;
            let request = request.body(Full::new(body)).expect("the request is well-formed");
            let response = connection.send_request(request).await.map_err(|_| SendFailure::ConnectionBroken)?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|_| SendFailure::ConnectionBroken)?.to_bytes();
            Ok(FullResponse { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(RESPONSE_TIMEOUT, sending).await.expect("the server responds in time")
    }

    /// Sends a request and returns once the response headers arrive.
    pub async fn send_streaming(&self, request: http::request::Builder, body: Bytes) -> Response<Incoming> {
        let mut connection = self.connect().await.expect("the server accepts connections");
        let request = request.body(Full::new(body)).expect("the request is well-formed");
        connection.send_request(request).await.expect("the server responds")
    }

    /// Like `send_streaming`, but returns `None` if the server is unreachable or the connection breaks.
    pub async fn try_send_streaming(&self, request: http::request::Builder) -> Option<Response<Incoming>> {
        let mut connection = self.connect().await.ok()?;
        let request = request.body(Full::default()).expect("the request is well-formed");
        connection.send_request(request).await.ok()
    }

    /// Opens a TLS connection without sending anything; `alpn` selects a protocol, none by default.
    pub async fn tls_stream(&self, alpn: Option<&[u8]>) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        let name = ServerName::try_from("kubernetes.default.svc").expect("a valid DNS name");
        let mut tls = self.tls.clone();
        if let Some(protocol) = alpn {
            Arc::make_mut(&mut tls).alpn_protocols = vec![protocol.to_vec()];
        }
        TlsConnector::from(tls).connect(name, stream).await
    }

    /// A new connection, with its driver running.
    pub(crate) async fn connect(&self) -> std::io::Result<SendRequest<Full<Bytes>>> {
        let stream = self.tls_stream(None).await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        #[expect(clippy::disallowed_methods, reason = "the task ends with the connection")]
        tokio::spawn(connection);
        Ok(sender)
    }
}
