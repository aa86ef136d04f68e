//! Load clients that send one request after another, each on its own connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use cluster_tests::RunningServer;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tasks::Tasks;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::timing::median;

/// TLS configuration with the administrator's certificate.
#[derive(Clone)]
pub(crate) struct AdminTls(Arc<ClientConfig>);

/// Target and duration of a load.
#[derive(Clone)]
pub(crate) struct LoadGenerator {
    pub(crate) tls: AdminTls,
    pub(crate) address: String,
    pub(crate) duration: Duration,
}

/// Compared loads take turns, each turn a quarter of the usual duration, so that a busy moment of the machine affects
/// all of them.
pub(crate) const TURNS: usize = 12;
const TURNS_PER_DURATION: u32 = 4;

/// Sends the same GET to several targets in turns and returns the rate of each.
pub(crate) async fn compare_rates<const N: usize>(
    loads: [&LoadGenerator; N],
    connections: usize,
    path: &'static str,
) -> anyhow::Result<[f64; N]> {
    let mut rates = [0.0; N];
    for _ in 0..TURNS {
        for (rate, load) in rates.iter_mut().zip(loads) {
            *rate += load.with_turn_duration().run(connections, "GET", path, None).await?.rate / TURNS as f64;
        }
    }
    Ok(rates)
}

