//! Upgraded connections: exec, attach, port-forward, websockets.

use std::time::Duration;

use http::request;
use hyper::upgrade::OnUpgrade;
use tasks::Tasks;
use tokio_util::sync::CancellationToken;
use transport::peer::PeerUpgrade;

use super::forwarded_head::is_upgrade_request;
use super::peer_set::PeerSeat;

/// How long either side may take to switch protocols after the 101 response.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's side of a connection that it asks to upgrade.
pub(super) struct ClientUpgrade(OnUpgrade);

impl ClientUpgrade {
    /// `None` unless the client asks for an upgrade and its connection supports one.
    pub(super) fn from_request(request: &mut request::Parts) -> Option<Self> {
        if !is_upgrade_request(&request.headers) {
            return None;
        }
        request.extensions.remove::<OnUpgrade>().map(Self)
    }
}

/// Copies bytes between both connections until they end or this server stops.
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
                tracing::debug!(%error, "upgraded connection failed");
            }
        };
        stop.run_until_cancelled(tunnelling).await;
        drop(seat);
    });
}
