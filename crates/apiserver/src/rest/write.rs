//! The sequence of a write, the same for create, update, patch and the writable subresources.
//!
//! A handler decodes the request; then, on the newest state of the object, [`ObjectWrite::decide`] runs the steps in
//! order: the requested state, managed fields, mutating admission, rules of metadata and status, validation, validating
//! admission, encoding in the storage version. The registry runs the decision again after a conflict, so it has no side
//! effects, and time, uid and random numbers are chosen once per request.

mod checks;
mod steps;

use api::Status;
use api::json::JsonObject;
use api::time::Time;
use edge::Response;
use http::StatusCode;
use http::header::{HeaderValue, WARNING};
use object::StoredObject;
use object::managed_fields::{self, FieldManager};
use object::table::ColumnDefinitions;
use registry::{WriteDecision, WriteError, WriteOutcome};
use store::Compare;

use super::{RequestContext, current_time};
use crate::object_codec;
use crate::request_options::WriteOptions;
use crate::{error_status, json_response};

/// A write of one request: what does not depend on the stored object.
pub(super) struct ObjectWrite<'a> {
    pub(super) context: RequestContext<'a>,
    pub(super) options: &'a WriteOptions,
    api_version: String,
    now: Time,
    uid: String,
    /// Chooses the suffix of a generated name.
    random: u64,
}

/// What a write makes of the stored object.
struct LiveObject<'a> {
    object: &'a JsonObject,
    /// Whether it is stored in another version than the current one. It is then stored again even if nothing changes,
    /// which migration relies on.
    is_outdated: bool,
}

impl<'a> ObjectWrite<'a> {
    pub(super) fn new(context: RequestContext<'a>, options: &'a WriteOptions) -> Self {
        let api_version = context.target.group_version().to_string();
        Self { context, options, api_version, now: current_time(), uid: new_uid(), random: fastrand::u64(..) }
    }

    /// The same write with another generated name.
    pub(super) fn with_new_name(self) -> Self {
        Self { random: fastrand::u64(..), ..self }
    }

    /// Creates an object, unless one with its name exists.
    pub(super) async fn create(
        &self,
        object: &JsonObject,
        conditions: &[Compare],
    ) -> Result<StoredObject, CreateError> {
        let name = self.name_of_new(object);
        let mut is_taken = false;
        let decide = |current: Option<&StoredObject>| {
            let decision = self.decide(None, object.clone())?;
            is_taken = current.is_some();
            match current {
                None => Ok(decision),
                Some(_) => Err(Status::already_exists(self.context.target.group_resource(), &name)),
            }
        };
        match self.commit(&name, conditions, decide).await {
            Ok((_, stored)) => Ok(stored),
            Err(WriteError::ConditionChanged { .. }) if !self.context.execution.is_definition_changed() => {
                Err(CreateError::NamespaceChanged)
            }
            Err(WriteError::Refused(_)) if is_taken => Err(CreateError::NameTaken { name }),
            Err(error) => Err(CreateError::Rejected(error_status::status_for_write_error(error))),
        }
    }

    /// Writes the object that `next` makes of the current one, in the version of the request. The status is 201 if there
    /// was no object before.
    pub(super) async fn update(
        &self,
        conditions: &[Compare],
        mut next: impl FnMut(Option<&JsonObject>) -> Result<JsonObject, Status>,
    ) -> Result<(StatusCode, StoredObject), Status> {
        let resource = self.context.resource;
        let decide = |current: Option<&StoredObject>| {
            let live = current.map(|stored| object_codec::decode_served(stored, resource));
            let is_outdated = current.is_some_and(|stored| !resource.is_stored_in_current_version(stored));
            let requested = next(live.as_ref())?;
            match &live {
                Some(object) => self.decide(Some(LiveObject { object, is_outdated }), requested),
                None => {
                    let decision = self.decide(None, requested)?;
                    self.context.authorize_create()?;
                    Ok(decision)
                }
            }
        };
        let written = self.commit(&self.context.target.name, conditions, decide).await;
        written.map_err(error_status::status_for_write_error)
    }

