//! The task that writes the union of others into roles that aggregate, for whoever reads the object.
//!
//! Decisions do not wait for it: the index has the union already. Every server writes the same one, so it does not matter
//! which of them is first; the others find nothing left to do.

use std::sync::Arc;
use std::time::Duration;

use access::rbac::{GROUP, PolicyRule, Role};
use api::{GroupVersionResource, Status};
use object::Stored;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ApiServer;
use crate::forms::{self, Object};

/// Roles often change together; they are waited for so long before the union is written.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// The pause before another try when storage does not take a write.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

const CLUSTER_ROLES: GroupVersionResource<&str> =
    GroupVersionResource { group: GROUP, version: "v1", resource: "clusterroles" };

/// The roles whose stored rules are not the union, with the rules to write.
pub(super) type Outdated = Vec<(Arc<str>, Vec<PolicyRule>)>;

/// Keeps stored aggregates in step with what they are the union of.
pub struct Aggregation {
    server: Arc<ApiServer>,
    outdated: watch::Receiver<Outdated>,
}

impl Aggregation {
    pub(super) fn new(server: Arc<ApiServer>, outdated: watch::Receiver<Outdated>) -> Self {
        Self { server, outdated }
    }

    /// Writes until it is told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.keep_up()).await;
        stop.cancelled().await;
    }

    async fn keep_up(&mut self) {
        while self.outdated.wait_for(|outdated| !outdated.is_empty()).await.is_ok() {
            tokio::time::sleep(SETTLE_TIME).await;
            let outdated = self.outdated.borrow_and_update().clone();
            for (name, rules) in &outdated {
                let written = self.server.put_system(CLUSTER_ROLES, name, |current| with_rules(current, rules)).await;
                if let Err(error) = written {
                    tracing::warn!(%name, error = error.message, "an aggregated role cannot be written; trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
            // What was written comes back by watch and empties the list. Until then, or if a write failed, there is a pause.
            let _ = tokio::time::timeout(RETRY_PAUSE, self.outdated.changed()).await;
        }
    }
}

/// The role with these rules; `None` if it has them, or is gone, or no longer aggregates.
fn with_rules(current: Option<&Stored>, rules: &[PolicyRule]) -> Result<Option<Object>, Status> {
    let Some(stored) = current else { return Ok(None) };
    let Ok(role) = serde_json::from_slice::<Role>(&stored.body) else { return Ok(None) };
    if role.aggregation_rule.is_none() || role.rules == rules {
        return Ok(None);
    }
    let mut object = forms::stored_object(stored);
    let rules = serde_json::to_value(rules).expect("rules are plain data");
    object.insert("rules".to_owned(), rules);
    Ok(Some(object))
}
