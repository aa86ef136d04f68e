//! Members that fail forwarded requests.

use super::*;
use discovery::start_peer_with_discovery_fault;

/// Starts a peer with a valid discovery document that responds to every other request with a fault.
async fn start_peer_with_request_fault(stage: &ScriptedMembers, fault: PeerFault, rogue: SocketAddr) -> ScriptedPeer {
    let own = ScriptedDiscovery::default().with_resource(&fault.group(), "v1", "things", &[]);
    // Members whose faults are passed on to the client do not list resources of other members.
    let listing = match fault {
        PeerFault::InvalidJson | PeerFault::InternalError | PeerFault::HugeBody | PeerFault::TruncatedBody => own,
        PeerFault::Silent
        | PeerFault::NoHttp
        | PeerFault::Unauthorized
        | PeerFault::PlainNotFound
        | PeerFault::Redirecting => own.with_resource("storage.k8s.io", "v1", "volumeattributesclasses", &[]),
    };
    let script = move |mut visit: ScriptedConnection| {
        let listing = listing.clone();
        async move {
            while let Some(received) = visit.read_request().await {
                match listing.respond(&received) {
                    Some(document) => visit.write(&document).await,
                    None => fault.respond(&mut visit, rogue).await,
                }
                if !fault.leaves_connection_usable() {
                    return;
                }
            }
        }
    };
    stage.start_peer(script).await
}

#[test]
fn failing_member_is_skipped_and_never_yields_404() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let old = plane.admin("old");
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let rogue = start_forbidden_peer(&stage).await;
        let mut peers = Vec::new();
        for fault in PeerFault::ALL {
            let peer = start_peer_with_request_fault(&stage, fault, rogue.address).await;
            stage.add_member(&old, &fault.identity(), peer.address).await;
            peers.push(peer);
        }
        eventually("all members are discovered", async || expect_live_members(&old, 1 + PeerFault::ALL.len()).await)
            .await;
        for (fault, reason) in [
            (PeerFault::NoHttp, "garbage"),
            (PeerFault::Unauthorized, "unauthorized"),
            (PeerFault::PlainNotFound, "not_served"),
            (PeerFault::Redirecting, "redirect"),
        ] {
            let refused = old.get(&fault.path()).await;
            assert_eq!(refused.summary(), "503 Error while proxying request to destination apiserver", "{fault:?}");
            assert_eq!(refused.headers["retry-after"], "1", "{fault:?}");
            assert!(!refused.headers.contains_key("location"), "{fault:?}");
            assert!(
                metric_value(&old, &transport_failures_series(&fault.identity(), reason)).await > 0,
                "{fault:?}: {reason}"
            );
            let labels = format!("group=\"{}\",resource=\"things\",type=\"proxy_transport\"", fault.group());
            let series = format!("apiserver_peer_proxy_errors_total{{{labels},version=\"v1\"}}");
            assert!(metric_value(&old, &series).await > 0, "{series}");
        }
        let silent = old.get(&format!("{}?timeout=1s", PeerFault::Silent.path())).await;
        assert_eq!(silent.summary(), "503 Error while proxying request to destination apiserver");
        assert!(metric_value(&old, &transport_failures_series(&PeerFault::Silent.identity(), "timeout")).await > 0);
        // An error status of the peer is passed on to the client.
        assert_eq!(old.get(&PeerFault::InternalError.path()).await.status, 500);
        // Requests for a resource that another member serves as well succeed.
        let is_passed_over = transport_failures_series(&PeerFault::Silent.identity(), "no_answer");
        let mut asked = 0;
        while asked < 30 || metric_value(&old, &is_passed_over).await == 0 {
            assert_eq!(old.get(CLASSES_PATH).await.status, 200, "request {asked}");
            asked += 1;
            assert!(asked < 500, "the silent peer was never tried");
        }
        assert_eq!(rogue.connection_count(), 0, "a redirect is not followed");
    });
}

#[test]
fn huge_body_is_streamed_and_truncated_body_stays_truncated() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    let old = plane.admin("old");
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let rogue = start_forbidden_peer(&stage).await;
        let mut peers = Vec::new();
        for fault in [PeerFault::HugeBody, PeerFault::TruncatedBody] {
            let peer = start_peer_with_request_fault(&stage, fault, rogue.address).await;
            stage.add_member(&old, &fault.identity(), peer.address).await;
            peers.push(peer);
        }
        eventually("the members are discovered", async || expect_live_members(&old, 2).await).await;
        let mut torn = old.tls_stream(None).await.unwrap();
        let line = format!("GET {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", PeerFault::TruncatedBody.path());
        torn.write_all(line.as_bytes()).await.unwrap();
        let mut answered = Vec::new();
        // A clean close and a broken connection are both fine.
        let _ = torn.read_to_end(&mut answered).await;
        let answered = String::from_utf8(answered).unwrap();
        // The connection may break before or after the partial response.
        let is_torn = answered.is_empty() || answered.contains("content-length: 1000\r\n");
        assert!(is_torn && answered.len() < 1000, "a truncated response must not look complete: {answered}");
        let before = plane.server("old").resident_bytes();
        let mut body = old
            .send_streaming(old.request_builder(http::Method::GET, &PeerFault::HugeBody.path()), bytes::Bytes::new())
            .await
            .into_body();
        let (mut length, mut most) = (0, 0);
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().map_or(0, |data| data.len());
            most = most.max(plane.server("old").resident_bytes());
        }
        assert_eq!(length, HUGE_BODY_MEGABYTES << 20);
        assert!(most - before.min(most) < 64 << 20, "{} bytes are buffered", most - before);
    });
}

