//! The sequence of a write, the same for create, update, patch and the writable subresources.
//!
//! A handler decodes the request; then, on the newest state of the object, [`ObjectWrite::decide`] runs the steps in
//! order: the requested state, managed fields, mutating admission, rules of metadata and status, allocation, validation,
//! validating admission, encoding in the storage version. The registry runs the decision again after a conflict, so it has no side
//! effects, and time, uid and random numbers are chosen once per request.

mod admission;
mod checks;
mod devices;
mod field_types;
mod steps;

pub(super) use admission::RequestedWrite;
pub(crate) use field_types::record_status_of_server;
pub(super) use field_types::{ResourceTypes, ScaleTypes};

use std::sync::atomic::{AtomicBool, Ordering};

use api::Status;
use api::json::JsonObject;
use api::time::Time;
use bytes::Bytes;
use edge::Response;
use http::StatusCode;
use managedfields::FieldManager;
use object::table::ColumnDefinitions;
use object::unstructured::{self, metadata_mut};
use object::{Rejection, StoredObject};
use registry::{WriteDecision, WriteError, WriteOutcome};
use store::Compare;

use super::{RequestContext, current_time};
use crate::admission::NamespaceFreshness;
use crate::error_status;
use crate::request_options::WriteOptions;
use crate::{built_in_types, object_codec};

/// How often a write that creates an object is decided again because its namespace changed.
const NAMESPACE_CHANGES_MAX: usize = 8;
/// How often a create is decided again because mutating admission gave the object another name. It sees the same object
/// each time, so that one that decides alike needs two attempts.
const NAME_CHANGES_MAX: usize = 4;

/// A write of one request: what does not depend on the stored object.
pub(super) struct ObjectWrite<'a> {
    pub(super) context: RequestContext<'a>,
    pub(super) options: &'a WriteOptions,
    api_version: String,
    now: Time,
    uid: String,
    /// Chooses the suffix of a generated name.
    random: u64,
    /// Whether an object that is too large for the store is stored without managed fields: not by an apply, which is
    /// about them.
    may_drop_managed_fields: bool,
    /// Set once the store refused the object with managed fields.
    drops_managed_fields: AtomicBool,
}

/// What a write does.
enum ObjectDecision {
    /// Stores these bytes.
    Put(Bytes),
    /// Removes an object with its last finalizer. The response shows the state that the update asks for, as it would be
    /// stored.
    Remove(Bytes),
    Keep,
}

/// A new object after mutating admission.
struct AdmittedObject {
    object: JsonObject,
    /// Admission may have changed the name that the request has.
    name: String,
    /// Refused last, where kube-apiserver writes.
    revision_check: Result<(), Rejection>,
}

/// The state that a request asks for.
pub(super) enum RequestedState {
    /// As the request has it. Its managed fields are to be recorded.
    Sent(JsonObject),
    /// With the managed fields after the request: those of an apply, or of a `Scale`.
    Recorded(JsonObject),
}

/// The stored object in the version of the request, with defaults.
struct LiveObject<'a> {
    object: &'a JsonObject,
    /// Whether it is stored in another version than the current one. It is then stored again even if nothing changes,
    /// which migration relies on.
    is_outdated: bool,
}

impl<'a> ObjectWrite<'a> {
    pub(super) fn new(context: RequestContext<'a>, options: &'a WriteOptions) -> Self {
        let api_version = context.target.group_version().to_string();
        Self {
            context,
            options,
            api_version,
            now: current_time(),
            uid: new_uid(),
            random: fastrand::u64(..),
            may_drop_managed_fields: true,
            drops_managed_fields: AtomicBool::new(false),
        }
    }

    /// The write of an apply.
    pub(super) fn of_apply(context: RequestContext<'a>, options: &'a WriteOptions) -> Self {
        Self { may_drop_managed_fields: false, ..Self::new(context, options) }
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
        let mut name = self.name_of_new(object);
        for _ in 0..NAME_CHANGES_MAX {
            match self.create_under(&name, object, conditions).await {
                Err(CreateError::Renamed { to }) => name = to,
                done => return done,
            }
        }
        let unstable = "admission gave the object another name in every attempt to create it";
        Err(CreateError::Rejected(Status::internal_error(unstable)))
    }

