//! Calls of scripted webhooks over real TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tasks::Tasks;
use tempfile::TempDir;
use transport::peer::Dialer;
use transport::testing::{ReceivedRequest, ScriptedPeer, TestCertificates};

use crate::{ClientConfig, Dialers, Endpoint, ResolveError, ServiceAddress, ServiceResolver, WebhookClient};

const TIMEOUT: Duration = Duration::from_secs(10);
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

struct Services(Option<ServiceAddress>);

impl ServiceResolver for Services {
    fn resolve(&self, _namespace: &str, name: &str, _port: u16) -> Result<ServiceAddress, ResolveError> {
        self.0.clone().ok_or_else(|| ResolveError::NotFound(name.to_owned()))
    }
}

struct Fixture {
    _dir: TempDir,
    _tasks: Tasks,
    certificates: TestCertificates,
    peer: ScriptedPeer,
    client: WebhookClient,
}

async fn fixture(name: &str, respond: impl Fn(&ReceivedRequest) -> String + Clone + Send + Sync + 'static) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(dir.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start_responder(certificates.server_config_named(name), &tasks, respond).await;
    let address = ServiceAddress { host: "127.0.0.1".to_owned(), port: peer.address.port() };
    let dialers = Dialers { service: Dialer::direct(), url: Dialer::direct() };
    let client = WebhookClient::new(Arc::new(Services(Some(address))), dialers);
    Fixture { _dir: dir, _tasks: tasks, certificates, peer, client }
}

fn service(path: &str, ca_bundle: Vec<u8>) -> ClientConfig {
    let (namespace, name) = ("default".to_owned(), "hook".to_owned());
    ClientConfig {
        endpoint: Endpoint::Service { namespace, name, port: 443, path: path.to_owned() },
        ca_bundle,
        credentials: None,
    }
}

impl Fixture {
    fn service(&self) -> ClientConfig {
        service("/convert", self.certificates.ca_pem())
    }

    fn url(&self) -> ClientConfig {
        let url = format!("https://127.0.0.1:{}/convert/", self.peer.address.port());
        ClientConfig { endpoint: Endpoint::Url(url), ca_bundle: self.certificates.ca_pem(), credentials: None }
    }

