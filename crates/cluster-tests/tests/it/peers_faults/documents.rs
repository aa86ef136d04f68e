//! Members whose documents cannot be had, for a while or ever.

use super::*;

/// A member that is asked what it serves and answers with a fault, until it is healed.
pub(super) async fn asked_in_vain(
    stage: &Stage,
    fault: Fault,
    rogue: SocketAddr,
    healed: Arc<AtomicBool>,
) -> ScriptedPeer {
    let listing = Listing::default().with(&fault.group(), "v1", "things", &[]);
    let script = move |mut visit: Visit| {
        let (listing, healed) = (listing.clone(), healed.clone());
        async move {
            while let Some(heard) = visit.hear().await {
                if healed.load(Ordering::SeqCst) {
                    let things = || answer("200 OK", "application/json", r#"{"kind":"ThingList"}"#);
                    visit.say(&listing.answer(&heard).unwrap_or_else(things)).await;
                } else {
                    fault.play(&mut visit, rogue).await;
                    if !fault.keeps_connection() {
                        return;
                    }
                }
            }
        }
    };
    stage.peer(script).await
}

/// Why a member's document could not be had, in the word of the figures.
fn reason_for_no_document(fault: Fault) -> &'static str {
    match fault {
        Fault::Silent => "timeout",
        Fault::NoHttp | Fault::Half => "broken",
        Fault::Nonsense => "garbage",
        Fault::Failing | Fault::Lost => "status",
        Fault::Distrusting => "unauthorized",
        Fault::Redirecting => "redirect",
        Fault::Endless => "too_long",
    }
}

fn members_that_do_not_say_what_they_serve(store: Store<'_>) {
    let mut plane = ControlPlane::new(store);
    plane.start("old", &OLD);
    plane.start("new", &NEW);
    let strangers = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    block_on(async {
        let stage = Stage::open(&plane).await;
        let (rogue, healed) = (rogue(&stage).await, Arc::new(AtomicBool::new(false)));
        let mut peers = Vec::new();
        for fault in Fault::ALL {
            let peer = asked_in_vain(&stage, fault, rogue.address, healed.clone()).await;
            stage.admit(&old, &fault.identity(), peer.address).await;
            peers.push(peer);
        }
        let foreign = Certificates::new(strangers.path());
        let stranger = stage.stranger(&foreign, async |mut visit: Visit| visit.closed().await).await;
        stage.admit(&old, "apiserver-stranger", stranger.address).await;

        for client in [&old, &new] {
            for fault in Fault::ALL {
                let series = failures(&fault.identity(), reason_for_no_document(fault));
                eventually("the fault is counted", async || is_counted(client, &series).await).await;
            }
            let series = failures("apiserver-stranger", "tls");
            eventually("the wrong certificate is counted", async || is_counted(client, &series).await).await;
            let series = "apiserver_peer_discovery_sync_errors_total{type=\"fetch_discovery\"}";
            assert!(figure(client, series).await >= 2 * Fault::ALL.len() as u64);
            assert_eq!(client.get("/readyz").await.status, 200, "nobody is held up");
            // What may be built in is not denied, because one of them may have it; anything else is.
            for path in [Fault::Silent.path(), "/apis/apps/v9/deployments".to_owned()] {
                let refused = client.get(&path).await;
                assert_eq!(refused.status, 503, "{path}: {}", refused.brief());
                assert!(refused.brief().ends_with("(routing rule 6)") && !refused.brief().contains("127.0.0.1"));
                assert_eq!(refused.headers["retry-after"], "1");
            }
            assert_eq!(client.get("/apis/example.com/v1/widgets").await.status, 404);
            assert_eq!(client.get(CLASSES).await.status, 200, "what the other server has is served");
        }
        let [of_old, of_new] = [merged(&old).await, merged(&new).await];
        assert_eq!(of_old.headers["etag"], of_new.headers["etag"]);
        assert!(String::from_utf8_lossy(&of_old.body).contains("volumeattributesclasses"));

        healed.store(true, Ordering::SeqCst);
        for fault in Fault::ALL {
            let is_served = async || has_status(&old, &fault.path(), 200).await;
            eventually("a member that recovers is asked again and served from", is_served).await;
        }
        assert_eq!(rogue.connections(), 0, "a redirect is not followed");
    });
}

#[test]
fn members_that_do_not_say_what_they_serve_harm_nobody_on_sqlite() {
    members_that_do_not_say_what_they_serve(Store::Sqlite);
}

#[test]
fn members_that_do_not_say_what_they_serve_harm_nobody_on_etcd() {
    members_that_do_not_say_what_they_serve(Store::Etcd(&Etcd::start()));
}

#[test]
fn a_mute_member_makes_unknown_built_ins_unavailable_and_nothing_else() {
    let etcd = Etcd::start();
    for store in [Store::Sqlite, Store::Etcd(&etcd)] {
        let mut plane = ControlPlane::new(store);
        plane.start("old", &OLD);
        let old = plane.admin("old");
        block_on(async {
            assert_eq!(old.get(CLASSES).await.status, 404, "alone it knows that nobody has it");
            enlist(&old, "apiserver-mute").await;
            eventually("the member is known", async || has_status(&old, CLASSES, 503).await).await;
            let refused = old.get("/apis/future.k8s.io/v1/things").await;
            assert_eq!(refused.status, 503, "{}", refused.brief());
            assert_eq!(old.get("/apis/example.com/v1/widgets").await.status, 404);
            assert_eq!(old.get("/api/v1/namespaces").await.status, 200);
            let ready = async || {
                let page = old.get("/readyz?verbose").await;
                assert_eq!(page.status, 200);
                String::from_utf8_lossy(&page.body).into_owned()
            };
            let page = ready().await;
            assert!(page.contains("apiserver-mute is unknown: it has not said yet what it serves"), "{page}");
            // It takes a minute without an address until nothing is expected of it any more.
            if tools::is_soak() {
                let is_mute = async || {
                    let page = ready().await;
                    if page.contains("apiserver-mute is mute: it does not say") { Ok(()) } else { Err(page) }
                };
                eventually("it is taken for mute", is_mute).await;
                assert_eq!(old.get(CLASSES).await.status, 503);
            }
            old.delete(&format!("{}/apiserver-mute", cluster_tests::scripted::IDENTITY_LEASES)).await;
            eventually("it is forgotten", async || has_status(&old, CLASSES, 404).await).await;
        });
    }
}
