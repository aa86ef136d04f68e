//! Connections that are handed over: exec, attach, port-forward, websockets.

use std::time::Duration;

use http::request;
use hyper::upgrade::OnUpgrade;
use tasks::Tasks;
use tokio_util::sync::CancellationToken;
use transport::peer::PeerUpgrade;

use super::forwarded_head::is_upgrade_request;
use super::peer_set::PeerSeat;

/// How long either side may take to let go of its connection once both have agreed.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's end of a connection that it wants to hand over.
pub(super) struct ClientUpgrade(OnUpgrade);

impl ClientUpgrade {
    /// If the client asks for it, and its connection can be handed over.
    pub(super) fn from_request(request: &mut request::Parts) -> Option<Self> {
        if !is_upgrade_request(&request.headers) {
            return None;
        }
        request.extensions.remove::<OnUpgrade>().map(Self)
    }
}

/// Carries bytes between both ends until they end or this server stops.
pub(super) fn spawn_tunnel(
    client: ClientUpgrade,
    peer: PeerUpgrade,
    seat: Option<PeerSeat>,
    tasks: &Tasks,
    stop: CancellationToken,
) {
    tasks.spawn_once("peer-tunnel", async move {
        let bandwidth = seat.as_ref().and_then(|seat| seat.peer().bandwidth().cloned());
        let tunnelling = async move {
            let both = async { tokio::join!(client.0, peer.wait_for_upgrade()) };
            let Ok((Ok(client), Ok(peer))) = tokio::time::timeout(UPGRADE_TIMEOUT, both).await else { return };
            let tunnel_result = match &bandwidth {
                Some(bandwidth) => {
                    transport::peer::copy_bidirectional_throttled(client, peer, |bytes| bandwidth.wait_for(bytes)).await
                }
                None => transport::peer::copy_bidirectional(client, peer).await,
            };
            if let Err(error) = tunnel_result {
                tracing::debug!(%error, "an upgraded connection broke");
            }
        };
        stop.run_until_cancelled(tunnelling).await;
        drop(seat);
    });
}
