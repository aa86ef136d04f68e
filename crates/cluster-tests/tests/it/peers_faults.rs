//! Members that misbehave: nobody else suffers, nothing that may exist is denied, and the figures say what is wrong.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster_tests::scripted::{Listing, Stage, answer, enlist};
use cluster_tests::wait::{eventually, figure};
use cluster_tests::{Client, ControlPlane, tools};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use transport::testing::{Certificates, ScriptedPeer, Visit};

use super::*;

/// `storage.k8s.io/v1` has it from 1.34 on, so that the old server has it only through others.
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const OLD: [&str; 1] = ["--emulated-version=1.33"];
const NEW: [&str; 1] = ["--emulated-version=1.36"];
const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// More than anybody reads of a document, and more than a server may hold of an answer.
const ENDLESS_MEGABYTES: usize = 200;

/// What a member can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Accepts and never answers.
    Silent,
    /// Does not speak HTTP.
    NoHttp,
    /// Answers 200 and nonsense.
    Nonsense,
    Failing,
    Distrusting,
    /// Answers 404 in plain text.
    Lost,
    Redirecting,
    /// Answers 200 MB.
    Endless,
    /// Announces more than it sends.
    Half,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::Silent,
        Self::NoHttp,
        Self::Nonsense,
        Self::Failing,
        Self::Distrusting,
        Self::Lost,
        Self::Redirecting,
        Self::Endless,
        Self::Half,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The identity of the member that has this fault.
    fn identity(self) -> String {
        format!("apiserver-{}", self.name())
    }

    /// A group that this member alone lists.
    fn group(self) -> String {
        format!("{}.k8s.io", self.name())
    }

    fn path(self) -> String {
        format!("/apis/{}/v1/things", self.group())
    }

    /// Answers a request in its way. Whoever would be sent elsewhere is sent to `rogue`.
    async fn play(self, visit: &mut Visit, rogue: SocketAddr) {
        let json = "application/json";
        match self {
            Self::Silent => visit.closed().await,
            Self::NoHttp => visit.say("SSH-2.0-OpenSSH_9.2\r\n").await,
            Self::Nonsense => visit.say(&answer("200 OK", json, r#"{"items": 7, "kind": "Nonsense"}"#)).await,
            Self::Failing => visit.say(&answer("500 Internal Server Error", "text/plain", "no\n")).await,
            Self::Distrusting => visit.say(&answer("401 Unauthorized", json, "{}")).await,
            Self::Lost => visit.say(&answer("404 Not Found", "text/plain", "404 page not found\n")).await,
            Self::Redirecting => {
                let head = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n";
                visit.say(&format!("{head}location: https://{rogue}/apis\r\n\r\n")).await;
            }
            Self::Endless => {
                let length = ENDLESS_MEGABYTES << 20;
                visit
                    .say(&format!("HTTP/1.1 200 OK\r\ncontent-type: {json}\r\ncontent-length: {length}\r\n\r\n"))
                    .await;
                let piece = " ".repeat(1 << 20);
                for _ in 0..ENDLESS_MEGABYTES {
                    visit.say(&piece).await;
                }
            }
            Self::Half => visit.say("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"kind\":").await,
        }
    }

    /// Whether a connection is of use after that.
    fn keeps_connection(self) -> bool {
        !matches!(self, Self::Silent | Self::NoHttp | Self::Half)
    }
}

fn failures(identity: &str, reason: &str) -> String {
    format!("unskew_peer_transport_failures_total{{peer=\"{identity}\",reason=\"{reason}\"}}")
}

async fn is_counted(client: &Client, series: &str) -> Result<(), String> {
    if figure(client, series).await > 0 { Ok(()) } else { Err(format!("{series} counts nothing")) }
}

async fn has_status(client: &Client, path: &str, status: u16) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == status { Ok(()) } else { Err(format!("{path}: {}", found.brief())) }
}

async fn has_live(client: &Client, count: usize) -> Result<(), String> {
    let live = figure(client, "unskew_peer_members{state=\"live\"}").await;
    if live == count as u64 { Ok(()) } else { Err(format!("{live} are live")) }
}

async fn merged(client: &Client) -> cluster_tests::client::Answer {
    client.send(client.request(http::Method::GET, "/apis").header("accept", MERGED), bytes::Bytes::new()).await
}

/// Somebody who must never be spoken to.
async fn rogue(stage: &Stage) -> ScriptedPeer {
    stage.peer(async |mut visit: Visit| visit.closed().await).await
}

/// A member that is asked what it serves and answers with a fault, until it is healed.
async fn asked_in_vain(stage: &Stage, fault: Fault, rogue: SocketAddr, healed: Arc<AtomicBool>) -> ScriptedPeer {
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
                let patient = std::time::Duration::from_secs(30);
                tokio::time::sleep(patient).await;
                eventually("it is taken for mute", is_mute).await;
                assert_eq!(old.get(CLASSES).await.status, 503);
            }
            old.delete(&format!("{}/apiserver-mute", cluster_tests::scripted::IDENTITY_LEASES)).await;
            eventually("it is forgotten", async || has_status(&old, CLASSES, 404).await).await;
        });
    }
}
