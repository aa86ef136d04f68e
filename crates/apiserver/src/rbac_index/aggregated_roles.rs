//! The task that stores the aggregated rules of ClusterRoles with an `aggregationRule`, for clients that read the
//! objects.
//!
//! Authorization does not depend on it: the index aggregates the rules itself. All servers compute the same rules, so
//! the first one writes them and the others find nothing to do.

use std::sync::Arc;
use std::time::Duration;

use access::rbac::{PolicyRule, RBAC_GROUP, Role};
use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use object::StoredObject;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ApiServer;
use crate::object_codec;

/// The delay before writing, because roles often change together.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

const CLUSTER_ROLES: GroupVersionResource<&str> =
    GroupVersionResource { group: RBAC_GROUP, version: "v1", resource: "clusterroles" };

/// The roles whose stored rules are outdated, with the rules to write.
pub(super) type OutdatedAggregates = Vec<(Arc<str>, Vec<PolicyRule>)>;

/// Writes the rules of aggregated ClusterRoles whenever the roles that they aggregate change.
pub struct AggregatedRoleWriter {
    server: Arc<ApiServer>,
    outdated_aggregates: watch::Receiver<OutdatedAggregates>,
}

impl AggregatedRoleWriter {
    pub(super) fn new(server: Arc<ApiServer>, outdated: watch::Receiver<OutdatedAggregates>) -> Self {
        Self { server, outdated_aggregates: outdated }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.write_outdated()).await;
        stop.cancelled().await;
    }

    async fn write_outdated(&mut self) {
        while self.outdated_aggregates.wait_for(|outdated| !outdated.is_empty()).await.is_ok() {
            tokio::time::sleep(DEBOUNCE_INTERVAL).await;
            let outdated = self.outdated_aggregates.borrow_and_update().clone();
            for (name, rules) in &outdated {
                let written =
                    self.server.write_system_object(CLUSTER_ROLES, name, |current| replace_rules(current, rules)).await;
                if let Err(error) = written {
                    tracing::warn!(%name, error = error.message, "aggregated role write failed; will retry");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
            // The watch delivers the writes and empties the list. The timeout retries failed writes.
            let _ = tokio::time::timeout(RETRY_DELAY, self.outdated_aggregates.changed()).await;
        }
    }
}

/// The role with these rules; `None` if it has them, was deleted, or no longer aggregates.
fn replace_rules(current: Option<&StoredObject>, rules: &[PolicyRule]) -> Result<Option<JsonObject>, Status> {
    let Some(stored) = current else { return Ok(None) };
    let Ok(role) = serde_json::from_slice::<Role>(&stored.body) else { return Ok(None) };
    if role.aggregation_rule.is_none() || role.rules == rules {
        return Ok(None);
    }
    let mut object = object_codec::decode_stored(stored);
    let rules = serde_json::to_value(rules).expect("rules are plain data");
    object.insert("rules".to_owned(), rules);
    Ok(Some(object))
}
