//! Whether somebody else is who we are.

use std::time::Duration;

use api::PortError;
use tokio::time::Instant;

use super::PresenceConfig;
use crate::endpoints::Address;
use crate::identity::{IdentityLease, ServerId};
use crate::ports::{Leases, Records};

/// How often a doubtful lease is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A record that outlives its time to live by this much is being renewed.
const RECORD_MARGIN: Duration = Duration::from_secs(2);

/// Another process has our identity and is alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another API server with the identity {server} is running at {address}: identities are made from host names, and servers \
     on hosts of one name must be told apart with --hostname-override"
)]
pub struct TwinError {
    /// The identity.
    pub server: ServerId,
    /// Where the other one listens.
    pub address: Address,
}

/// Removes the lease that a former process of ours left behind, unless its holder is alive at another address.
///
/// Takes no longer than an endpoint record lives, and that only if there is one with another address. Trouble with storage is
/// no reason not to start.
pub async fn claim(config: &PresenceConfig, leases: &dyn Leases, records: &dyn Records) -> Result<(), TwinError> {
    let deadline = Instant::now() + config.pace.record_ttl + RECORD_MARGIN;
    let mut first_seen = None;
    loop {
        let is_over = Instant::now() >= deadline;
        match look(config, leases, records).await {
            Ok(Finding::Free) => return Ok(()),
            Ok(Finding::Changing) if !is_over => {}
            Ok(Finding::Doubtful { lease, address }) => {
                let seen = (lease.holder, lease.renew_time);
                let is_renewed = *first_seen.get_or_insert_with(|| seen.clone()) != seen;
                if is_renewed || is_over {
                    return Err(TwinError { server: config.server.clone(), address });
                }
            }
            Ok(Finding::Changing) | Err(_) => return Ok(()),
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// What one look at our name in storage finds.
pub(super) enum Finding {
    /// There is no lease that is not ours, any more.
    Free,
    /// Somebody wrote to it while we looked.
    Changing,
    /// There is one, and somebody listens at another address.
    Doubtful {
        /// The lease.
        lease: IdentityLease,
        /// Where somebody listens.
        address: Address,
    },
}

/// Looks once; a lease that nobody can hold any more is removed.
pub(super) async fn look(
    config: &PresenceConfig,
    leases: &dyn Leases,
    records: &dyn Records,
) -> Result<Finding, PortError> {
    let looking = look_unhurried(config, leases, records);
    let late = || Err(PortError::Unavailable { reason: "it took too long".to_owned() });
    let finding = tokio::time::timeout(config.pace.call_timeout, looking).await.unwrap_or_else(|_| late());
    if let Err(error) = &finding {
        tracing::warn!(server = %config.server, %error, "cannot look for a lease that a former process left");
    }
    finding
}

async fn look_unhurried(
    config: &PresenceConfig,
    leases: &dyn Leases,
    records: &dyn Records,
) -> Result<Finding, PortError> {
    let server = &config.server;
    let Some(lease) = leases.get(server).await? else { return Ok(Finding::Free) };
    let lease = IdentityLease::read_named(server, &lease);
    if lease.holder == config.holder {
        return Ok(Finding::Free);
    }
    let record = records.get(server).await?;
    let address = record.and_then(|record| Address::from_record(server, &record).ok());
    // Nobody else can listen at our address, so a record of it was ours.
    if let Some(address) = address.filter(|address| *address != config.address) {
        return Ok(Finding::Doubtful { lease, address });
    }
    match leases.delete(&lease).await {
        Ok(()) | Err(PortError::NotFound) => {
            tracing::info!(%server, holder = %lease.holder, "removed the lease of a former process");
            Ok(Finding::Free)
        }
        Err(PortError::Conflict) => Ok(Finding::Changing),
        Err(error) => Err(error),
    }
}
