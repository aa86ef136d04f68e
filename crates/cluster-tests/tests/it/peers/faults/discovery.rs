//! Members whose discovery document cannot be fetched, temporarily or permanently.

use super::*;

/// Starts a peer that responds to discovery requests with a fault until `healed` is true.
pub(super) async fn start_peer_with_discovery_fault(
    stage: &ScriptedMembers,
    fault: PeerFault,
    rogue: SocketAddr,
    healed: Arc<AtomicBool>,
) -> ScriptedPeer {
    let listing = ScriptedDiscovery::default().with_resource(&fault.group(), "v1", "things", &[]);
    let script = move |mut visit: ScriptedConnection| {
        let (listing, healed) = (listing.clone(), healed.clone());
        async move {
            while let Some(received) = visit.read_request().await {
                if healed.load(Ordering::SeqCst) {
                    let things = || http_response("200 OK", "application/json", r#"{"kind":"ThingList"}"#);
                    visit.write(&listing.respond(&received).unwrap_or_else(things)).await;
                } else {
                    fault.respond(&mut visit, rogue).await;
                    if !fault.leaves_connection_usable() {
                        return;
                    }
                }
            }
        }
    };
    stage.start_peer(script).await
}

/// The `reason` label that the metrics use for a fault.
fn discovery_failure_reason(fault: PeerFault) -> &'static str {
    match fault {
        PeerFault::Silent => "timeout",
        PeerFault::NoHttp | PeerFault::TruncatedBody => "broken",
        PeerFault::InvalidJson => "garbage",
        PeerFault::InternalError | PeerFault::PlainNotFound => "status",
        PeerFault::Unauthorized => "unauthorized",
        PeerFault::Redirecting => "redirect",
        PeerFault::HugeBody => "too_long",
    }
}

fn check_discovery_faults(store: TestStore<'_>) {
    let mut plane = ControlPlane::new(store);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let strangers = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let (rogue, healed) = (start_forbidden_peer(&stage).await, Arc::new(AtomicBool::new(false)));
        let mut peers = Vec::new();
        for fault in PeerFault::ALL {
            let peer = start_peer_with_discovery_fault(&stage, fault, rogue.address, healed.clone()).await;
            stage.add_member(&old, &fault.identity(), peer.address).await;
            peers.push(peer);
        }
        let foreign = TestCertificates::new(strangers.path());
        let stranger = stage
            .start_untrusted_peer(&foreign, async |mut visit: ScriptedConnection| visit.wait_for_close().await)
            .await;
        stage.add_member(&old, "apiserver-stranger", stranger.address).await;

        for client in [&old, &new] {
            for fault in PeerFault::ALL {
                let series = transport_failures_series(&fault.identity(), discovery_failure_reason(fault));
                eventually("the fault is counted", async || expect_counted(client, &series).await).await;
            }
            let series = transport_failures_series("apiserver-stranger", "tls");
            eventually("the wrong certificate is counted", async || expect_counted(client, &series).await).await;
            let series = "apiserver_peer_discovery_sync_errors_total{type=\"fetch_discovery\"}";
            assert!(metric_value(client, series).await >= 2 * PeerFault::ALL.len() as u64);
            assert_eq!(client.get("/readyz").await.status, 200, "readiness is unaffected");
            // Paths that may be built in are 503, because a faulty member may serve them; others are 404.
            for path in [PeerFault::Silent.path(), "/apis/apps/v9/deployments".to_owned()] {
                let refused = client.get(&path).await;
                assert_eq!(refused.status, 503, "{path}: {}", refused.summary());
                assert!(refused.summary().ends_with("(routing rule 6)") && !refused.summary().contains("127.0.0.1"));
                assert_eq!(refused.headers["retry-after"], "1");
            }
            assert_eq!(client.get("/apis/example.com/v1/widgets").await.status, 404);
            assert_eq!(client.get(CLASSES_PATH).await.status, 200, "resources of the healthy peer are served");
        }
        let [of_old, of_new] = [get_merged_discovery(&old).await, get_merged_discovery(&new).await];
        assert_eq!(of_old.headers["etag"], of_new.headers["etag"]);
        assert!(String::from_utf8_lossy(&of_old.body).contains("volumeattributesclasses"));

        healed.store(true, Ordering::SeqCst);
        for fault in PeerFault::ALL {
            let is_served = async || expect_status(&old, &fault.path(), 200).await;
            eventually("a recovered member is fetched again and used", is_served).await;
        }
        assert_eq!(rogue.connection_count(), 0, "a redirect is not followed");
    });
}

#[test]
fn discovery_faults_of_members_are_isolated_on_sqlite() {
    check_discovery_faults(TestStore::Sqlite);
}

#[test]
fn discovery_faults_of_members_are_isolated_on_etcd() {
    check_discovery_faults(TestStore::Etcd(&Etcd::start()));
}

#[test]
fn mute_member_makes_unknown_built_in_resources_503_only() {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let mut plane = ControlPlane::new(store);
        plane.start("old", &OLD_FLAGS);
        let old = plane.admin("old");
        block_on(async {
            assert_eq!(old.get(CLASSES_PATH).await.status, 404, "a single server knows that no member serves it");
            create_identity_lease(&old, "apiserver-mute").await;
            eventually("the member is discovered", async || expect_status(&old, CLASSES_PATH, 503).await).await;
            let refused = old.get("/apis/future.k8s.io/v1/things").await;
            assert_eq!(refused.status, 503, "{}", refused.summary());
            assert_eq!(old.get("/apis/example.com/v1/widgets").await.status, 404);
            assert_eq!(old.get("/api/v1/namespaces").await.status, 200);
            let ready = async || {
                let page = old.get("/readyz?verbose").await;
                assert_eq!(page.status, 200);
                String::from_utf8_lossy(&page.body).into_owned()
            };
            let page = ready().await;
            assert!(page.contains("apiserver-mute is unknown: it has not said yet what it serves"), "{page}");
            // After a minute without an address, a member counts as mute.
            if tools::is_soak() {
                let is_mute = async || {
                    let page = ready().await;
                    if page.contains("apiserver-mute is mute: it does not say") { Ok(()) } else { Err(page) }
                };
                eventually("the member counts as mute", is_mute).await;
                assert_eq!(old.get(CLASSES_PATH).await.status, 503);
            }
            old.delete(&format!("{}/apiserver-mute", cluster_tests::scripted_members::IDENTITY_LEASES)).await;
            eventually("the member is forgotten", async || expect_status(&old, CLASSES_PATH, 404).await).await;
        });
    }
}
