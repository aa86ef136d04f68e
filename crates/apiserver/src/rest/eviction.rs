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
use crate::object_codec;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::resource::Resource;
use crate::{error_status, json_response};

const EVICTION_VIOLATES_BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
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
    let eviction = context.admit_unstored(EVICTION_KIND, eviction, &write_options).await?;
    let mut options = delete_options(&eviction).map_err(|rejection| context.rejection_status(rejection, name))?;
    options.is_dry_run |= write_options.is_dry_run;
    context.consume_disruption_budget(&options).await?;
    delete_object(context, context.object_key(name), name, &options).await?;
    let mut response = json_response(error_status::created_status().to_json());
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

impl RequestContext<'_> {
    /// Consumes a disruption from the pod's budget, or returns the refusal. Without a budget the eviction is allowed.
    async fn consume_disruption_budget(self, options: &DeleteOptions) -> Result<(), Status> {
        let registry = &self.server.registry;
        let found =
            registry.get(&self.resource.cache, &self.object_key(&self.target.name), ReadConsistency::Latest).await;
        let found = found.map_err(error_status::status_for_read_error)?.ok_or_else(|| self.not_found())?;
        let CachedValue::Object(stored) = &found.value else { return Err(self.not_found()) };
        let pod = object_codec::decode_served(stored, self.resource)?;
        let Some(budgets) =
            self.server.resolve(DISRUPTION_BUDGETS).filter(|_| !disruption_budget::needs_no_budget(&pod))
        else {
            return Ok(());
        };
        match &*self.find_budgets(&budgets, &pod).await? {
            [] => Ok(()),
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
    ) -> Result<(), Status> {
        let decide = |current: Option<&StoredObject>| {
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
                Some(_) | None => Ok(WriteDecision::Keep),
            }
        };
        self.persist(budgets, key, &[], decide).await.map(drop).map_err(error_status::status_for_write_error)
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
    use super::*;

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
