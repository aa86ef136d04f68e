//! Detects another process with the identity of this server.

use std::time::Duration;

use api::{Address, PortError};
use tokio::time::Instant;

use super::PresenceConfig;
use crate::endpoint_record::record_address;
use crate::identity::{IdentityLease, ServerId};
use crate::ports::{LeaseStorage, RecordStorage};

/// How often a lease of another process is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A record that exists this long after its time to live is being renewed.
const RECORD_TTL_MARGIN: Duration = Duration::from_secs(2);

/// Another live process has the identity of this server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another API server with the identity {server} is running at {address}: identities are made from host names, and servers \
     on hosts of one name must be told apart with --hostname-override"
)]
pub struct DuplicateIdentityError {
    /// The shared identity.
    pub server: ServerId,
    /// Where the other process listens.
    pub address: Address,
}

/// Removes the lease of a former process of this server, unless its holder is alive at another address.
///
/// Takes no longer than the time to live of an endpoint record, and that only if there is one with another address. A failure
/// of storage does not prevent the start.
pub async fn claim_identity(
    config: &PresenceConfig,
    leases: &dyn LeaseStorage,
    records: &dyn RecordStorage,
) -> Result<(), DuplicateIdentityError> {
    let deadline = Instant::now() + config.timings.record_ttl + RECORD_TTL_MARGIN;
    let mut first_renewal = None;
    loop {
        let is_over = Instant::now() >= deadline;
        match check_claim(config, leases, records).await {
            Ok(ClaimState::Free) => return Ok(()),
            Ok(ClaimState::Changing) if !is_over => {}
            Ok(ClaimState::HeldElsewhere { lease, address }) => {
                let renewal = (lease.holder, lease.renew_time);
                let is_renewed = *first_renewal.get_or_insert_with(|| renewal.clone()) != renewal;
                if is_renewed || is_over {
                    return Err(DuplicateIdentityError { server: config.server.clone(), address });
                }
            }
            Ok(ClaimState::Changing) | Err(_) => return Ok(()),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The result of one check.
pub(super) enum ClaimState {
    /// No other process holds the lease.
    Free,
    /// The lease changed during the check.
    Changing,
    /// Another process holds the lease and has a record with another address.
    HeldElsewhere {
        /// The lease of the other process.
        lease: IdentityLease,
        /// Where the other process listens.
        address: Address,
    },
}

/// Checks once, and removes a lease whose holder cannot be alive.
pub(super) async fn check_claim(
    config: &PresenceConfig,
    leases: &dyn LeaseStorage,
    records: &dyn RecordStorage,
) -> Result<ClaimState, PortError> {
    let checking = check_claim_without_timeout(config, leases, records);
    let late = || Err(PortError::Unavailable { reason: "it took too long".to_owned() });
    let claim_state = tokio::time::timeout(config.timings.request_timeout, checking).await.unwrap_or_else(|_| late());
    if let Err(error) = &claim_state {
        tracing::warn!(server = %config.server, %error, "failed to look for the lease of a former process");
    }
    claim_state
}

async fn check_claim_without_timeout(
    config: &PresenceConfig,
    leases: &dyn LeaseStorage,
    records: &dyn RecordStorage,
) -> Result<ClaimState, PortError> {
    let server = &config.server;
    let Some(lease) = leases.get(server).await? else { return Ok(ClaimState::Free) };
    let lease = IdentityLease::from_lease_unchecked(server, &lease);
    if lease.holder == config.holder {
        return Ok(ClaimState::Free);
    }
    let record = records.get(server).await?;
    let address = record.and_then(|record| record_address(server, &record).ok());
    // No other process can listen at our address, so a record with it is from a former process of this server.
    if let Some(address) = address.filter(|address| *address != config.address) {
        return Ok(ClaimState::HeldElsewhere { lease, address });
    }
    match leases.delete(&lease).await {
        Ok(()) | Err(PortError::NotFound) => {
            tracing::info!(%server, holder = %lease.holder, "removed the lease of a former process");
            Ok(ClaimState::Free)
        }
        Err(PortError::Conflict) => Ok(ClaimState::Changing),
        Err(error) => Err(error),
    }
}
