//! Members that fail what is forwarded to them.

use super::*;
use documents::asked_in_vain;

/// A member whose documents are in order and that answers everything else with a fault.
async fn misbehaving(stage: &Stage, fault: Fault, rogue: SocketAddr) -> ScriptedPeer {
    let own = Listing::default().with(&fault.group(), "v1", "things", &[]);
    // Answers that are the client's to judge are not asked for what others have.
    let listing = match fault {
        Fault::Nonsense | Fault::Failing | Fault::Endless | Fault::Half => own,
        Fault::Silent | Fault::NoHttp | Fault::Distrusting | Fault::Lost | Fault::Redirecting => {
            own.with("storage.k8s.io", "v1", "volumeattributesclasses", &[])
        }
    };
    let script = move |mut visit: Visit| {
        let listing = listing.clone();
        async move {
            while let Some(heard) = visit.hear().await {
                match listing.answer(&heard) {
                    Some(document) => visit.say(&document).await,
                    None => fault.play(&mut visit, rogue).await,
                }
                if !fault.keeps_connection() {
                    return;
                }
            }
        }
    };
    stage.peer(script).await
}

#[test]
fn a_member_that_fails_requests_is_passed_over_and_is_never_a_404() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    plane.start("new", &NEW);
    let old = plane.admin("old");
    block_on(async {
        let stage = Stage::open(&plane).await;
        let rogue = rogue(&stage).await;
        let mut peers = Vec::new();
        for fault in Fault::ALL {
            let peer = misbehaving(&stage, fault, rogue.address).await;
            stage.admit(&old, &fault.identity(), peer.address).await;
            peers.push(peer);
        }
        eventually("all members are known", async || has_live(&old, 1 + Fault::ALL.len()).await).await;
        for (fault, reason) in [
            (Fault::NoHttp, "garbage"),
            (Fault::Distrusting, "unauthorized"),
            (Fault::Lost, "not_served"),
            (Fault::Redirecting, "redirect"),
        ] {
            let refused = old.get(&fault.path()).await;
            assert_eq!(refused.brief(), "503 Error while proxying request to destination apiserver", "{fault:?}");
            assert_eq!(refused.headers["retry-after"], "1", "{fault:?}");
            assert!(!refused.headers.contains_key("location"), "{fault:?}");
            assert!(figure(&old, &failures(&fault.identity(), reason)).await > 0, "{fault:?}: {reason}");
            let labels = format!("group=\"{}\",resource=\"things\",type=\"proxy_transport\"", fault.group());
            let series = format!("apiserver_peer_proxy_errors_total{{{labels},version=\"v1\"}}");
            assert!(figure(&old, &series).await > 0, "{series}");
        }
        let silent = old.get(&format!("{}?timeout=1s", Fault::Silent.path())).await;
        assert_eq!(silent.brief(), "503 Error while proxying request to destination apiserver");
        assert!(figure(&old, &failures(&Fault::Silent.identity(), "timeout")).await > 0);
        // What it says of the request is what the client gets.
        assert_eq!(old.get(&Fault::Failing.path()).await.status, 500);
        // Nothing but answers is ever seen of what another member has, too.
        let is_passed_over = failures(&Fault::Silent.identity(), "no_answer");
        let mut asked = 0;
        while asked < 30 || figure(&old, &is_passed_over).await == 0 {
            assert_eq!(old.get(CLASSES).await.status, 200, "request {asked}");
            asked += 1;
            assert!(asked < 500, "the silent one was never tried");
        }
        assert_eq!(rogue.connections(), 0, "a redirect is not followed");
    });
}

#[test]
fn a_long_answer_passes_through_and_a_torn_one_ends_torn() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    let old = plane.admin("old");
    block_on(async {
        let stage = Stage::open(&plane).await;
        let rogue = rogue(&stage).await;
        let mut peers = Vec::new();
        for fault in [Fault::Endless, Fault::Half] {
            let peer = misbehaving(&stage, fault, rogue.address).await;
            stage.admit(&old, &fault.identity(), peer.address).await;
            peers.push(peer);
        }
        eventually("the members are known", async || has_live(&old, 2).await).await;
        let mut torn = old.stream(None).await.unwrap();
        let line = format!("GET {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", Fault::Half.path());
        torn.write_all(line.as_bytes()).await.unwrap();
        let mut answered = Vec::new();
        // Whether it is closed in order or not says the same.
        let _ = torn.read_to_end(&mut answered).await;
        let answered = String::from_utf8(answered).unwrap();
        // The connection may break before or after what there is of the answer.
        let is_torn = answered.is_empty() || answered.contains("content-length: 1000\r\n");
        assert!(is_torn && answered.len() < 1000, "half an answer does not pass for a whole one: {answered}");
        let before = plane.server("old").resident_bytes();
        let mut body =
            old.open(old.request(http::Method::GET, &Fault::Endless.path()), bytes::Bytes::new()).await.into_body();
        let (mut length, mut most) = (0, 0);
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().map_or(0, |data| data.len());
            most = most.max(plane.server("old").resident_bytes());
        }
        assert_eq!(length, ENDLESS_MEGABYTES << 20);
        assert!(most - before.min(most) < 64 << 20, "{} bytes are held of it", most - before);
    });
}