    /// Decides a write on the current state: all steps between the request and the store.
    fn decide(&self, live: Option<LiveObject<'_>>, requested: JsonObject) -> Result<WriteDecision, Status> {
        let mut new = requested;
        let Some(LiveObject { object: old, is_outdated }) = live else {
            self.check_escalation(None, &new)?;
            self.prepare_create(&mut new)?;
            managed_fields::record_update(&JsonObject::new(), &mut new, &self.field_manager());
            self.validate_create(&new)?;
            return Ok(self.put(new));
        };
        self.complete_update(old, &mut new);
        self.check_escalation(Some(old), &new)?;
        self.check_signer(old, &new)?;
        self.prepare_update(old, &mut new)?;
        self.validate_update(old, &new)?;
        managed_fields::record_update(old, &mut new, &self.field_manager());
        if (self.context.resource.strategy().is_removed_by_update)(old, &new) {
            return Ok(WriteDecision::Delete);
        }
        if object::metadata::is_no_op(old, &new) && !is_outdated {
            return Ok(WriteDecision::Keep);
        }
        Ok(self.put(new))
    }

    /// Stores an object in the storage version.
    fn put(&self, object: JsonObject) -> WriteDecision {
        let resource = self.context.resource;
        WriteDecision::Put { value: object_codec::encode_for_storage(object, resource), ttl: resource.rules().ttl }
    }

    /// Commits what `decide` decides on the newest state; a dry run commits nothing. The object is the one that the
    /// response shows.
    async fn commit(
        &self,
        name: &str,
        conditions: &[Compare],
        mut decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, Status>,
    ) -> Result<(StatusCode, StoredObject), WriteError<Status>> {
        let context = self.context;
        let mut dry_run_decision = None;
        let mut stored_before = None;
        let decide = |current: Option<&StoredObject>| {
            let decision = decide(current)?;
            stored_before = current.cloned();
            if self.options.is_dry_run {
                dry_run_decision = Some(decision);
                return Ok(WriteDecision::Keep);
            }
            Ok(decision)
        };
        let written = context.persist(context.resource, &context.object_key(name), conditions, decide).await?;
        let code = if stored_before.is_none() { StatusCode::CREATED } else { StatusCode::OK };
        let stored = match (written, dry_run_decision) {
            (WriteOutcome::Put(stored), _) => stored,
            (_, Some(WriteDecision::Put { value, .. })) => {
                let revision = stored_before.as_ref().map_or(0, |stored| stored.revision);
                StoredObject::from_storage(&value, revision).expect("the value was just encoded")
            }
            // The update removed the last finalizer, or changed nothing: respond with the previous state.
            (WriteOutcome::Deleted(_) | WriteOutcome::Unchanged, _) => {
                stored_before.ok_or_else(|| WriteError::Refused(context.not_found()))?
            }
        };
        Ok((code, stored))
    }

    fn field_manager(&self) -> FieldManager<'_> {
        FieldManager {
            name: &self.options.field_manager,
            api_version: &self.api_version,
            subresource: &self.context.target.subresource,
            now: self.now,
        }
    }
}

/// Why an object was not created.
pub(super) enum CreateError {
    NameTaken {
        name: String,
    },
    /// The namespace changed after it was checked.
    NamespaceChanged,
    Rejected(Status),
}

impl RequestContext<'_> {
    pub(super) fn object_response(self, code: StatusCode, stored: &StoredObject) -> Response {
        let encoded = self.representation.encode_object(stored, self.resource, ColumnDefinitions::Included);
        let mut response = json_response(encoded);
        *response.status_mut() = code;
        response
    }
}

/// Adds a `Warning` header per warning.
pub(crate) fn with_warnings(mut response: Response, warnings: &[impl AsRef<str>]) -> Response {
    for warning in warnings {
        let text = warning.as_ref().replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{text}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// A random (version 4) UUID.
pub(crate) fn new_uid() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
