//! The subresource `pods/binding`: assigns a pod to a node.

use api::json::JsonObject;
use api::time::Time;
use api::{GroupResource, GroupVersionKind, Status};
use edge::Response;
use http::StatusCode;
use kinds::FeatureGates;
use kinds::pod::binding;
use object::unstructured::text;
use object::{StoredObject, decode};
use registry::WriteDecision;
use serde_json::Value;

use super::BufferedRequest;
use super::apply::unclassified;
use super::{RequestContext, current_time, with_warnings};
use crate::built_in_types::CheckedObject;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::{error_status, object_codec};

/// The resource in conflict messages.
const BINDING_RESOURCE: GroupResource<&str> = GroupResource { group: "", resource: "pods/binding" };
const BINDING_KIND: GroupVersionKind<&str> = GroupVersionKind { group: "", version: "v1", kind: "Binding" };

pub(super) async fn create_binding(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let name = &*context.target.name;
    let options = WriteOptions::from_request(&request)?;
    let expected = ExpectedBody {
        kind: BINDING_KIND,
        release: context.server.served_resources.release(),
        custom: None,
        status_context: context.status_context(name),
    };
    let CheckedObject { object: mut binding_object, warnings } =
        request_body::read_object(request, context.record, &expected)?;
    decode::ensure_namespace_matches(&mut binding_object, context.namespace())
        .map_err(|rejection| context.rejection_status(rejection, name))?;
    let name_in_body = binding_object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    if name_in_body != Some(name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let binding_object = context.admit_unstored(BINDING_KIND, binding_object, &options, |_| {}).await?;
    binding::validate_binding(&binding_object).map_err(|error| unclassified(error.to_string()))?;
    let decide = |current: Option<&StoredObject>| {
        let current = current.ok_or_else(|| context.not_found())?;
        let pod = object_codec::decode_served(current, context.resource)?;
        let bound_pod = bind_pod(&pod, &binding_object, &context.server.feature_gates, current_time())?;
        if options.is_dry_run {
            return Ok(WriteDecision::Keep);
        }
        Ok(WriteDecision::Put { value: object_codec::encode_for_storage(bound_pod, context.resource)?, ttl: None })
    };
    let written = context.persist(context.resource, &context.object_key(name), &[], decide).await;
    written.map_err(error_status::status_for_write_error)?;
    let mut response = context.representation.status_response(&error_status::created_status());
    *response.status_mut() = StatusCode::CREATED;
    Ok(with_warnings(response, &warnings))
}

fn bind_pod(
    pod: &JsonObject,
    binding_object: &JsonObject,
    gates: &FeatureGates,
    now: Time,
) -> Result<JsonObject, Status> {
    binding::bind_pod(pod, binding_object, gates, now)
        .map_err(|reason| Status::conflict(BINDING_RESOURCE, text(pod, &["metadata", "name"]), reason))
}

#[cfg(test)]
mod tests {
    use kinds::Release;
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[track_caller]
    fn check_bind(pod: &Value, binding: &Value, expected: &str) {
        let now = "2026-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().into();
        let binding = object(binding);
        let found = match binding::validate_binding(&binding)
            .map_err(|error| unclassified(error.to_string()))
            .and_then(|()| bind_pod(&object(pod), &binding, &FeatureGates::new(Release::R36), now))
        {
            Ok(next) => Value::Object(next).to_string(),
            Err(status) => format!("{} {}", status.http_code(), status.message),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn bind_pod_rejects_bound_deleted_and_mismatched_pods() {
        let metadata = json!({"annotations": {"a": "b"}, "labels": {"topology.kubernetes.io/zone": "z"}});
        let to_n1 = json!({"target": {"kind": "Node", "name": "n1"}, "metadata": metadata});
        check_bind(
            &json!({"metadata": {"name": "p"}, "spec": {}, "status": {"nominatedNodeName": "n2"}}),
            &to_n1,
            r#"{"metadata":{"annotations":{"a":"b"},"labels":{"topology.kubernetes.io/zone":"z"},"name":"p"},"spec":{"nodeName":"n1"},"status":{"conditions":[{"lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z","status":"True","type":"PodScheduled"}]}}"#,
        );
        let conflict = "409 Operation cannot be fulfilled on pods/binding \"p\": ";
        check_bind(
            &json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n2"}}),
            &to_n1,
            &format!("{conflict}pod p is already assigned to node \"n2\""),
        );
        check_bind(
            &json!({"metadata": {"name": "p", "deletionTimestamp": "x"}}),
            &to_n1,
            &format!("{conflict}pod p is being deleted, cannot be assigned to a host"),
        );
        check_bind(
            &json!({"metadata": {"name": "p", "uid": "1"}}),
            &json!({"target": {"name": "n1"}, "metadata": {"uid": "2"}}),
            &format!("{conflict}Precondition failed: UID in precondition: 2, UID in object meta: 1"),
        );
        check_bind(
            &json!({"metadata": {"name": "p"}}),
            &json!({"target": {"kind": "Pod", "name": "n1"}}),
            "500 target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
        );
    }
}
