//! Create and update: decode, set defaults, validate, persist.

use access::Attributes;
use api::json::JsonObject;
use api::{FieldError, GroupVersionKind, Status, Verb};
use bytes::Bytes;
use edge::Response;
use http::StatusCode;
use http::header::{HeaderValue, WARNING};
use kinds::{types_of, value_validation};
use object::managed_fields::{self, FieldManager};
use object::metadata::CreateContext;
use object::rules::StatusSubresource;
use object::unstructured::metadata_string;
use object::{Rejection, StoredObject, decode, metadata, unknown_fields, validate};
use registry::read::ReadConsistency;
use registry::{WriteDecision, WriteError, WriteOutcome};
use schema::SchemaCursor;
use store::Compare;

use super::BufferedRequest;
use super::{RequestContext, current_time};
use crate::admission::{NamespaceFreshness, ObjectWrite};
use crate::built_in_types::{self, CheckedObject};
use crate::object_codec;
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::{error_status, json_response};

/// The maximum number of attempts to create an object, as in kube-apiserver: each generates a new name after a
/// conflict, or rereads a namespace that changed concurrently.
const CREATE_ATTEMPTS_MAX: usize = 8;

pub(super) async fn create(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    let options = WriteOptions::from_request(&request)?;
    let CheckedObject { mut object, mut warnings } = decode_body(context, request)?;
    decode::ensure_namespace_matches(&mut object, context.namespace())
        .map_err(|rejection| context.rejection_status(rejection, ""))?;
    warnings.extend(context.warnings(None, &object));
    context.reject_terminating_definition(metadata_string(&object, "name"))?;
    let mut namespace_condition = context.require_active_namespace(NamespaceFreshness::Cached).await?;
    let is_generated =
        metadata_string(&object, "name").is_empty() && !metadata_string(&object, "generateName").is_empty();
    for _ in 0..CREATE_ATTEMPTS_MAX {
        match context.create_once(object.clone(), &options, namespace_condition.as_slice()).await {
            Err(CreateError::NameTaken { name }) if is_generated => {
                tracing::debug!(name, "generated name exists; generating another");
            }
            Err(CreateError::NameTaken { name }) => {
                return Err(Status::already_exists(context.target.group_resource(), &name));
            }
            Err(CreateError::NamespaceChanged) => {
                namespace_condition = context.require_active_namespace(NamespaceFreshness::Latest).await?
            }
            Err(CreateError::Rejected(status)) => return Err(status),
            Ok(stored) => return Ok(with_warnings(context.object_response(StatusCode::CREATED, &stored), &warnings)),
        }
    }
    if !is_generated {
        return Err(Status::service_unavailable("the namespace changed during every attempt to create the object")
            .with_retry_after(1));
    }
    Err(Status::generate_name_conflict(context.target.group_resource(), metadata_string(&object, "generateName"), 1))
}