#[test]
fn write_is_not_retried_when_its_peer_dies() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    let old = plane.admin("old");
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let listing = ScriptedDiscovery::default().with_resource("future.k8s.io", "v1", "things", &[]);
        let script = move |mut visit: ScriptedConnection| {
            let listing = listing.clone();
            async move {
                while let Some(received) = visit.read_request().await {
                    // The peer reads a write and closes the connection.
                    let Some(document) = listing.respond(&received) else { return };
                    visit.write(&document).await;
                }
            }
        };
        let [one, other] = [stage.start_peer(script.clone()).await, stage.start_peer(script).await];
        stage.add_member(&old, "apiserver-one", one.address).await;
        stage.add_member(&old, "apiserver-other", other.address).await;
        eventually("both members are discovered", async || expect_live_members(&old, 2).await).await;
        let refused = old.create("/apis/future.k8s.io/v1/things", &json!({"metadata": {"name": "a"}})).await;
        assert_eq!(
            refused.summary(),
            "503 Error while proxying request to destination apiserver: the request was sent, and it is not known whether it was \
             executed"
        );
        assert!(!refused.headers.contains_key("retry-after"), "clients retry any verb with this header");
        let received = [one.take_requests().await, other.take_requests().await].concat();
        let writes = received.iter().filter(|received| received.request_line.starts_with("POST ")).count();
        assert_eq!(writes, 1, "{received:?}");
    });
}

#[test]
fn forwarded_write_of_disconnected_client_is_audited_with_its_outcome() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    let rules = "[{level: Metadata, users: [kubernetes-admin]}]";
    std::fs::write(&policy, format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: {rules}}}")).unwrap();
    let flags = [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    plane.start("old", &[OLD_FLAGS[0], &flags[0], &flags[1]]);
    let old = plane.admin("old");
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let listing = ScriptedDiscovery::default().with_resource("future.k8s.io", "v1", "things", &[]);
        let (heard_write, has_heard) = tokio::sync::watch::channel(false);
        let (let_go, may_answer) = tokio::sync::watch::channel(false);
        let script = move |mut visit: ScriptedConnection| {
            let (listing, heard_write, mut may_answer) = (listing.clone(), heard_write.clone(), may_answer.clone());
            async move {
                while let Some(received) = visit.read_request().await {
                    if let Some(document) = listing.respond(&received) {
                        visit.write(&document).await;
                        continue;
                    }
                    heard_write.send_replace(true);
                    may_answer.wait_for(|may| *may).await.unwrap();
                    visit.write(&http_response("201 Created", "application/json", "{}")).await;
                }
            }
        };
        let peer = stage.start_peer(script).await;
        stage.add_member(&old, "apiserver-one", peer.address).await;
        eventually("the member is discovered", async || expect_live_members(&old, 1).await).await;
        let mut client = old.tls_stream(None).await.unwrap();
        let line = "POST /apis/future.k8s.io/v1/things HTTP/1.1\r\nhost: x\r\naudit-id: gone\r\n";
        client
            .write_all(format!("{line}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes())
            .await
            .unwrap();
        has_heard.clone().wait_for(|received| *received).await.unwrap();
        let open_files = plane.server("old").open_files();
        drop(client);
        eventually("the client's connection is closed", async || match plane.server("old").open_files() {
            fewer if fewer < open_files => Ok(()),
            same => Err(same.to_string()),
        })
        .await;
        let_go.send_replace(true);
        let ends = || -> Vec<String> {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let own = events.filter(|event| event["auditID"] == "gone" && event["stage"] != "RequestReceived");
            own.map(|event| format!("{} {}", event["stage"], event["responseStatus"]["code"])).collect()
        };
        eventually("the write is audited", async || match &*ends() {
            [] => Err("no event".to_owned()),
            _ => Ok(()),
        })
        .await;
        assert_eq!(ends(), ["\"ResponseComplete\" 201"]);
    });
}

#[test]
fn peer_with_wrong_certificate_yields_503_and_is_counted() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    let old = plane.admin("old");
    let strangers = tempfile::tempdir().unwrap();
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let healed = Arc::new(AtomicBool::new(true));
        let peer =
            start_peer_with_discovery_fault(&stage, PeerFault::PlainNotFound, ([127, 0, 0, 1], 9).into(), healed).await;
        let foreign = TestCertificates::new(strangers.path());
        let stranger = stage
            .start_untrusted_peer(&foreign, async |mut visit: ScriptedConnection| visit.wait_for_close().await)
            .await;
        stage.add_member(&old, "apiserver-b", peer.address).await;
        let path = PeerFault::PlainNotFound.path();
        eventually("the peer is used", async || expect_status(&old, &path, 200).await).await;
        // The endpoint record now points to a stranger.
        stage.write_endpoint_record("apiserver-b", stranger.address).await;
        eventually("the stranger's certificate is rejected", async || expect_status(&old, &path, 503).await).await;
        assert!(metric_value(&old, &transport_failures_series("apiserver-b", "tls")).await > 0);
        assert!(stranger.take_requests().await.is_empty());
        stage.write_endpoint_record("apiserver-b", peer.address).await;
        eventually("the peer is used again", async || expect_status(&old, &path, 200).await).await;
    });
}