/// Sends GETs of several paths in turns, and returns the rates.
pub(crate) async fn compare_rates_of_paths<const N: usize>(
    load: &LoadGenerator,
    connections: usize,
    paths: [&'static str; N],
) -> anyhow::Result<[f64; N]> {
    let mut rates = [0.0; N];
    for _ in 0..TURNS {
        for (rate, path) in rates.iter_mut().zip(paths) {
            *rate += load.with_turn_duration().run(connections, "GET", path, None).await?.rate / TURNS as f64;
        }
    }
    Ok(rates)
}

/// Creates objects at several paths in turns, and returns the rates.
pub(crate) async fn compare_create_rates<const N: usize>(
    load: &LoadGenerator,
    connections: usize,
    paths: [&'static str; N],
    body: fn() -> Vec<u8>,
) -> anyhow::Result<[f64; N]> {
    let mut rates = [0.0; N];
    for _ in 0..TURNS {
        for (rate, path) in rates.iter_mut().zip(paths) {
            *rate += load.with_turn_duration().run(connections, "POST", path, Some(body)).await?.rate / TURNS as f64;
        }
    }
    Ok(rates)
}

/// Sends the same GET to several targets in turns, on one connection each, and returns the median latencies.
pub(crate) async fn compare_median_latencies<const N: usize>(
    loads: [&LoadGenerator; N],
    path: &str,
) -> anyhow::Result<[Duration; N]> {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..TURNS {
        for (times, load) in times.iter_mut().zip(loads) {
            times.extend(load.with_turn_duration().measure_latencies(path, &[]).await?);
        }
    }
    Ok(times.each_mut().map(|times| median(times)))
}

/// Result of a load.
pub(crate) struct LoadResult {
    /// Successful requests per second.
    pub(crate) rate: f64,
}

impl AdminTls {
    pub(crate) fn for_admin(server: &RunningServer) -> anyhow::Result<Self> {
        let pki = server.pki();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(pki.join("ca.crt"))? {
            roots.add(certificate?)?;
        }
        let chain = CertificateDer::pem_file_iter(pki.join("admin.crt"))?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(pki.join("admin.key"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Self(Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key)?)))
    }
}

impl LoadGenerator {
    /// A copy with the duration of one turn.
    pub(crate) fn with_turn_duration(&self) -> Self {
        Self { duration: self.duration / TURNS_PER_DURATION, ..self.clone() }
    }

    /// Sends GETs on one connection for the duration and returns the latency of each.
    pub(crate) async fn measure_latencies(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Vec<Duration>> {
        let mut sender = self.connect().await?;
        let mut times = Vec::new();
        let ends = Instant::now() + self.duration;
        while Instant::now() < ends {
            let begun = Instant::now();
            sender.ready().await?;
            let response = sender.send_request(get_request(path, headers)?).await?;
            let status = response.status();
            anyhow::ensure!(status.is_success() || status == StatusCode::NOT_MODIFIED, "{path}: {status}");
            response.into_body().collect().await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    /// Sends POSTs on one connection for the duration and returns the latency of each.
    pub(crate) async fn measure_create_latencies(
        &self,
        path: &str,
        body: fn() -> Vec<u8>,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut sender = self.connect().await?;
        let mut times = Vec::new();
        let ends = Instant::now() + self.duration;
        while Instant::now() < ends {
            let body = body();
            let begun = Instant::now();
            send_once(&mut sender, "POST", path, body).await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    /// Sends the same request on several connections for the duration; `body` creates a body per request.
    pub(crate) async fn run(
        &self,
        connections: usize,
        method: &'static str,
        path: &'static str,
        body: Option<fn() -> Vec<u8>>,
    ) -> anyhow::Result<LoadResult> {
        let mut senders = Vec::new();
        for _ in 0..connections {
            senders.push(self.connect().await?);
        }
        let started = Instant::now();
        let ends = started + self.duration;
        let asking = senders.into_iter().map(|sender| send_until(sender, ends, method, path, body));
        let counts = futures_util::future::try_join_all(asking).await?;
        Ok(LoadResult { rate: counts.iter().sum::<u64>() as f64 / started.elapsed().as_secs_f64() })
    }

    /// Sends `each` requests on each of several connections.
    pub(crate) async fn repeat(
        &self,
        connections: usize,
        each: usize,
        method: &'static str,
        path: &str,
        body: fn() -> Vec<u8>,
    ) -> anyhow::Result<()> {
        let sending = (0..connections).map(async |_| {
            let mut sender = self.connect().await?;
            for _ in 0..each {
                send_once(&mut sender, method, path, body()).await?;
            }
            anyhow::Ok(())
        });
        futures_util::future::try_join_all(sending).await?;
        Ok(())
    }

    /// Returns the resourceVersion of a list.
    pub(crate) async fn newest_revision(&self, path: &str) -> anyhow::Result<String> {
        let list = send_once(&mut self.connect().await?, "GET", &format!("{path}?limit=1"), Vec::new()).await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("a list has a revision")?.to_owned())
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("kubernetes.default.svc")?;
        let stream = TlsConnector::from(self.tls.0.clone()).connect(name, stream).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        Tasks::new().spawn_once("load", async move {
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// Builds a GET request with these headers.
pub(crate) fn get_request(path: &str, headers: &[(&str, &str)]) -> anyhow::Result<http::Request<Full<Bytes>>> {
    let mut request = http::Request::get(path).header("host", "kubernetes.default.svc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Ok(request.body(Full::default())?)
}

async fn send_until(
    mut sender: SendRequest<Full<Bytes>>,
    deadline: Instant,
    method: &'static str,
    path: &'static str,
    body: Option<fn() -> Vec<u8>>,
) -> anyhow::Result<u64> {
    let mut responses = 0;
    while Instant::now() < deadline {
        send_once(&mut sender, method, path, body.map(|make| make()).unwrap_or_default()).await?;
        responses += 1;
    }
    Ok(responses)
}

/// Sends one request, which must succeed, and returns the response body.
async fn send_once(
    sender: &mut SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<Bytes> {
    send_typed(sender, method, path, "application/json", body).await
}

/// Sends one request with a body of this media type, which must succeed, and returns the response body.
pub(crate) async fn send_typed(
    sender: &mut SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    media_type: &str,
    body: Vec<u8>,
) -> anyhow::Result<Bytes> {
    sender.ready().await?;
    let request = http::Request::builder().method(method).uri(path).header("host", "kubernetes.default.svc");
    let request = request.header("content-type", media_type).body(Full::from(body))?;
    let response = sender.send_request(request).await.context("no response from the server")?;
    anyhow::ensure!(response.status().is_success(), "{method} {path}: {}", response.status());
    Ok(response.into_body().collect().await?.to_bytes())
}