pub(super) async fn update(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let options = WriteOptions::from_request(&request)?;
    let CheckedObject { mut object, warnings } = decode_body(context, request)?;
    let name = &*context.target.name;
    decode::ensure_namespace_matches(&mut object, context.namespace())
        .map_err(|rejection| context.rejection_status(rejection, name))?;
    decode::ensure_name_matches(&object, name).map_err(|rejection| context.rejection_status(rejection, name))?;
    let namespace_condition = context.require_active_namespace_for_upsert().await?;
    let response = context
        .update_object_if(&options, namespace_condition.as_slice(), |current| match current {
            Some(_) => Ok(object.clone()),
            None if context.resource.rules().allows_create_on_update && context.target.subresource.is_empty() => {
                Ok(object.clone())
            }
            None => Err(Status::not_found(context.target.group_resource(), name)),
        })
        .await?;
    Ok(with_warnings(response, &warnings))
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

/// Why an object was not created.
enum CreateError {
    NameTaken {
        name: String,
    },
    /// The namespace changed after it was checked.
    NamespaceChanged,
    Rejected(Status),
}

impl RequestContext<'_> {
    /// Writes the object that `next` makes of the current one, in the version of the request, and responds with it.
    pub(super) async fn update_object(
        self,
        options: &WriteOptions,
        next: impl FnMut(Option<&JsonObject>) -> Result<JsonObject, Status>,
    ) -> Result<Response, Status> {
        self.update_object_if(options, &[], next).await
    }

    /// Like [`Self::update_object`], conditional on an unchanged namespace.
    async fn update_object_if(
        self,
        options: &WriteOptions,
        conditions: &[Compare],
        mut next: impl FnMut(Option<&JsonObject>) -> Result<JsonObject, Status>,
    ) -> Result<Response, Status> {
        let mut warnings = Vec::new();
        let next = |current: Option<&JsonObject>| {
            let new = next(current)?;
            warnings = self.warnings(current, &new);
            Ok(new)
        };
        let (code, stored) = self.write_next(options, conditions, next).await?;
        Ok(with_warnings(self.object_response(code, &stored), &warnings))
    }

    /// The kind's warnings about a write of the object itself.
    fn warnings(self, old: Option<&JsonObject>, new: &JsonObject) -> Vec<String> {
        if !self.target.subresource.is_empty() {
            return Vec::new();
        }
        (self.resource.strategy().warnings)(&self.server.feature_gates, old, new)
    }

    /// Writes the object that `next` makes of the current one, in the version of the request. The status is 201 if
    /// there was no object before.
    pub(super) async fn write_next(
        self,
        options: &WriteOptions,
        conditions: &[Compare],
        mut next: impl FnMut(Option<&JsonObject>) -> Result<JsonObject, Status>,
    ) -> Result<(StatusCode, StoredObject), Status> {
        let name = &*self.target.name;
        let key = self.object_key(name);
        let mut dry_run_decision = None;
        let mut stored_before = None;
        let mut is_new = false;
        let decide = |current: Option<&StoredObject>| {
            let old = current.map(|stored| object_codec::decode_served(stored, self.resource));
            let new = next(old.as_ref())?;
            is_new = old.is_none();
            let decision = match &old {
                None => {
                    let value = self.prepare_new_object(new, options)?;
                    self.authorize_create()?;
                    WriteDecision::Put { value, ttl: self.resource.rules().ttl }
                }
                Some(old) => {
                    let is_outdated = current.is_some_and(|stored| !self.resource.is_stored_in_current_version(stored));
                    self.prepare_next_state(old, new, is_outdated, options)?
                }
            };
            stored_before = current.cloned();
            if options.is_dry_run {
                dry_run_decision = Some(decision);
                return Ok(WriteDecision::Keep);
            }
            Ok(decision)
        };
        let written = self
            .persist(self.resource, &key, conditions, decide)
            .await
            .map_err(error_status::status_for_write_error)?;
        let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let stored = match (written, dry_run_decision) {
            (WriteOutcome::Put(stored), _) => stored,
            (_, Some(WriteDecision::Put { value, .. })) => {
                let revision = stored_before.as_ref().map_or(0, |stored| stored.revision);
                StoredObject::from_storage(&value, revision).expect("the value was just encoded")
            }
            // The update removed the last finalizer, or changed nothing: respond with the previous state.
            (WriteOutcome::Deleted(_) | WriteOutcome::Unchanged, _) => {
                stored_before.ok_or_else(|| Status::not_found(self.target.group_resource(), name))?
            }
        };
        Ok((code, stored))
    }

    async fn create_once(
        self,
        mut object: JsonObject,
        options: &WriteOptions,
        conditions: &[Compare],
    ) -> Result<StoredObject, CreateError> {
        self.check_escalation("", None, &object).map_err(CreateError::Rejected)?;
        if let Err(rejection) = prepare_for_create(&mut object, self, options) {
            return Err(CreateError::Rejected(self.rejection_status(rejection, metadata_string(&object, "name"))));
        }
        let name = metadata_string(&object, "name").to_owned();
        let key = self.object_key(&name);
        let value = object_codec::encode_for_storage(object, self.resource);
        let decide = |current: Option<&StoredObject>| {
            if current.is_some() {
                return Err(Status::already_exists(self.target.group_resource(), &name));
            }
            if options.is_dry_run {
                return Ok(WriteDecision::Keep);
            }
            Ok(WriteDecision::Put { value: value.clone(), ttl: self.resource.rules().ttl })
        };
        match self.persist(self.resource, &key, conditions, decide).await {
            Ok(WriteOutcome::Put(stored)) => Ok(stored),
            Ok(WriteOutcome::Unchanged | WriteOutcome::Deleted(_)) => {
                Ok(StoredObject::from_storage(&value, 0).expect("the value was just encoded"))
            }
            Err(WriteError::ConditionChanged { .. }) if !self.execution.is_definition_changed() => {
                Err(CreateError::NamespaceChanged)
            }
            Err(WriteError::Refused(_)) => Err(CreateError::NameTaken { name }),
            Err(error) => Err(CreateError::Rejected(error_status::status_for_write_error(error))),
        }
    }

    /// Prepares and validates an update from `old` to `new`. The decision is to store, to delete, or to keep `old`. An
    /// object that is stored in an outdated version is stored again even if nothing changes, which migration relies on.
    fn prepare_next_state(
        self,
        old: &JsonObject,
        mut new: JsonObject,
        is_outdated: bool,
        options: &WriteOptions,
    ) -> Result<WriteDecision, Status> {
        let name = &*self.target.name;
        let resource = self.resource;
        let (rules, strategy) = (resource.rules(), resource.strategy());
        let subresource = &*self.target.subresource;
        let part = strategy.subresource(subresource);
        let gates = &self.server.feature_gates;
        if let Some(next) = part.and_then(|part| part.next_state([old, &new], gates, current_time())) {
            new = next;
        }
        self.check_escalation(name, Some(old), &new)?;
        if let Some(verb) = (strategy.signer_verb)(subresource, old, &new) {
            self.server.check_signer_permission(&self.caller.user, verb, old)?;
        }
        built_in_types::set_defaults(&mut new, gates, resource.group_version_kind());
        if let Some(schema) = self.schema_of(resource.group_version_kind()) {
            unknown_fields::drop_unknown_fields(Some(old), &mut new, schema);
            unknown_fields::keep_unknown_fields(old, &mut new, schema);
        }
        built_in_types::drop_disabled_fields(Some(old), &mut new, gates, resource.group_version_kind());
        let prepared = match part {
            Some(part) if part.writes_status => metadata::prepare_status_update(old, &mut new, rules),
            Some(_) | None => metadata::prepare_update(old, &mut new, rules),
        };
        prepared
            .and_then(|()| match (subresource, part) {
                ("" | "scale", _) => (strategy.prepare_for_update)(old, &mut new),
                (_, Some(part)) => (part.prepare)(old, &mut new, current_time()),
                (_, None) => Ok(()),
            })
            .and_then(|()| Rejection::ensure_no_errors(self.validate_update(old, &new)))
            .map_err(|rejection| self.rejection_status(rejection, name))?;
        let api_version = self.api_version();
        managed_fields::record_update(old, &mut new, &self.field_manager(options, &api_version));
        if (strategy.is_removed_by_update)(old, &new) {
            return Ok(WriteDecision::Delete);
        }
        if metadata::is_no_op(old, &new) && !is_outdated {
            return Ok(WriteDecision::Keep);
        }
        Ok(WriteDecision::Put { value: object_codec::encode_for_storage(new, resource), ttl: rules.ttl })
    }

    /// Validates metadata, values and immutable fields of an update to the object or a subresource.
    fn validate_update(self, old: &JsonObject, new: &JsonObject) -> Vec<FieldError> {
        let (resource, gates) = (self.resource, &self.server.feature_gates);
        let subresource = &*self.target.subresource;
        let mut errors = validate::validate_metadata_update(old, new, resource.rules());
        errors.extend(value_validation::validate_values(resource.strategy(), gates, subresource, [old, new]));
        errors.extend(built_in_types::validate_immutable_fields([old, new], gates, resource, subresource));
        errors.extend(self.validate_custom(new, Some(old), &errors));
        errors
    }

    /// Validates an object of a custom resource by its schema and rules.
    fn validate_custom(
        self,
        new: &JsonObject,
        old: Option<&JsonObject>,
        metadata_errors: &[FieldError],
    ) -> Vec<FieldError> {
        let Some((live, version)) = self.resource.as_custom() else { return Vec::new() };
        let verdict = live.validate(version, new, old, &self.target.subresource, metadata_errors);
        self.execution.set_warnings(verdict.warnings);
        verdict.errors
    }

    /// Forbids to create an object while the definition of its resource is being deleted.
    fn reject_terminating_definition(self, name: &str) -> Result<(), Status> {
        match self.resource.as_custom() {
            Some((live, _)) if live.definition.is_terminating() => {
                let message = "create not allowed while custom resource definition is terminating";
                Err(Status::forbidden(self.target.group_resource(), name, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn prepare_new_object(self, mut object: JsonObject, options: &WriteOptions) -> Result<Bytes, Status> {
        self.check_escalation(&self.target.name, None, &object)?;
        prepare_for_create(&mut object, self, options)
            .map_err(|rejection| self.rejection_status(rejection, &self.target.name))?;
        Ok(object_codec::encode_for_storage(object, self.resource))
    }

    /// Authorizes an update that creates the object. Like kube-apiserver it requires the verb `create` on the object's
    /// name, and checks it after validation.
    fn authorize_create(self) -> Result<(), Status> {
        let asked = self.target;
        let object = access::ResourceAttributes {
            group: &asked.group,
            version: &asked.version,
            resource: &asked.resource,
            subresource: &asked.subresource,
            namespace: &asked.namespace,
            name: &asked.name,
        };
        let attributes = Attributes::for_resource(&self.caller.user, Verb::Create.as_str(), object);
        self.server.access_rules.authorize(&attributes)
    }

    /// `name` is the name in the path; empty for a create.
    fn check_escalation(self, name: &str, old: Option<&JsonObject>, new: &JsonObject) -> Result<(), Status> {
        let (resource, namespace, user) = (self.resource, self.namespace(), &*self.caller.user);
        self.server.check_escalation(&ObjectWrite { user, resource, namespace, name, old, new })
    }

    /// Requires an active namespace if an update may create the object. Returns the condition of the write, if any.
    async fn require_active_namespace_for_upsert(self) -> Result<Option<Compare>, Status> {
        if !self.resource.rules().allows_create_on_update || !self.target.subresource.is_empty() {
            return Ok(None);
        }
        let key = self.object_key(&self.target.name);
        let found = self
            .server
            .registry
            .get(&self.resource.cache, &key, ReadConsistency::Any)
            .await
            .map_err(error_status::status_for_read_error)?;
        if found.is_some() { Ok(None) } else { self.require_active_namespace(NamespaceFreshness::Latest).await }
    }

    /// Requires that the request's namespace exists and is not terminating. Returns the condition of the write, if any.
    async fn require_active_namespace(self, freshness: NamespaceFreshness) -> Result<Option<Compare>, Status> {
        match self.namespace() {
            "" => Ok(None),
            namespace => self.server.require_active_namespace(namespace, freshness, self.status_context("")).await,
        }
    }

    pub(super) fn rejection_status(self, rejection: Rejection, name: &str) -> Status {
        error_status::status_for_rejection(rejection, self.status_context(name))
    }

    pub(super) fn object_response(self, code: StatusCode, stored: &StoredObject) -> Response {
        let mut response = json_response(object_codec::encode_served(stored, self.resource));
        *response.status_mut() = code;
        response
    }

    /// The schema of a kind in this server's release; `None` if the release does not have the kind.
    pub(super) fn schema_of(&self, kind: GroupVersionKind<&str>) -> Option<SchemaCursor<'static>> {
        types_of(self.server.served_resources.release()).for_kind(kind).map(SchemaCursor::new)
    }

    /// The `apiVersion` of the request.
    fn api_version(&self) -> String {
        self.target.group_version().to_string()
    }

    fn field_manager<'w>(&'w self, options: &'w WriteOptions, api_version: &'w str) -> FieldManager<'w> {
        let subresource = &*self.target.subresource;
        FieldManager { name: &options.field_manager, api_version, subresource, now: current_time() }
    }
}

fn prepare_for_create(
    object: &mut JsonObject,
    context: RequestContext<'_>,
    options: &WriteOptions,
) -> Result<(), Rejection> {
    let (rules, strategy) = (context.resource.rules(), context.resource.strategy());
    let (release, kind) = (context.server.served_resources.release(), context.resource.group_version_kind());
    built_in_types::drop_fields_unknown_to_release(object, release, kind);
    built_in_types::set_defaults(object, &context.server.feature_gates, kind);
    built_in_types::drop_disabled_fields(None, object, &context.server.feature_gates, kind);
    let status = if strategy.keeps_status_on_create { object.remove("status") } else { None };
    let create_context = CreateContext { now: current_time(), uid: &new_uid(), random: fastrand::u64(..) };
    metadata::prepare_create(object, rules, &create_context)?;
    object.extend(status.map(|status| ("status".to_owned(), status)));
    (strategy.prepare_for_create)(&context.caller.user, object)?;
    if rules.status != StatusSubresource::None {
        built_in_types::set_empty_status(object, release, kind);
    }
    let api_version = context.api_version();
    managed_fields::record_update(&JsonObject::new(), object, &context.field_manager(options, &api_version));
    let mut errors = validate::validate_metadata(object, rules);
    errors.extend(value_validation::validate_create(strategy, &context.server.feature_gates, object));
    errors.extend(context.validate_custom(object, None, &errors));
    Rejection::ensure_no_errors(errors)
}

/// Reads the request body as an object of the requested kind.
fn decode_body(context: RequestContext<'_>, request: BufferedRequest) -> Result<CheckedObject, Status> {
    let expected = ExpectedBody {
        kind: context.resource.group_version_kind(),
        release: context.server.served_resources.release(),
        custom: context.resource.as_custom().is_some().then_some(&**context.resource),
        status_context: context.status_context(""),
    };
    request_body::read_object(request, context.record, &expected)
}

/// A random (version 4) UUID.
pub(crate) fn new_uid() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