    /// Creates an object whose key has this name.
    async fn create_under(
        &self,
        name: &str,
        object: &JsonObject,
        conditions: &[Compare],
    ) -> Result<StoredObject, CreateError> {
        let (mut is_taken, mut is_terminating, mut renamed_to) = (false, false, None);
        let decide = |current: Option<&StoredObject>| {
            is_taken = false;
            renamed_to = None;
            self.context.execution.clear_warnings();
            let admitted = self.admit_new(RequestedState::Sent(object.clone()))?;
            // Webhooks and policies may choose another name: then the decision is made again for the key of that name.
            if admitted.name != name {
                renamed_to = Some(admitted.name);
                return Err(Status::internal_error("admission changed the name of the object"));
            }
            let decision = self.decide_create(admitted)?;
            if current.is_none() {
                return Ok(decision);
            }
            self.context.check_quotas_of_taken_name()?;
            is_taken = true;
            is_terminating = current.is_some_and(|stored| self.is_terminating(stored));
            Err(Status::already_exists(self.context.target.group_resource(), name))
        };
        let committed = self.commit(name, conditions, decide).await;
        match committed {
            Ok((_, stored)) => Ok(stored),
            Err(_) if renamed_to.is_some() => Err(CreateError::Renamed { to: renamed_to.unwrap_or_default() }),
            Err(WriteError::ConditionChanged { .. }) if !self.context.execution.is_definition_changed() => {
                Err(CreateError::NamespaceChanged)
            }
            Err(WriteError::Refused(_)) if is_taken => {
                Err(CreateError::NameTaken { name: name.to_owned(), is_terminating })
            }
            Err(error) => Err(CreateError::Rejected(error_status::status_for_write_error(error))),
        }
    }

    /// Writes the object that `next` makes of the current one, in the version of the request. The status is 201 if there
    /// was no object before.
    pub(super) async fn update(
        &self,
        conditions: &[Compare],
        next: impl FnMut(Option<&JsonObject>) -> Result<RequestedState, Status>,
    ) -> Result<(StatusCode, StoredObject), Status> {
        self.update_if(conditions, next).await.map_err(error_status::status_for_write_error)
    }

    /// Like [`Self::update`], where `next` may create an absent object: its namespace must be active.
    pub(super) async fn update_or_create(
        &self,
        mut next: impl FnMut(Option<&JsonObject>) -> Result<RequestedState, Status>,
    ) -> Result<(StatusCode, StoredObject), Status> {
        let context = self.context;
        let mut conditions = Vec::from_iter(context.require_active_namespace_if_absent().await?);
        for _ in 0..NAMESPACE_CHANGES_MAX {
            // The object may be deleted after it was found. It is then created only if its namespace is active.
            let mut is_unchecked = false;
            let needs_namespace = conditions.is_empty() && !context.namespace().is_empty();
            let checked = |current: Option<&JsonObject>| {
                is_unchecked = current.is_none() && needs_namespace;
                if is_unchecked { Err(context.not_found()) } else { next(current) }
            };
            let written = self.update_if(&conditions, checked).await;
            let is_namespace_changed = matches!(&written, Err(WriteError::ConditionChanged { .. }))
                && !context.execution.is_definition_changed();
            if !is_unchecked && !is_namespace_changed {
                return written.map_err(error_status::status_for_write_error);
            }
            conditions = Vec::from_iter(context.require_active_namespace(NamespaceFreshness::Latest).await?);
        }
        let busy = "the namespace changed during every attempt to write the object";
        Err(Status::service_unavailable(busy).with_retry_after(1))
    }

    async fn update_if(
        &self,
        conditions: &[Compare],
        mut next: impl FnMut(Option<&JsonObject>) -> Result<RequestedState, Status>,
    ) -> Result<(StatusCode, StoredObject), WriteError<Status>> {
        let resource = self.context.resource;
        let decide = |current: Option<&StoredObject>| {
            let live = current.map(|stored| self.read_live(stored)).transpose()?;
            let is_outdated = current.is_some_and(|stored| !resource.is_stored_in_current_version(stored));
            let requested = next(live.as_ref())?;
            self.decide(live.as_ref().map(|object| LiveObject { object, is_outdated }), requested)
        };
        self.commit(&self.context.target.name, conditions, decide).await
    }