    async fn call(&self, config: &ClientConfig, timeout: Duration) -> Result<Bytes, String> {
        self.client.call(config, Bytes::from_static(b"{\"a\":1}"), timeout).await.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn service_is_called_by_its_name_over_one_connection() {
    let fixture = fixture("hook.default.svc", |_| OK.to_owned()).await;
    for _ in 0..3 {
        assert_eq!(fixture.call(&fixture.service(), Duration::from_millis(9_500)).await.unwrap(), "{}");
    }
    let requests = fixture.peer.take_requests().await;
    assert_eq!((requests.len(), fixture.peer.connection_count()), (3, 1));
    let request = &requests[0];
    assert_eq!(request.request_line, "POST /convert?timeout=10s HTTP/1.1");
    assert_eq!(request.header("host"), ["hook.default.svc:443"]);
    assert_eq!(request.header("user-agent"), ["kube-apiserver-admission"]);
    assert_eq!(request.header("content-type"), ["application/json"]);
    assert_eq!(request.body, "{\"a\":1}");
}

#[tokio::test]
async fn url_is_called_by_its_address() {
    let fixture = fixture("other", |_| OK.to_owned()).await;
    assert_eq!(fixture.call(&fixture.url(), TIMEOUT).await.unwrap(), "{}");
    let request = fixture.peer.next_request().await;
    assert_eq!(request.request_line, "POST /convert?timeout=10s HTTP/1.1");
    assert_eq!(request.header("host"), [format!("127.0.0.1:{}", fixture.peer.address.port())]);
}

#[tokio::test]
async fn untrusted_certificates_are_refused() {
    let fixture = fixture("other.default.svc", |_| OK.to_owned()).await;
    assert_eq!(
        fixture.call(&fixture.service(), TIMEOUT).await.unwrap_err(),
        "Post \"https://hook.default.svc:443/convert?timeout=10s\": tls: failed to verify certificate: x509: certificate \
         is valid for kubernetes.default.svc, kubernetes.default.svc.cluster.local, kubernetes.default, kubernetes, \
         localhost, other.default.svc, not hook.default.svc"
    );
    let other_dir = tempfile::tempdir().unwrap();
    let stranger = TestCertificates::new(other_dir.path());
    assert_eq!(
        fixture.call(&service("/", stranger.ca_pem()), TIMEOUT).await.unwrap_err(),
        "Post \"https://hook.default.svc:443/?timeout=10s\": tls: failed to verify certificate: x509: certificate signed \
         by unknown authority"
    );
    let broken = fixture.call(&service("/", b"no PEM".to_vec()), TIMEOUT).await.unwrap_err();
    assert_eq!(broken, "unable to load root certificates: no PEM block of type CERTIFICATE");
}

/// The bundle may hold the webhook's own certificate, which is no CA; any other certificate of its key is refused.
#[tokio::test]
async fn serving_certificate_in_the_bundle_is_trusted_by_name() {
    let fixture = fixture("hook.default.svc", |_| OK.to_owned()).await;
    let leaf = std::fs::read(fixture.certificates.dir().join("hook.default.svc.crt")).unwrap();
    assert_eq!(fixture.call(&service("/", leaf.clone()), TIMEOUT).await.unwrap(), "{}");
    let elsewhere = ClientConfig {
        endpoint: Endpoint::Service { namespace: "b".into(), name: "hook".into(), port: 443, path: String::new() },
        ca_bundle: leaf,
        credentials: None,
    };
    let refused = fixture.call(&elsewhere, TIMEOUT).await.unwrap_err();
    assert!(refused.ends_with("x509: certificate is not valid for hook.b.svc"), "{refused}");
}

#[tokio::test]
async fn webhook_that_hangs_ends_with_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(dir.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start(certificates.server_config_named("x"), &tasks, |mut connection| async move {
        connection.read_request().await;
        connection.wait_for_close().await;
    })
    .await;
    let dialers = Dialers { service: Dialer::direct(), url: Dialer::direct() };
    let client = WebhookClient::new(Arc::new(Services(None)), dialers);
    let url = format!("https://127.0.0.1:{}/x", peer.address.port());
    let config =
        ClientConfig { endpoint: Endpoint::Url(url.clone()), ca_bundle: certificates.ca_pem(), credentials: None };
    let failed = client.call(&config, Bytes::new(), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(failed.to_string(), format!("Post \"{url}?timeout=1s\": context deadline exceeded"));
    // Callers beyond the limit are refused at once: the rest of the server is not held up.
    let mut busy = 0;
    let mut calls = tokio::task::JoinSet::from_iter(calls_as_tasks(129, client, config));
    while let Some(ended) = calls.join_next().await {
        busy += usize::from(ended.unwrap().contains("in flight"));
    }
    assert_eq!(busy, 1);
    let missing =
        WebhookClient::new(Arc::new(Services(None)), Dialers { service: Dialer::direct(), url: Dialer::direct() });
    let missing = missing.call(&service("/x", certificates.ca_pem()), Bytes::new(), TIMEOUT).await.unwrap_err();
    assert_eq!(missing.to_string(), "Post \"https://hook.default.svc:443/x?timeout=10s\": service \"hook\" not found");
}

fn calls_as_tasks(
    count: usize,
    client: WebhookClient,
    config: ClientConfig,
) -> impl Iterator<Item = impl Future<Output = String> + Send + 'static> {
    let client = Arc::new(client);
    (0..count).map(move |_| {
        let (client, config) = (client.clone(), config.clone());
        async move { client.call(&config, Bytes::new(), Duration::from_millis(700)).await.unwrap_err().to_string() }
    })
}

#[tokio::test]
async fn redirects_are_refused_and_retry_after_is_followed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let fixture = fixture("hook.default.svc", move |request: &ReceivedRequest| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        match (&*request.request_line, number) {
            (line, _) if line.contains("/moved") => {
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"
                    .to_owned()
            }
            (_, 1) => "HTTP/1.1 503 x\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".to_owned(),
            (_, 2) => OK.to_owned(),
            _ => "HTTP/1.1 500 x\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nwhy\n".to_owned(),
        }
    })
    .await;
    let moved = service("/moved", fixture.certificates.ca_pem());
    assert_eq!(
        fixture.call(&moved, TIMEOUT).await.unwrap_err(),
        "the server responded with the status code 307 but did not return more information"
    );
    assert_eq!(fixture.call(&fixture.service(), TIMEOUT).await.unwrap(), "{}");
    assert_eq!(
        fixture.call(&fixture.service(), TIMEOUT).await.unwrap_err(),
        "an error on the server (\"why\") has prevented the request from succeeding"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn unreachable_address_is_named() {
    let fixture = fixture("hook.default.svc", |_| OK.to_owned()).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("https://127.0.0.1:{free}/x");
    let config = ClientConfig {
        endpoint: Endpoint::Url(url.clone()),
        ca_bundle: fixture.certificates.ca_pem(),
        credentials: None,
    };
    assert_eq!(
        fixture.call(&config, TIMEOUT).await.unwrap_err(),
        format!("Post \"{url}?timeout=10s\": dial tcp 127.0.0.1:{free}: connect: connection refused")
    );
}
