//! Watches that share connections to a peer.

use std::pin::pin;

use transport::Reloading;
use transport::peer::{ClientTlsFiles, Dialer};
use transport::testing::{Http2Exchange, Http2Peer};

use super::*;

const WATCH: &str = "/api/v1/pods?watch=1";

/// A forwarder to one peer that lets watches share connections.
struct MultiplexFixture {
    bench: ForwarderFixture,
    forwarder: Forwarder,
    peer: Http2Peer,
}

impl MultiplexFixture {
    async fn new(limits: ForwardLimits) -> Self {
        let bench = ForwarderFixture::new(limits);
        let peer = Http2Peer::start(bench.certificates.server_config(), &bench.tasks, 250).await;
        let files = ClientTlsFiles { client_certificate: None, ..bench.certificates.client_files() };
        let bare = Connector::new(Reloading::fixed(files.load().unwrap()), Dialer::direct());
        let config = ForwarderConfig {
            passthrough_connector: Some(Arc::new(bare)),
            ..ForwarderConfig::for_server(bench.certificates.connector())
        };
        let forwarder = Forwarder::new(config, limits, Metrics::new(&Registry::new()), &bench.tasks);
        Self { bench, forwarder, peer }
    }

    async fn watch(&self, user: &ForwardedUser) -> (Response<ForwardedBody>, Http2Exchange) {
        let address = Address::new("127.0.0.1", self.peer.address.port()).unwrap();
        let candidates = [Candidate::new(server(0), address)];
        let request = Request::get(WATCH).header("authorization", "Bearer theirs").body(Empty::<Bytes>::new()).unwrap();
        let response = self.forwarder.forward(long_read(&candidates, user), request).await.unwrap();
        (response, self.peer.next_exchange().await)
    }
}

fn jane() -> ForwardedUser {
    ForwardedUser::new("jane", "", ["developers"], []).unwrap()
}

/// The identity headers of a request.
fn identity_headers(exchange: &Http2Exchange) -> [Option<&str>; 2] {
    ["x-remote-user", "authorization"].map(|name| exchange.headers.get(name).map(|value| value.to_str().unwrap()))
}

#[tokio::test]
async fn multiplexed_watches_keep_their_own_users() {
    let fixture = MultiplexFixture::new(generous_limits()).await;
    let joe = ForwardedUser::new("joe", "", [], []).unwrap();
    let (_janes, of_jane) = fixture.watch(&jane()).await;
    let (_joes, of_joe) = fixture.watch(&joe).await;
    assert_eq!((of_jane.connection, of_joe.connection), (0, 0));
    assert_eq!((identity_headers(&of_jane), identity_headers(&of_joe)), ([Some("jane"), None], [Some("joe"), None]));
    assert_eq!(of_jane.uri.path_and_query().unwrap(), WATCH);
}

#[tokio::test]
async fn vouched_users_and_token_users_never_share_a_connection() {
    let fixture = MultiplexFixture::new(generous_limits()).await;
    let users = [jane(), ForwardedUser::with_client_credentials(), jane(), ForwardedUser::with_client_credentials()];
    let mut held = Vec::new();
    for user in &users {
        let (answer, asked) = fixture.watch(user).await;
        assert_eq!(asked.has_client_certificate, user.is_vouched_for());
        let expected = if user.is_vouched_for() { [Some("jane"), None] } else { [None, Some("Bearer theirs")] };
        assert_eq!(identity_headers(&asked), expected);
        held.push((answer, asked));
    }
    assert_eq!(held.iter().map(|(_, asked)| asked.connection).collect::<Vec<_>>(), [0, 1, 0, 1]);
}

#[tokio::test]
async fn dropped_watch_resets_only_its_stream() {
    let fixture = MultiplexFixture::new(generous_limits()).await;
    let (stays, of_stays) = fixture.watch(&jane()).await;
    let (leaves, of_leaves) = fixture.watch(&jane()).await;
    drop(leaves);
    tokio::time::timeout(TEST_TIMEOUT, of_leaves.response_body.closed()).await.unwrap();
    let mut body = stays.into_body();
    for event in ["one\n", "two\n"] {
        of_stays.response_body.send(Bytes::from_static(event.as_bytes())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event, "before the next was sent");
    }
    assert_eq!(fixture.forwarder.peers().status(&server(0)).unwrap().streams, 1);
}

#[tokio::test]
async fn watch_moves_to_new_connection_after_goaway() {
    let fixture = MultiplexFixture::new(generous_limits()).await;
    let (_old, of_old) = fixture.watch(&jane()).await;
    fixture.peer.drain();
    // Until GOAWAY arrives, the old connection is usable; from then on no watch may fail because of it.
    let moved = async {
        let mut held = Vec::new();
        loop {
            let (answer, asked) = fixture.watch(&jane()).await;
            if asked.connection == 1 {
                return (held, answer);
            }
            held.push((answer, asked));
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, moved).await.unwrap();
    assert!(!of_old.response_body.is_closed(), "what it has goes on");
    assert_eq!(fixture.bench.failure_counts(), Vec::<String>::new());
}

#[tokio::test]
async fn multiplexed_watches_end_when_peer_is_unresponsive() {
    let limits =
        ForwardLimits { stream_ping_interval: SHORT_TIMEOUT, stream_ping_timeout: SHORT_TIMEOUT, ..generous_limits() };
    let fixture = MultiplexFixture::new(limits).await;
    let (a, of_a) = fixture.watch(&jane()).await;
    let (b, of_b) = fixture.watch(&jane()).await;
    for answer in [a, b] {
        let mut body = pin!(answer.into_body());
        // The peer keeps the connection and answers no ping, which is an HTTP/1.1 request.
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the peer does not answer any more");
    }
    assert_eq!((of_a.connection, of_b.connection), (0, 0));
}