    /// The stored object in the version of the request. An older release may have stored fewer defaults; kube-apiserver
    /// sets them on every object that it reads, and so no writer owns them.
    fn read_live(&self, stored: &StoredObject) -> Result<JsonObject, Status> {
        let resource = self.context.resource;
        let mut live = object_codec::decode_served(stored, resource)?;
        built_in_types::set_defaults(&mut live, &self.context.server.feature_gates, resource.group_version_kind());
        Ok(live)
    }

    fn is_terminating(&self, stored: &StoredObject) -> bool {
        let object = self.read_live(stored);
        object.is_ok_and(|object| unstructured::get(&object, &["metadata", "deletionTimestamp"]).is_some())
    }

    /// Decides a write on the current state: all steps between the request and the store.
    fn decide(&self, live: Option<LiveObject<'_>>, requested: RequestedState) -> Result<ObjectDecision, Status> {
        self.context.execution.clear_warnings();
        match live {
            None => self.decide_create(self.admit_new(requested)?),
            Some(live) => self.decide_update(&live, requested),
        }
    }

    /// The steps of a create up to mutating admission.
    fn admit_new(&self, requested: RequestedState) -> Result<AdmittedObject, Status> {
        let (mut new, is_recorded) = requested.into_parts();
        // A dry run does not write, and an apply drops the revision.
        let revision_check = match is_recorded || self.options.is_dry_run {
            true => Ok(()),
            false => object::metadata::reject_resource_version(&new),
        };
        self.complete_new(&mut new);
        if !is_recorded {
            self.record_fields(None, &mut new)?;
        }
        self.admit(None, &mut new)?;
        let name = self.check_place_of_new(&mut new)?;
        Ok(AdmittedObject { object: new, name, revision_check })
    }

    /// The steps of a create from mutating admission on.
    fn decide_create(&self, admitted: AdmittedObject) -> Result<ObjectDecision, Status> {
        let AdmittedObject { object: mut new, revision_check, .. } = admitted;
        self.check_escalation(None, &new)?;
        self.prepare_create(&mut new)?;
        self.allocate(None, &mut new)?;
        self.validate_create(&new)?;
        self.context.authorize_create()?;
        self.check_admission(None, &mut new)?;
        revision_check.map_err(|rejection| self.rejection_of_new(rejection, &new))?;
        Ok(ObjectDecision::Put(self.encode(new)?))
    }

    fn decide_update(&self, live: &LiveObject<'_>, requested: RequestedState) -> Result<ObjectDecision, Status> {
        let old = live.object;
        let (mut new, is_recorded) = requested.into_parts();
        self.complete_update(old, &mut new);
        if !is_recorded {
            self.record_fields(Some(old), &mut new)?;
        }
        self.admit(Some(old), &mut new)?;
        self.keep_fields_of_others(old, &mut new);
        self.check_escalation(Some(old), &new)?;
        self.check_signer(old, &new)?;
        self.allocate(Some(old), &mut new)?;
        self.prepare_update(old, &mut new)?;
        self.validate_update(old, &new)?;
        managedfields::keep_times_if_unchanged(old, &mut new);
        self.check_admission(Some(old), &mut new)?;
        if (self.context.resource.strategy().is_removed_by_update)(old, &new) {
            self.context.release_allocations(old)?;
            return Ok(ObjectDecision::Remove(self.encode(new)?));
        }
        if object::metadata::is_no_op(old, &new) && !live.is_outdated {
            return Ok(ObjectDecision::Keep);
        }
        Ok(ObjectDecision::Put(self.encode(new)?))
    }

    fn allocate(&self, old: Option<&JsonObject>, new: &mut JsonObject) -> Result<(), Status> {
        self.context.allocate(old, new, self.random, self.options.is_dry_run)
    }

    /// Makes the writer the owner of the fields that it changes.
    fn record_fields(&self, old: Option<&JsonObject>, new: &mut JsonObject) -> Result<(), Status> {
        managedfields::record_update(old, new, &self.field_manager(), &self.types())
            .map_err(|error| Status::service_unavailable(error.to_string()).with_retry_after(1))
    }