#[test]
fn a_write_whose_peer_dies_is_not_repeated_and_says_so() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    let old = plane.admin("old");
    block_on(async {
        let stage = Stage::open(&plane).await;
        let listing = Listing::default().with("future.k8s.io", "v1", "things", &[]);
        let script = move |mut visit: Visit| {
            let listing = listing.clone();
            async move {
                while let Some(heard) = visit.hear().await {
                    // It takes a write and is gone.
                    let Some(document) = listing.answer(&heard) else { return };
                    visit.say(&document).await;
                }
            }
        };
        let [one, other] = [stage.peer(script.clone()).await, stage.peer(script).await];
        stage.admit(&old, "apiserver-one", one.address).await;
        stage.admit(&old, "apiserver-other", other.address).await;
        eventually("both are known", async || has_live(&old, 2).await).await;
        let refused = old.create("/apis/future.k8s.io/v1/things", &json!({"metadata": {"name": "a"}})).await;
        assert_eq!(
            refused.brief(),
            "503 Error while proxying request to destination apiserver: the request was sent, and it is not known whether it was \
             executed"
        );
        assert!(!refused.headers.contains_key("retry-after"), "clients repeat any verb on that");
        let heard = [one.heard_so_far().await, other.heard_so_far().await].concat();
        let writes = heard.iter().filter(|heard| heard.line.starts_with("POST ")).count();
        assert_eq!(writes, 1, "{heard:?}");
    });
}

#[test]
fn forwarded_write_of_disconnected_client_is_audited_with_its_outcome() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    let rules = "[{level: Metadata, users: [kubernetes-admin]}]";
    std::fs::write(&policy, format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: {rules}}}")).unwrap();
    let flags = [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    plane.start("old", &[OLD[0], &flags[0], &flags[1]]);
    let old = plane.admin("old");
    block_on(async {
        let stage = Stage::open(&plane).await;
        let listing = Listing::default().with("future.k8s.io", "v1", "things", &[]);
        let (heard_write, has_heard) = tokio::sync::watch::channel(false);
        let (let_go, may_answer) = tokio::sync::watch::channel(false);
        let script = move |mut visit: Visit| {
            let (listing, heard_write, mut may_answer) = (listing.clone(), heard_write.clone(), may_answer.clone());
            async move {
                while let Some(heard) = visit.hear().await {
                    if let Some(document) = listing.answer(&heard) {
                        visit.say(&document).await;
                        continue;
                    }
                    heard_write.send_replace(true);
                    may_answer.wait_for(|may| *may).await.unwrap();
                    visit.say(&answer("201 Created", "application/json", "{}")).await;
                }
            }
        };
        let peer = stage.peer(script).await;
        stage.admit(&old, "apiserver-one", peer.address).await;
        eventually("the member is known", async || has_live(&old, 1).await).await;
        let mut client = old.stream(None).await.unwrap();
        let line = "POST /apis/future.k8s.io/v1/things HTTP/1.1\r\nhost: x\r\naudit-id: gone\r\n";
        client
            .write_all(format!("{line}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes())
            .await
            .unwrap();
        has_heard.clone().wait_for(|heard| *heard).await.unwrap();
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
fn a_certificate_that_becomes_wrong_is_a_503_and_is_counted() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    let old = plane.admin("old");
    let strangers = tempfile::tempdir().unwrap();
    block_on(async {
        let stage = Stage::open(&plane).await;
        let healed = Arc::new(AtomicBool::new(true));
        let peer = asked_in_vain(&stage, Fault::Lost, ([127, 0, 0, 1], 9).into(), healed).await;
        let foreign = Certificates::new(strangers.path());
        let stranger = stage.stranger(&foreign, async |mut visit: Visit| visit.closed().await).await;
        stage.admit(&old, "apiserver-b", peer.address).await;
        let path = Fault::Lost.path();
        eventually("it is served from", async || has_status(&old, &path, 200).await).await;
        // Somebody else takes its place, as far as storage knows.
        stage.record("apiserver-b", stranger.address).await;
        eventually("nobody but the peer is believed", async || has_status(&old, &path, 503).await).await;
        assert!(figure(&old, &failures("apiserver-b", "tls")).await > 0);
        assert!(stranger.heard_so_far().await.is_empty());
        stage.record("apiserver-b", peer.address).await;
        eventually("it is served from again", async || has_status(&old, &path, 200).await).await;
    });
}
