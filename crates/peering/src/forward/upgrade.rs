//! Connections that are handed over: exec, attach, port-forward, websockets.

use std::time::Duration;

use http::request;
use hyper::upgrade::OnUpgrade;
use tasks::Tasks;
use tokio_util::sync::CancellationToken;
use transport::peer::PeerEnd;

use super::head::asks_for_upgrade;
use super::peers::Seat;

/// How long either side may take to let go of its connection once both have agreed.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's end of a connection that it wants to hand over.
pub(super) struct ClientEnd(OnUpgrade);

impl ClientEnd {
    /// If the client asks for it, and its connection can be handed over.
    pub(super) fn of(request: &mut request::Parts) -> Option<Self> {
        if !asks_for_upgrade(&request.headers) {
            return None;
        }
        request.extensions.remove::<OnUpgrade>().map(Self)
    }
}

/// Carries bytes between both ends until they end or this server stops.
pub(super) fn join(client: ClientEnd, peer: PeerEnd, seat: Option<Seat>, tasks: &Tasks, stop: CancellationToken) {
    tasks.spawn_once("peer-tunnel", async move {
        let bandwidth = seat.as_ref().and_then(|seat| seat.peer().bandwidth().cloned());
        let carrying = async move {
            let both = async { tokio::join!(client.0, peer.ready()) };
            let Ok((Ok(client), Ok(peer))) = tokio::time::timeout(HAND_OVER_TIMEOUT, both).await else { return };
            let carried = match &bandwidth {
                Some(bandwidth) => transport::peer::join_paced(client, peer, |bytes| bandwidth.pass(bytes)).await,
                None => transport::peer::join(client, peer).await,
            };
            if let Err(error) = carried {
                tracing::debug!(%error, "an upgraded connection broke");
            }
        };
        stop.run_until_cancelled(carrying).await;
        drop(seat);
    });
}
