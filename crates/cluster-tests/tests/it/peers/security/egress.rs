//! Peers are reached only through the egress selector's proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use super::*;

/// An HTTP CONNECT proxy on a Unix socket.
#[derive(Default)]
struct ConnectProxy {
    connections: AtomicUsize,
    refuses: AtomicBool,
}

impl ConnectProxy {
    async fn run(self: Arc<Self>, listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            self.connections.fetch_add(1, Ordering::SeqCst);
            #[expect(clippy::disallowed_methods, reason = "the task ends with the test's runtime")]
            tokio::spawn(self.clone().serve(stream));
        }
    }

    async fn serve(self: Arc<Self>, mut client: UnixStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = client.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
        if self.refuses.load(Ordering::SeqCst) {
            let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
            return;
        }
        let mut peer = TcpStream::connect(target).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut peer).await;
    }
}

#[test]
fn peers_are_reached_through_the_egress_proxy_only() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &NEW_FLAGS);
    let (socket, file) = (plane.folder().join("egress.sock"), plane.folder().join("egress.yaml"));
    let connection = format!("proxyProtocol: HTTPConnect, transport: {{uds: {{udsName: {}}}}}", socket.display());
    let configuration = format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n\
         - {{name: controlplane, connection: {{{connection}}}}}\n"
    );
    std::fs::write(&file, configuration).unwrap();
    plane.start("old", &["--emulated-version=1.33", &format!("--egress-selector-config-file={}", file.display())]);
    let old = plane.admin("old");
    block_on(async {
        let proxy = Arc::new(ConnectProxy::default());
        #[expect(clippy::disallowed_methods, reason = "the task ends with the test's runtime")]
        let running = tokio::spawn(proxy.clone().run(UnixListener::bind(&socket).unwrap()));
        eventually("the servers discover each other", async || expect_ok(&old, CLASSES_PATH).await).await;
        assert!(proxy.connections.load(Ordering::SeqCst) > 0, "the proxy is used");
        // A watch needs a connection of its own; if the proxy refuses it, there is no direct connection.
        proxy.refuses.store(true, Ordering::SeqCst);
        let before = proxy.connections.load(Ordering::SeqCst);
        let [one, other] = [
            old.request_builder(Method::GET, CLASSES_PATH),
            old.request_builder(Method::GET, &format!("{CLASSES_PATH}?watch=true")),
        ];
        let watch = old.send_streaming(other, bytes::Bytes::new()).await;
        let refused =
            if watch.status() == 503 { 503 } else { old.send(one, bytes::Bytes::new()).await.status.as_u16() };
        assert_eq!(refused, 503, "peers are not reached without the proxy");
        assert!(proxy.connections.load(Ordering::SeqCst) > before);
        let member = member_identity(&old, plane.server("new").address()).await;
        let series = format!("unskew_peer_transport_failures_total{{peer=\"{member}\",reason=\"egress_proxy\"}}");
        assert!(metric_value(&old, &series).await > 0, "{}", plane.server("old").log());
        running.abort();
    });
}

/// Identity of the member with this address.
async fn member_identity(client: &Client, address: &str) -> String {
    let report = client.get("/debug/peers").await.json();
    let members = report["members"].as_array().unwrap().clone();
    let member = members.into_iter().find(|member| member["address"] == address);
    member.unwrap_or_else(|| panic!("{report:#}"))["server"].as_str().unwrap().to_owned()
}
