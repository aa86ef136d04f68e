//! Routes to a peer: direct, and through egress proxies.

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;

use super::dial::ByteStream;
use super::*;

/// The CONNECT targets that a proxy received.
type ConnectTargets = Arc<Mutex<Vec<String>>>;

/// Serves one proxy connection that accepts any target.
async fn serve_connect_proxy(mut near: impl ByteStream, asked: ConnectTargets) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap().to_owned();
    asked.lock().push(target.clone());
    let mut far = TcpStream::connect(target).await.unwrap();
    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

async fn get_through(egress: Egress, certificates: &TestCertificates, tasks: &Tasks) -> (String, String) {
    let peer = ScriptedPeer::start_responder(certificates.server_config(), tasks, ok_response).await;
    let tls = Reloading::fixed(certificates.client_files().load().unwrap());
    let connector = Connector::new(tls, Dialer::start(&egress, tasks).unwrap());
    let pool = pool(Arc::new(connector), &peer);
    let answer = body_text(send_get(&pool, "/through").await).await;
    assert_eq!(body_text(send_get(&pool, "/through").await).await, answer, "on the same connection");
    (answer, peer.address.to_string())
}

#[tokio::test]
async fn connection_goes_through_unix_socket_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let path = folder.path().join("proxy.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let asked = ConnectTargets::default();
    let within = asked.clone();
    tasks.spawn_once("proxy", async move {
        let (near, _) = listener.accept().await.unwrap();
        serve_connect_proxy(near, within).await;
    });
    let (answer, address) = get_through(Egress::Unix(path), &certificates, &tasks).await;
    assert_eq!(answer, "GET /through HTTP/1.1 on 0");
    assert_eq!(*asked.lock(), [address]);
}

#[tokio::test]
async fn connection_goes_through_tls_proxy_with_expected_name() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tls = certificates.server_config();
    tls.alpn_protocols.clear();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let asked = ConnectTargets::default();
    let within = asked.clone();
    tasks.spawn_once("proxy", async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            if let Ok(near) = acceptor.accept(near).await {
                serve_connect_proxy(near, within.clone()).await;
            }
        }
    });
    let to = |name: &'static str| {
        let server_name = name.try_into().unwrap();
        let tls = Some(ProxyTls { files: certificates.client_files(), server_name });
        Egress::Tcp { host: "127.0.0.1".to_owned(), port, tls }
    };
    let dialer = Dialer::start(&to("proxy.example"), &tasks).unwrap();
    let refused = dialer.dial("127.0.0.1", 1).await.unwrap_err();
    assert_eq!(refused.reason(), "egress_proxy");
    let (answer, address) = get_through(to("localhost"), &certificates, &tasks).await;
    assert_eq!(answer, "GET /through HTTP/1.1 on 0");
    assert_eq!(*asked.lock(), [address]);
}

#[tokio::test]
async fn dial_error_reports_reason() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let pool_to = |port| ConnectionPool::new(certificates.connector(), "127.0.0.1", port, PoolLimits::default());
    assert_eq!(pool_to(gone).open(TEST_TIMEOUT).await.unwrap_err().reason(), "unreachable");
    // The kernel accepts the connection, no process does.
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = deaf.local_addr().unwrap().port();
    let waited = pool_to(port).open(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(waited.reason(), "connect_timeout");
}

#[tokio::test]
async fn upgraded_connection_carries_bytes_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start(certificates.server_config(), &tasks, |mut visit| async move {
        visit.read_request().await.unwrap();
        visit.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst").await;
        let said = visit.read_exactly(5).await.unwrap();
        visit.write(&said).await;
        visit.wait_for_close().await;
    })
    .await;
    let pool = pool(certificates.connector(), &peer);
    let mut request = get("/exec");
    request.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
    request.headers_mut().insert("upgrade", HeaderValue::from_static("echo"));
    let response = pool.open(TEST_TIMEOUT).await.unwrap().send(request).await.unwrap();
    let (head, end) = PeerUpgrade::from_response(response);
    assert_eq!(head.headers["upgrade"], "echo");
    let mut upgraded = hyper_util::rt::TokioIo::new(end.wait_for_upgrade().await.unwrap());
    upgraded.write_all(b"hello").await.unwrap();
    upgraded.flush().await.unwrap();
    let mut echoed = [0; 10];
    upgraded.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"firsthello");
    assert_eq!(pool.idle_count(), 0);
}
