//! The subresource `pods/binding`: a scheduler gives a pod its node.

use api::{GroupVersionKind, Status};
use edge::{Request, Response};
use http::StatusCode;
use object::Stored;
use registry::Decision;
use serde_json::Value;

use super::{Context, now, warned};
use crate::bodies::{self, Expected};
use crate::kinds::binding;
use crate::options::WriteOptions;
use crate::typed::Checked;
use crate::{faults, forms, json};

const KIND: GroupVersionKind<&str> = GroupVersionKind { group: "", version: "v1", kind: "Binding" };

pub(super) async fn create(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let name = &*context.asked.name;
    let options = WriteOptions::of(&request)?;
    let expected = Expected { kind: KIND, release: context.server.surface.release(), about: context.about(name) };
    let Checked { object: binding, warnings } = bodies::read(request, &expected).await?;
    let named = binding.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    if named != Some(name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    binding::check(&binding)?;
    let decide = |current: Option<&Stored>| {
        let current = current.ok_or_else(|| context.not_found())?;
        let pod = forms::object_of(current, context.resource.served);
        let bound = binding::bind(&pod, &binding, now())?;
        if options.dry_run {
            return Ok(Decision::Keep);
        }
        Ok(Decision::Put { value: forms::storage_bytes(bound, context.encoding()), ttl: None })
    };
    let written = context.persist(context.resource, &context.key_of(name), None, decide).await;
    written.map_err(faults::unwritten)?;
    let mut response = json(Status { outcome: api::status::Outcome::Success, ..Status::default() }.to_json().into());
    *response.status_mut() = StatusCode::CREATED;
    Ok(warned(response, &warnings))
}
