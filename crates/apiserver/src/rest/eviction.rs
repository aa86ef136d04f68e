//! The subresource `pods/eviction`: deletes a pod if its PodDisruptionBudget allows it.

use api::json::JsonObject;
use api::{GroupResource, GroupVersionKind, GroupVersionResource, Status};
use edge::Response;
use http::StatusCode;
use kinds::pod_disruption_budget::{self as disruption_budget, EvictionRefusal};
use object::delete::DeleteOptions;
use object::{StoredObject, decode, unstructured};
use registry::read::ReadConsistency;
use registry::{CachedValue, ListSelection, WriteDecision};
use serde_json::Value;
use store::Key;

use super::BufferedRequest;
use super::delete::delete_object;
use super::write::record_status_of_server;
use super::{RequestContext, current_time, with_warnings};
use crate::built_in_types::CheckedObject;
use crate::error_status;
use crate::object_codec;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::resource::Resource;

const EVICTION_VIOLATES_BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// How often a pod that needs no budget is judged again because it changed.
const EVICTION_ROUNDS_MAX: usize = 8;
const EVICTION_KIND: GroupVersionKind<&str> = GroupVersionKind { group: "policy", version: "v1", kind: "Eviction" };
const DISRUPTION_BUDGETS: GroupVersionResource<&str> =
    GroupVersionResource { group: "policy", version: "v1", resource: "poddisruptionbudgets" };

pub(super) async fn create_eviction(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let name = &*context.target.name;
    let write_options = WriteOptions::from_request(&request)?;
    let status_context = context.status_context(name);
    let expected = ExpectedBody {
        kind: EVICTION_KIND,
        release: context.server.served_resources.release(),
        custom: None,
        status_context,
    };
    let CheckedObject { object: mut eviction, warnings } =
        request_body::read_object(request, context.record, &expected)?;
    decode::ensure_namespace_matches(&mut eviction, context.namespace())
        .map_err(|rejection| context.rejection_status(rejection, name))?;
    if unstructured::metadata_string(&eviction, "name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let eviction = context.admit_unstored(EVICTION_KIND, eviction, &write_options, |_| {}).await?;
    let mut options = delete_options(&eviction).map_err(|rejection| context.rejection_status(rejection, name))?;
    options.is_dry_run |= write_options.is_dry_run;
    context.evict(&options).await?;
    let mut response = context.representation.status_response(&error_status::created_status());
    *response.status_mut() = StatusCode::CREATED;
    Ok(with_warnings(response, &warnings))
}

fn delete_options(eviction: &JsonObject) -> Result<DeleteOptions, object::Rejection> {
    // The kind of options within another object has no meaning.
    let mut options = eviction.get("deleteOptions").and_then(Value::as_object).cloned().unwrap_or_default();
    options.retain(|field, _| field != "kind" && field != "apiVersion");
    let body = (!options.is_empty()).then(|| Value::Object(options).to_string());
    DeleteOptions::parse(body.unwrap_or_default().as_bytes(), decode::BodyEncoding::Json, [])
}

/// Why a pod may be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Permission {
    /// No budget protects the pod, or one was charged, or it has ended.
    Given,
    /// The pod has no budget to consume in its present state, of this resourceVersion. It may become healthy at any time.
    WhileUnchanged(String),
}

impl Permission {
    /// The permission for a pod that needs no budget in its present state.
    fn of_exempt(pod: &JsonObject) -> Self {
        let is_terminating = unstructured::get(pod, &["metadata", "deletionTimestamp"]).is_some();
        if is_terminating || matches!(unstructured::text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
            return Self::Given;
        }
        Self::WhileUnchanged(unstructured::metadata_string(pod, "resourceVersion").to_owned())
    }
}

