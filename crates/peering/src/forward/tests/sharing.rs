//! Watches that share connections to a peer.

use std::pin::pin;

use transport::Watched;
use transport::peer::{ClientFiles, Dialer};
use transport::testing::{Asked, SharingPeer};

use super::*;

const WATCH: &str = "/api/v1/pods?watch=1";

/// A forwarder to one peer that lets watches share connections.
struct Scene {
    bench: Bench,
    forwarder: Forwarder,
    peer: SharingPeer,
}

impl Scene {
    async fn new(limits: ForwardLimits) -> Self {
        let bench = Bench::new(limits);
        let peer = SharingPeer::start(bench.certificates.server(), &bench.tasks, 250).await;
        let files = ClientFiles { own: None, ..bench.certificates.client() };
        let bare = Connector::new(Watched::fixed(files.read().unwrap()), Dialer::direct());
        let ways = Ways { bare: Some(Arc::new(bare)), ..Ways::of_server(bench.certificates.connector()) };
        let forwarder = Forwarder::new(ways, limits, Metrics::new(&Registry::new()), &bench.tasks);
        Self { bench, forwarder, peer }
    }

    async fn watch(&self, user: &Identity) -> (Response<AnswerBody>, Asked) {
        let address = Address::new("127.0.0.1", self.peer.address.port()).unwrap();
        let candidates = [Candidate { server: server(0), address }];
        let request = Request::get(WATCH).header("authorization", "Bearer theirs").body(Empty::<Bytes>::new()).unwrap();
        let answer = self.forwarder.forward(long_read(&candidates, user), request).await.unwrap();
        (answer, self.peer.asked().await)
    }
}

fn jane() -> Identity {
    Identity::new("jane", "", ["developers"], []).unwrap()
}

/// What names somebody in a head.
fn named(asked: &Asked) -> [Option<&str>; 2] {
    ["x-remote-user", "authorization"].map(|name| asked.headers.get(name).map(|value| value.to_str().unwrap()))
}

#[tokio::test]
async fn each_watch_of_a_connection_is_its_own_users() {
    let scene = Scene::new(generous()).await;
    let joe = Identity::new("joe", "", [], []).unwrap();
    let (_janes, of_jane) = scene.watch(&jane()).await;
    let (_joes, of_joe) = scene.watch(&joe).await;
    assert_eq!((of_jane.connection, of_joe.connection), (0, 0));
    assert_eq!((named(&of_jane), named(&of_joe)), ([Some("jane"), None], [Some("joe"), None]));
    assert_eq!(of_jane.uri.path_and_query().unwrap(), WATCH);
}

#[tokio::test]
async fn whom_we_vouch_for_and_who_shows_a_token_never_share_a_connection() {
    let scene = Scene::new(generous()).await;
    let users = [jane(), Identity::as_shown(), jane(), Identity::as_shown()];
    let mut held = Vec::new();
    for user in &users {
        let (answer, asked) = scene.watch(user).await;
        assert_eq!(asked.shows_certificate, user.is_vouched_for());
        let expected = if user.is_vouched_for() { [Some("jane"), None] } else { [None, Some("Bearer theirs")] };
        assert_eq!(named(&asked), expected);
        held.push((answer, asked));
    }
    assert_eq!(held.iter().map(|(_, asked)| asked.connection).collect::<Vec<_>>(), [0, 1, 0, 1]);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_watch_off_the_connection() {
    let scene = Scene::new(generous()).await;
    let (stays, of_stays) = scene.watch(&jane()).await;
    let (leaves, of_leaves) = scene.watch(&jane()).await;
    drop(leaves);
    tokio::time::timeout(ENOUGH, of_leaves.answer.closed()).await.unwrap();
    let mut body = stays.into_body();
    for event in ["one\n", "two\n"] {
        of_stays.answer.send(Bytes::from_static(event.as_bytes())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event, "before the next was sent");
    }
    assert_eq!(scene.forwarder.peers().observed(&server(0)).unwrap().streams, 1);
}

#[tokio::test]
async fn a_watch_that_meets_the_farewell_of_a_draining_peer_begins_on_another_connection() {
    let scene = Scene::new(generous()).await;
    let (_old, of_old) = scene.watch(&jane()).await;
    scene.peer.drain();
    // Until the farewell has come, the old connection is as good as ever; from then on no watch may fail for it.
    let moved = async {
        let mut held = Vec::new();
        loop {
            let (answer, asked) = scene.watch(&jane()).await;
            if asked.connection == 1 {
                return (held, answer);
            }
            held.push((answer, asked));
        }
    };
    tokio::time::timeout(ENOUGH, moved).await.unwrap();
    assert!(!of_old.answer.is_closed(), "what it has goes on");
    assert_eq!(scene.bench.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn watches_of_a_peer_that_falls_silent_are_ended() {
    let limits = ForwardLimits { stream_ping_interval: SOON, stream_ping_timeout: SOON, ..generous() };
    let scene = Scene::new(limits).await;
    let (a, of_a) = scene.watch(&jane()).await;
    let (b, of_b) = scene.watch(&jane()).await;
    for answer in [a, b] {
        let mut body = pin!(answer.into_body());
        // It keeps the connection and answers no ping, which is a request of HTTP/1.1.
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the peer does not answer any more");
    }
    assert_eq!((of_a.connection, of_b.connection), (0, 0));
}
