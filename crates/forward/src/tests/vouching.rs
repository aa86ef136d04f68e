//! Peers to which users are named, and peers to which they are not.

use transport::Reloading;
use transport::peer::{ClientTlsFiles, Dialer};

use super::*;

/// A forwarder that names users only to allowed peers.
fn forwarder_with_allowed_peers_only(fixture: &ForwarderFixture) -> Forwarder {
    let files = ClientTlsFiles { client_certificate: None, ..fixture.certificates.client_files() };
    let bare = Connector::new(Reloading::fixed(files.load().unwrap()), Dialer::direct());
    let config = ForwarderConfig {
        passthrough_connector: Some(Arc::new(bare)),
        vouching_policy: VouchingPolicy::AllowedPeers,
        ..ForwarderConfig::for_server(fixture.certificates.connector())
    };
    Forwarder::new(config, generous_limits(), Metrics::new(&Registry::new()), &fixture.tasks)
}

async fn forward_get(
    forwarder: &Forwarder,
    candidates: &[Candidate],
    user: &ForwardedUser,
) -> Result<Response<ForwardedBody>, ForwardError> {
    let first = server(0);
    let forward_request =
        ForwardRequest { effect: Effect::Writes, preferred_peer: Some(&first), ..long_read(candidates, user) };
    let request = Request::get("/api/v1/pods").header("X-Other-User", "root").header("X-Mine", "kept");
    forwarder.forward(forward_request, request.body(Empty::<Bytes>::new()).unwrap()).await
}

#[tokio::test]
async fn vouched_user_is_sent_only_to_allowed_peers() {
    let fixture = ForwarderFixture::new(generous_limits());
    let forwarder = forwarder_with_allowed_peers_only(&fixture);
    let (first, second) = (fixture.start_responder(echo_response).await, fixture.start_responder(echo_response).await);
    let candidates = [candidate(0, &first), candidate(1, &second)];
    let jane = ForwardedUser::new("jane", "", [], []).unwrap();
    let refused = forward_get(&forwarder, &candidates, &jane).await.unwrap_err();
    assert!(matches!(refused, ForwardError::NotVouched), "{refused}");
    assert_eq!(refused.execution(), Execution::None);
    // Tokens are forwarded without our certificate.
    let response = forward_get(&forwarder, &candidates, &ForwardedUser::with_client_credentials()).await.unwrap();
    assert_eq!(responding_peer(&response), &server(0));
    forwarder.set_vouching(&candidates[1], true);
    for _ in 0..4 {
        assert_eq!(responding_peer(&forward_get(&forwarder, &candidates, &jane).await.unwrap()), &server(1));
    }
    forwarder.set_vouching(&candidates[1], false);
    assert!(matches!(forward_get(&forwarder, &candidates, &jane).await, Err(ForwardError::NotVouched)));
}

#[tokio::test]
async fn peer_identity_headers_are_removed_from_vouched_requests() {
    let fixture = ForwarderFixture::new(generous_limits());
    let forwarder = forwarder_with_allowed_peers_only(&fixture);
    let peer = fixture.start_responder(echo_response).await;
    let candidates = [candidate(0, &peer)];
    forwarder.set_vouching(&candidates[0], true);
    forwarder.set_peer_identity_headers(IdentityHeaders::new(["X-Other-User"], []));
    forward_get(&forwarder, &candidates, &ForwardedUser::new("jane", "", [], []).unwrap()).await.unwrap();
    let received = peer.next_request().await;
    assert_eq!((received.header("x-other-user").len(), received.header("x-mine").len()), (0, 1));
    assert_eq!(received.header("x-remote-user"), ["jane"]);
}