impl RequestContext<'_> {
    /// Deletes the pod if its budget permits it. A pod that changes after it was found exempt is judged again.
    async fn evict(self, options: &DeleteOptions) -> Result<(), Status> {
        let name = &*self.target.name;
        for _ in 0..EVICTION_ROUNDS_MAX {
            let mut bound = options.clone();
            match self.consume_disruption_budget(options).await? {
                Permission::WhileUnchanged(version) if bound.resource_version.is_none() => {
                    bound.resource_version = Some(version);
                }
                Permission::WhileUnchanged(_) | Permission::Given => {}
            }
            match delete_object(self, self.object_key(name), name, &bound).await {
                Err(status) if status.http_code() == 409 && bound != *options => {}
                deleted => return deleted.map(drop),
            }
        }
        let changed = "the pod changed during every attempt to evict it";
        Err(Status::conflict(self.target.group_resource(), name, changed.to_owned()))
    }

    /// Consumes a disruption from the pod's budget, or returns the refusal. Without a budget the eviction is allowed.
    async fn consume_disruption_budget(self, options: &DeleteOptions) -> Result<Permission, Status> {
        let registry = &self.server.registry;
        let found =
            registry.get(&self.resource.cache, &self.object_key(&self.target.name), ReadConsistency::Latest).await;
        let found = found.map_err(error_status::status_for_read_error)?.ok_or_else(|| self.not_found())?;
        let CachedValue::Object(stored) = &found.value else { return Err(self.not_found()) };
        let pod = object_codec::decode_served(stored, self.resource)?;
        if disruption_budget::needs_no_budget(&pod) {
            return Ok(Permission::of_exempt(&pod));
        }
        let Some(budgets) = self.server.resolve(DISRUPTION_BUDGETS) else { return Ok(Permission::Given) };
        match &*self.find_budgets(&budgets, &pod).await? {
            [] => Ok(Permission::Given),
            [key] => self.consume_from_budget(&budgets, key, &pod, options).await,
            [_, _, ..] => Err(error_status::status_for_ambiguous_budgets()),
        }
    }

    async fn find_budgets(self, budgets: &Resource, pod: &JsonObject) -> Result<Vec<Key>, Status> {
        let within = Key::from([budgets.cache.prefix().as_ref(), self.namespace().as_bytes(), b"/"].concat());
        let covers = |stored: &StoredObject| {
            object_codec::decode_served(stored, budgets)
                .is_ok_and(|budget| disruption_budget::budget_selects_pod(&budget, pod))
        };
        let selection = ListSelection { prefix: within, start_key: Key::new(), limit: None, filter: &covers };
        let page = self.server.registry.list(&budgets.cache, &selection, ReadConsistency::Latest).await;
        Ok(page.map_err(error_status::status_for_read_error)?.entries.iter().map(|cached| cached.key.clone()).collect())
    }

    async fn consume_from_budget(
        self,
        budgets: &Resource,
        key: &Key,
        pod: &JsonObject,
        options: &DeleteOptions,
    ) -> Result<Permission, Status> {
        let mut permission = Permission::Given;
        let decide = |current: Option<&StoredObject>| {
            permission = Permission::Given;
            // A budget that was deleted in between forbids nothing.
            let Some(current) = current else { return Ok(WriteDecision::Keep) };
            let budget = object_codec::decode_served(current, budgets)?;
            let consumed = disruption_budget::consume_disruption(&budget, pod, current_time());
            match consumed.map_err(|refusal| refusal_status(refusal, &current.name))? {
                Some(mut updated_budget) if !options.is_dry_run => {
                    record_status_of_server(budgets, &self.server.feature_gates, &budget, &mut updated_budget)?;
                    let value = object_codec::encode_for_storage(updated_budget, budgets)?;
                    Ok(WriteDecision::Put { value, ttl: None })
                }
                Some(_) => Ok(WriteDecision::Keep),
                None => {
                    permission = Permission::of_exempt(pod);
                    Ok(WriteDecision::Keep)
                }
            }
        };
        self.persist(budgets, key, &[], decide).await.map_err(error_status::status_for_write_error)?;
        Ok(permission)
    }
}

fn refusal_status(refusal: EvictionRefusal, budget: &str) -> Status {
    let refuse =
        |cause: String| Status::too_many_requests(EVICTION_VIOLATES_BUDGET, 0).with_cause("DisruptionBudget", cause);
    match refusal {
        EvictionRefusal::BudgetExhausted(reason) => refuse(reason),
        EvictionRefusal::BudgetNotObserved(reason) => refuse(reason).with_retry_after(10),
        EvictionRefusal::Forbidden(reason) => {
            Status::forbidden(GroupResource { group: "policy", resource: "poddisruptionbudget" }, budget, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_that_may_become_healthy_is_evicted_only_as_it_was_found() {
        for (metadata, phase, expected) in [
            (json!({"resourceVersion": "7"}), "Pending", Permission::WhileUnchanged("7".to_owned())),
            (json!({"resourceVersion": "7"}), "Running", Permission::WhileUnchanged("7".to_owned())),
            (json!({"resourceVersion": "7"}), "Failed", Permission::Given),
            (json!({"resourceVersion": "7", "deletionTimestamp": "x"}), "Pending", Permission::Given),
        ] {
            let Value::Object(pod) = json!({"metadata": metadata, "status": {"phase": phase}}) else { continue };
            assert_eq!(Permission::of_exempt(&pod), expected, "{phase}");
        }
    }

    #[test]
    fn eviction_refusal_has_the_status_of_kubernetes() {
        for (refusal, retry_after, expected) in [
            (
                EvictionRefusal::BudgetExhausted("why".to_owned()),
                None,
                "429 Cannot evict pod as it would violate the pod's disruption budget. [\"why\"]",
            ),
            (
                EvictionRefusal::BudgetNotObserved("why".to_owned()),
                Some(10),
                "429 Cannot evict pod as it would violate the pod's disruption budget. [\"why\"]",
            ),
            (EvictionRefusal::Forbidden("why"), None, "403 poddisruptionbudget.policy \"b\" is forbidden: why []"),
        ] {
            let status = refusal_status(refusal, "b");
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes: Vec<_> = causes.map(|cause| &cause.message).collect();
            assert_eq!(format!("{} {} {causes:?}", status.http_code(), status.message), expected);
            assert_eq!(status.retry_after().filter(|seconds| *seconds > 0), retry_after);
        }
    }
}