    pub(super) fn types(&self) -> ResourceTypes<'a> {
        let RequestContext { resource, server, target, .. } = self.context;
        ResourceTypes::new(resource, &server.feature_gates, &target.subresource)
    }

    /// Encodes an object in the storage version.
    fn encode(&self, mut object: JsonObject) -> Result<Bytes, Status> {
        if self.drops_managed_fields.load(Ordering::Relaxed) {
            metadata_mut(&mut object).remove("managedFields");
        }
        object_codec::encode_for_storage(object, self.context.resource)
    }

    /// Commits what `decide` decides on the newest state; a dry run commits nothing. The object is the one that the
    /// response shows.
    async fn commit(
        &self,
        name: &str,
        conditions: &[Compare],
        mut decide: impl FnMut(Option<&StoredObject>) -> Result<ObjectDecision, Status>,
    ) -> Result<(StatusCode, StoredObject), WriteError<Status>> {
        let context = self.context;
        let mut decided_state = None;
        let mut stored_before = None;
        let mut decide = |current: Option<&StoredObject>| {
            let decision = decide(current)?;
            stored_before = current.cloned();
            let (write, state) = match decision {
                ObjectDecision::Put(value) => {
                    (WriteDecision::Put { value: value.clone(), ttl: context.resource.rules().ttl }, Some(value))
                }
                ObjectDecision::Remove(state) => (WriteDecision::Delete, Some(state)),
                ObjectDecision::Keep => (WriteDecision::Keep, None),
            };
            decided_state = state;
            Ok(if self.options.is_dry_run { WriteDecision::Keep } else { write })
        };
        let written = loop {
            let key = context.object_key(name);
            let written = context.persist(context.resource, &key, conditions, &mut decide).await;
            let is_too_large = matches!(written, Err(WriteError::Store(store::Error::TooLarge { .. })));
            // Nothing was stored, so like kube-apiserver try once more without managed fields, which may be large.
            let is_last =
                !self.may_drop_managed_fields || self.drops_managed_fields.swap(is_too_large, Ordering::Relaxed);
            if !is_too_large || is_last {
                break written?;
            }
        };
        let code = if stored_before.is_none() { StatusCode::CREATED } else { StatusCode::OK };
        let revision = stored_before.as_ref().map_or(0, |stored| stored.revision);
        let unstored = |value: &[u8]| StoredObject::from_storage(value, revision).expect("the value was just encoded");
        let stored = match (written, decided_state) {
            (WriteOutcome::Put(stored), _) => stored,
            (WriteOutcome::Deleted(_) | WriteOutcome::Unchanged, Some(state)) => unstored(&state),
            (WriteOutcome::Deleted(_) | WriteOutcome::Unchanged, None) => {
                stored_before.ok_or_else(|| WriteError::Refused(context.not_found()))?
            }
        };
        Ok((code, stored))
    }

    pub(super) fn field_manager(&self) -> FieldManager<'_> {
        FieldManager {
            name: &self.options.field_manager,
            api_version: &self.api_version,
            subresource: &self.context.target.subresource,
            now: self.now,
        }
    }
}

impl RequestedState {
    /// The object, and whether its managed fields are recorded.
    fn into_parts(self) -> (JsonObject, bool) {
        match self {
            Self::Sent(object) => (object, false),
            Self::Recorded(object) => (object, true),
        }
    }
}

/// Why an object was not created.
pub(super) enum CreateError {
    NameTaken {
        name: String,
        /// The object of that name is only waiting for its finalizers.
        is_terminating: bool,
    },
    /// The namespace changed after it was checked.
    NamespaceChanged,
    /// Admission chose another name.
    Renamed {
        to: String,
    },
    Rejected(Status),
}

impl RequestContext<'_> {
    pub(super) async fn object_response(self, code: StatusCode, stored: &StoredObject) -> Result<Response, Status> {
        self.resource.convert_ahead(std::iter::once(stored)).await?;
        let encoded = self.representation.encode_object(stored, self.resource, ColumnDefinitions::Included)?;
        let mut response = self.representation.response(encoded);
        *response.status_mut() = code;
        Ok(response)
    }
}

/// A random (version 4) UUID.
pub(crate) fn new_uid() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
