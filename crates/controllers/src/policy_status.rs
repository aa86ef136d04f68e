//! The controller of the status of validating admission policies: type-checks their expressions and reports mistakes.
//!
//! Like kube-controller-manager's controller it applies the status as its own field manager, once per generation, so that
//! both can run beside each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::policy::{CheckedTypes, checked_resources, param_kind, type_check, type_in_document};
use api::json::JsonObject;
use api::{GroupVersion, GroupVersionKind, GroupVersionResource};
use k8s_cel::DeclType;
use object::unstructured::integer;
use serde_json::{Value, json};
use tasks::Backoff;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ApiClient, ApiError};
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, run_informer};
use crate::metrics::QueueGauges;
use crate::work_queue::{WorkQueue, WorkResult};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
/// The name that kube-controller-manager's controller has.
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";
/// The backoff of a policy whose status cannot be written.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
/// Informer events that may be queued.
const EVENTS_MAX: usize = 256;

/// The configuration of the controller.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) client: ApiClient,
    pub(crate) gauges: QueueGauges,
    pub(crate) gates: kinds::FeatureGates,
}

/// Keeps the status of all policies, until the future is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let scope = InformerScope { path: POLICIES.to_owned(), query: "", detail: ObjectDetail::Metadata };
    let informer = run_informer(config.client.clone(), scope, EventSink { id: (), events: sender });
    tokio::pin!(informer);
    let mut queue: WorkQueue<Arc<str>> = WorkQueue::new(BACKOFF);
    loop {
        while let Some(name) = queue.pop(Instant::now()) {
            let result = match process(&config, &name).await {
                Ok(()) => WorkResult::Done,
                Err(error) => {
                    tracing::debug!(%name, %error, "failed to write the status of a policy, will retry");
                    WorkResult::Failed
                }
            };
            queue.finish(&name, result, Instant::now());
        }
        config.gauges.set(queue.len(), queue.oldest_since());
        let due = queue.next_due();
        tokio::select! {
            () = &mut informer => {}
            Some(((), event)) = events.recv() => match event {
                InformerEvent::Applied(seen) => queue.add(&seen.metadata.name, Instant::now()),
                InformerEvent::Unavailable(error) => tracing::warn!(%error, "failed to watch policies, will retry"),
                InformerEvent::Deleted(_) | InformerEvent::Listed(_) => {}
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

async fn process(config: &Config, name: &str) -> Result<(), ApiError> {
    let path = format!("{POLICIES}/{name}");
    let policy = match config.client.get(&path, "application/json").await {
        Ok(response) => parse(&response.body)?,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    };
    let Value::Object(policy) = policy else { return Ok(()) };
    let generation = integer(&policy, &["metadata", "generation"]).unwrap_or_default();
    if generation <= integer(&policy, &["status", "observedGeneration"]).unwrap_or_default() {
        return Ok(());
    }
    let types = read_types(config, &policy).await?;
    let release = k8s_cel::Release(config.gates.release().minor());
    let warnings: Vec<Value> = type_check(&policy, &types, release)
        .into_iter()
        .map(|warning| json!({"fieldRef": warning.field, "warning": warning.warning}))
        .collect();
    let type_checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    let status = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "status": {"observedGeneration": generation, "typeChecking": type_checking},
    });
    let path = format!("{path}/status?fieldManager={FIELD_MANAGER}&force=true");
    match config.client.apply(&path, &status).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::InvalidResponse(error.to_string()))
}

/// Discovery and OpenAPI documents of the group versions that a policy names.
#[derive(Default)]
struct Documents {
    resources: HashMap<GroupVersion, Value>,
    schemas: HashMap<GroupVersion, Value>,
}

async fn read_types(config: &Config, policy: &JsonObject) -> Result<Documents, ApiError> {
    let mut documents = Documents::default();
    let named = checked_resources(policy).into_iter().map(|resource| resource.borrowed().group_version().owned());
    let of_params = param_kind(policy).map(|kind| kind.borrowed().group_version().owned());
    for group_version in named.chain(of_params) {
        if documents.resources.contains_key(&group_version) {
            continue;
        }
        let path = match &*group_version.group {
            "" => format!("api/{}", group_version.version),
            _ => format!("apis/{group_version}"),
        };
        let resources = read_if_served(&config.client, &format!("/{path}")).await?;
        let schemas = read_if_served(&config.client, &format!("/openapi/v3/{path}")).await?;
        documents.resources.insert(group_version.clone(), resources);
        documents.schemas.insert(group_version, schemas);
    }
    Ok(documents)
}

/// Null if the path is not served: what is not known is not checked.
async fn read_if_served(client: &ApiClient, path: &str) -> Result<Value, ApiError> {
    match client.get(path, "application/json").await {
        Ok(response) => parse(&response.body),
        Err(error) if error.is_not_found() => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

impl CheckedTypes for Documents {
    fn kind_of(&self, resource: GroupVersionResource<&str>) -> Option<GroupVersionKind> {
        let group_version = resource.group_version();
        let listed = self.resources.get(&group_version.owned())?["resources"].as_array()?;
        let found = listed.iter().find(|listed| listed["name"] == resource.resource)?;
        Some(group_version.with_kind(found["kind"].as_str()?).owned())
    }

    fn type_of(&self, kind: GroupVersionKind<&str>) -> Option<DeclType> {
        type_in_document(self.schemas.get(&kind.group_version().owned())?, kind)
    }
}
