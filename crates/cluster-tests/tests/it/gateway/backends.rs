//! Responses that upstreams relay from kubelets, and HEAD requests.

use cluster_tests::scripted_members::http_response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use transport::testing::{ReceivedRequest, ScriptedConnection};

use super::streams::{POD_PATH, ScriptedGateway, read_head};
use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn kubelet_response_to_upgrade_passes_unchanged_and_is_sent_once() {
    // The scripted upstream returns the pod's name as status.
    let scene = ScriptedGateway::new(|mut visit: ScriptedConnection, received: ReceivedRequest| async move {
        let status = received.request_line.split('/').nth(6).unwrap_or_default().to_owned();
        visit.write(&http_response(&format!("{status} Said"), "text/plain", "the kubelet")).await;
        None
    });
    scene.runtime.block_on(async {
        let admin = scene.gateway.admin();
        for part in ["exec?command=ls", "proxy/socket", "attach", "portforward"] {
            for status in ["401", "404", "500", "503"] {
                let mut stream = admin.tls_stream(None).await.unwrap();
                let path = format!("{PODS}/{status}/{part}");
                let head = "Host: gateway\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
                stream.write_all(format!("GET {path} HTTP/1.1\r\n{head}").as_bytes()).await.unwrap();
                let head = read_head(&mut stream).await;
                assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path}: {head}");
                let mut body = [0; 11];
                stream.read_exact(&mut body).await.unwrap();
                assert_eq!(&body, b"the kubelet");
                assert_eq!(scene.next_pod_request().await.request_line, format!("GET {path} HTTP/1.1"));
                let again: Vec<_> = scene.peer.take_requests().await;
                assert!(!again.iter().any(|received| received.request_line.contains("/pods/")), "{path}: {again:?}");
            }
        }
        let metrics = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
        assert!(metrics.contains("unskew_upstream_ready{"), "{metrics}");
        assert!(!metrics.contains("unskew_peer_transport_failures_total{"), "{metrics}");
    });
}

#[test]
fn head_through_gateway_is_classified_like_get() {
    let scene = ScriptedGateway::new(|mut visit: ScriptedConnection, received: ReceivedRequest| async move {
        let details = if received.request_line.contains("/pods/a ") { r#"{"name":"a","kind":"pods"}"# } else { "{}" };
        let status = format!(r#"{{"kind":"Status","apiVersion":"v1","code":404,"details":{details}}}"#);
        let whole = match received.request_line.split(' ').nth(1).unwrap_or_default() {
            path if path.starts_with("/api/") => http_response("404 Not Found", "application/json", &status),
            _ => http_response("200 OK", "application/json", "{}"),
        };
        let end =
            if received.request_line.starts_with("HEAD ") { whole.find("\r\n\r\n").unwrap() + 4 } else { whole.len() };
        visit.write(&whole[..end]).await;
        Some(visit)
    });
    scene.runtime.block_on(async {
        let admin = scene.gateway.admin();
        let unserved = format!("{PODS}/b");
        for (path, expected) in
            [(POD_PATH, 404), (&*unserved, 503), ("/version", 200), ("/apis", 200), ("/openapi/v3", 200)]
        {
            for method in [Method::GET, Method::HEAD] {
                let said = admin.send(admin.request_builder(method.clone(), path), "".into()).await;
                assert_eq!(said.status.as_u16(), expected, "{method} {path}");
            }
        }
    });
}
