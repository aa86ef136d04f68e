//! The task that writes the union of others into roles that aggregate, for whoever reads the object.
//!
//! Decisions do not wait for it: the index has the union already. Every server writes the same one, so it does not matter
//! which of them is first; the others find nothing left to do.

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

/// Roles often change together; they are waited for so long before the union is written.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// The pause before another try when storage does not take a write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

const CLUSTER_ROLES: GroupVersionResource<&str> =
    GroupVersionResource { group: RBAC_GROUP, version: "v1", resource: "clusterroles" };

/// The roles whose stored rules are not the union, with the rules to write.
pub(super) type OutdatedAggregates = Vec<(Arc<str>, Vec<PolicyRule>)>;

/// Keeps stored aggregates in step with what they are the union of.
pub struct AggregatedRoleWriter {
    server: Arc<ApiServer>,
    outdated_aggregates: watch::Receiver<OutdatedAggregates>,
}

impl AggregatedRoleWriter {
    pub(super) fn new(server: Arc<ApiServer>, outdated: watch::Receiver<OutdatedAggregates>) -> Self {
        Self { server, outdated_aggregates: outdated }
    }

    /// Writes until it is told to stop.
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
                    tracing::warn!(%name, error = error.message, "an aggregated role cannot be written; trying again");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
            // What was written comes back by watch and empties the list. Until then, or if a write failed, there is a pause.
            let _ = tokio::time::timeout(RETRY_DELAY, self.outdated_aggregates.changed()).await;
        }
    }
}

/// The role with these rules; `None` if it has them, or is gone, or no longer aggregates.
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
