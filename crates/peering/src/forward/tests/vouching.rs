//! Peers to which we vouch for users, and peers to which we do not.

use transport::Watched;
use transport::peer::{ClientFiles, Dialer};

use super::*;

/// A forwarder that vouches only to peers that it was allowed to.
fn careful(bench: &Bench) -> Forwarder {
    let files = ClientFiles { own: None, ..bench.certificates.client() };
    let bare = Connector::new(Watched::fixed(files.read().unwrap()), Dialer::direct());
    let ways = Ways {
        bare: Some(Arc::new(bare)),
        vouching_policy: VouchingPolicy::AllowedPeers,
        ..Ways::of_server(bench.certificates.connector())
    };
    Forwarder::new(ways, generous(), Metrics::new(&Registry::new()), &bench.tasks)
}

async fn get(
    forwarder: &Forwarder,
    candidates: &[Candidate],
    user: &Identity,
) -> Result<Response<AnswerBody>, ForwardError> {
    let first = server(0);
    let call = Call { effect: Effect::Writes, prefers: Some(&first), ..long_read(candidates, user) };
    let request = Request::get("/api/v1/pods").header("X-Other-User", "root").header("X-Mine", "kept");
    forwarder.forward(call, request.body(Empty::<Bytes>::new()).unwrap()).await
}

#[tokio::test]
async fn users_are_named_only_to_peers_that_were_allowed() {
    let bench = Bench::new(generous());
    let forwarder = careful(&bench);
    let (first, second) = (bench.answering(ok).await, bench.answering(ok).await);
    let candidates = [candidate(0, &first), candidate(1, &second)];
    let jane = Identity::new("jane", "", [], []).unwrap();
    let refused = get(&forwarder, &candidates, &jane).await.unwrap_err();
    assert!(matches!(refused, ForwardError::NotVouched), "{refused}");
    assert_eq!((refused.status().http_code(), refused.execution()), (503, Execution::None));
    // Tokens travel without our certificate.
    let response = get(&forwarder, &candidates, &Identity::as_shown()).await.unwrap();
    assert_eq!(answered_by(&response), &server(0));
    forwarder.set_vouching(&candidates[1], true);
    for _ in 0..4 {
        assert_eq!(answered_by(&get(&forwarder, &candidates, &jane).await.unwrap()), &server(1));
    }
    forwarder.set_vouching(&candidates[1], false);
    assert!(matches!(get(&forwarder, &candidates, &jane).await, Err(ForwardError::NotVouched)));
}

#[tokio::test]
async fn headers_that_any_peer_reads_as_identity_do_not_travel_with_our_certificate() {
    let bench = Bench::new(generous());
    let forwarder = careful(&bench);
    let peer = bench.answering(ok).await;
    let candidates = [candidate(0, &peer)];
    forwarder.set_vouching(&candidates[0], true);
    forwarder.set_peer_identity_headers(IdentityHeaders::new(["X-Other-User"], []));
    get(&forwarder, &candidates, &Identity::new("jane", "", [], []).unwrap()).await.unwrap();
    let heard = peer.heard().await;
    assert_eq!((heard.header("x-other-user").len(), heard.header("x-mine").len()), (0, 1));
    assert_eq!(heard.header("x-remote-user"), ["jane"]);
}
