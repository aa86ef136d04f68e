//! Delete and deletecollection: removes an object, or marks it as terminating if it has finalizers or a grace period.

use ::admission::Operation;
use api::Status;
use api::json::JsonObject;
use edge::Response;
use http::StatusCode;
use object::delete::{self, DeleteOptions, DeleteOutcome};
use object::{Rejection, StoredObject};
use registry::read::ReadConsistency;
use registry::{CachedValue, ListPage, ListSelection, WriteDecision, WriteOutcome};
use store::Key;

use super::BufferedRequest;
use super::list::{list_metadata, list_response};
use super::object_selector::ObjectSelector;
use super::write::RequestedWrite;
use super::{RequestContext, current_time};
use crate::admission::AdmissionPhase;
use crate::request_options::{ListOptions, ReadVerb};
use crate::{error_status, object_codec, request_body};

pub(super) async fn delete(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let options = delete_options(context, request)?;
    let name = &*context.target.name;
    match delete_object(context, context.object_key(name), name, &options).await? {
        DeletedObject::Removed(deleted) if context.resource.strategy().returns_deleted_object => {
            context.object_response(StatusCode::OK, &deleted).await
        }
        DeletedObject::Removed(deleted) => {
            let status = Status::deleted(context.target.group_resource(), name, &deleted.uid);
            Ok(context.representation.status_response(&status))
        }
        DeletedObject::Terminating(stored) => context.object_response(StatusCode::OK, &stored).await,
    }
}

pub(super) async fn delete_collection(
    context: RequestContext<'_>,
    request: BufferedRequest,
) -> Result<Response, Status> {
    context.check_path_names()?;
    let list = ListOptions::parse(request.uri().query().unwrap_or_default(), ReadVerb::List)?;
    let options = delete_options(context, request)?;
    let object_selector = ObjectSelector::new(list.label_selector, list.field_selector, context.resource)?
        .with_name(&context.target.name);
    let within = context.key_prefix();
    let selection = ListSelection {
        prefix: within.clone(),
        start_key: Key::new(),
        limit: list.limit,
        filter: &|stored| object_selector.matches(stored),
    };
    let page = context.select_page(&selection, &object_selector, ReadConsistency::Latest).await?;
    let mut page = page.map_err(error_status::status_for_read_error)?;
    let metadata = list_metadata(&page, &within, object_selector.selects_all());
    let mut deleted = Vec::with_capacity(page.entries.len());
    for cached in std::mem::take(&mut page.entries) {
        let CachedValue::Object(stored) = &cached.value else { continue };
        match delete_object(context, cached.key.clone(), &stored.name, &options).await {
            Ok(DeletedObject::Removed(_) | DeletedObject::Terminating(_)) => deleted.push(cached),
            // Deleted concurrently.
            Err(status) if status.http_code() == 404 => {}
            Err(status) => return Err(status),
        }
    }
    list_response(context, &ListPage { entries: deleted, ..page }, &metadata, context.representation)
}

pub(super) enum DeletedObject {
    Removed(StoredObject),
    Terminating(StoredObject),
}

pub(super) async fn delete_object(
    context: RequestContext<'_>,
    key: Key,
    name: &str,
    options: &DeleteOptions,
) -> Result<DeletedObject, Status> {
    let not_found = || Status::not_found(context.target.group_resource(), name);
    let reject = |rejection: Rejection| context.rejection_status(rejection, name);
    let resource = context.resource;
    let (strategy, rules) = (resource.strategy(), resource.rules());
    (strategy.check_deletable)(name).map_err(reject)?;
    let options_object = context.server.admission.is_configured().then(|| options.to_object());
    let (operation, kind) = (Operation::Delete, resource.group_version_kind());
    let write = RequestedWrite { operation, kind, options: options_object.as_ref(), is_dry_run: options.is_dry_run };
    let admit = |object: &JsonObject| {
        // An eviction is admitted as such.
        if !context.target.subresource.is_empty() {
            return Ok(());
        }
        let old = Some(object);
        context.admit(AdmissionPhase::Mutating, &write, old, None, 0)?;
        context.admit(AdmissionPhase::Validating, &write, old, None, 0).map(drop)
    };
    let mut stored_before: Option<StoredObject> = None;
    let mut dry_run_decision = None;
    let now = current_time();
    let decide = |current: Option<&StoredObject>| {
        let current = current.ok_or_else(not_found)?;
        stored_before = Some(current.clone());
        let object = object_codec::decode_served(current, resource)?;
        let deletion = delete::decide_deletion(&object, options, rules, now).map_err(reject)?;
        let deletion = (strategy.adjust_deletion)(&object, deletion, now);
        let decision = match deletion {
            DeleteOutcome::Remove(_) => {
                admit(&object)?;
                if !options.is_dry_run {
                    context.release_allocations(&object)?;
                }
                WriteDecision::Delete
            }
            DeleteOutcome::Pending => WriteDecision::Keep,
            DeleteOutcome::Mark(marked) if marked == object => WriteDecision::Keep,
            DeleteOutcome::Mark(marked) => {
                admit(&object)?;
                WriteDecision::Put { value: object_codec::encode_for_storage(marked, resource)?, ttl: rules.ttl }
            }
        };
        if options.is_dry_run {
            dry_run_decision = Some(decision);
            return Ok(WriteDecision::Keep);
        }
        Ok(decision)
    };
    let written = context.persist(resource, &key, &[], decide).await.map_err(error_status::status_for_write_error)?;
    let stored_before = stored_before.ok_or_else(not_found)?;
    Ok(match (written, dry_run_decision) {
        (WriteOutcome::Deleted(revision), _) => DeletedObject::Removed(stored_before.with_revision(revision.0)),
        (WriteOutcome::Put(stored), _) => DeletedObject::Terminating(stored),
        (_, Some(WriteDecision::Delete)) => DeletedObject::Removed(stored_before),
        (_, Some(WriteDecision::Put { value, .. })) => DeletedObject::Terminating(
            StoredObject::from_storage(&value, stored_before.revision).expect("the value was just encoded"),
        ),
        (WriteOutcome::Unchanged, _) => DeletedObject::Terminating(stored_before),
    })
}

fn delete_options(context: RequestContext<'_>, request: BufferedRequest) -> Result<DeleteOptions, Status> {
    let status_context = context.status_context(&context.target.name);
    let release = context.server.served_resources.release();
    request_body::read_delete_options(request, context.record, release, status_context)
}
