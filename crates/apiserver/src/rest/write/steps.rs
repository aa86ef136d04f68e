//! The steps of a write that apply the rules of the kind.

use api::json::JsonObject;
use api::{FieldError, GroupResource, GroupVersion, Status, Verb};
use kinds::value_validation;
use object::metadata::{self, CreateContext};
use object::rules::StatusSubresource;
use object::unstructured::metadata_string;
use object::{Rejection, decode, unknown_fields, validate};

use super::ObjectWrite;
use crate::built_in_types;
use crate::error_status::{self, StatusContext};

impl ObjectWrite<'_> {
    /// The name of a new object, which may be generated.
    pub(super) fn name_of_new(&self, object: &JsonObject) -> String {
        match (metadata_string(object, "name"), metadata_string(object, "generateName")) {
            ("", base) if !base.is_empty() => metadata::generate_name(base, self.random),
            (name, _) => name.to_owned(),
        }
    }

    /// Completes a new object: fields that this release does not know are dropped, and defaults are set.
    pub(super) fn complete_new(&self, object: &mut JsonObject) {
        let context = self.context;
        let (release, kind) = (context.server.served_resources.release(), context.resource.group_version_kind());
        built_in_types::drop_fields_unknown_to_release(object, release, kind);
        built_in_types::set_defaults(object, &context.server.feature_gates, kind);
        context.execution.add_warnings(metadata::dedup_owner_references(object));
    }

    /// Checks the name and namespace that admission left: they must be those of the key under which the object is stored.
    /// Returns the name, which the caller of a create compares.
    pub(super) fn check_place_of_new(&self, object: &mut JsonObject) -> Result<String, Status> {
        let context = self.context;
        decode::ensure_namespace_matches(object, context.namespace())
            .map_err(|rejection| self.rejection_of_new(rejection, object))?;
        match &*context.target.name {
            "" => Ok(self.name_of_new(object)),
            name => {
                decode::ensure_name_matches(object, name)
                    .map_err(|rejection| self.rejection_of_new(rejection, object))?;
                Ok(name.to_owned())
            }
        }
    }

    /// Applies the rules of metadata and status to a new object.
    pub(super) fn prepare_create(&self, object: &mut JsonObject) -> Result<(), Status> {
        let context = self.context;
        let (rules, strategy) = (context.resource.rules(), context.resource.strategy());
        let (release, kind) = (context.server.served_resources.release(), context.resource.group_version_kind());
        built_in_types::drop_disabled_fields(None, object, &context.server.feature_gates, kind);
        let status = if strategy.keeps_status_on_create { object.remove("status") } else { None };
        let create_context = CreateContext { now: self.now, uid: &self.uid, random: self.random };
        metadata::prepare_create(object, rules, &create_context);
        object.extend(status.map(|status| ("status".to_owned(), status)));
        (strategy.prepare_for_create)(&context.caller.user, object)
            .map_err(|rejection| self.rejection_of_new(rejection, object))?;
        if rules.status != StatusSubresource::None {
            built_in_types::set_empty_status(object, release, kind);
        }
        Ok(())
    }

    /// Validates a new object.
    pub(super) fn validate_create(&self, object: &JsonObject) -> Result<(), Status> {
        let context = self.context;
        let (rules, strategy) = (context.resource.rules(), context.resource.strategy());
        let gates = &context.server.feature_gates;
        let mut errors = self.check_device_requirements(None, object)?;
        errors.extend(validate::validate_metadata(object, rules));
        errors.extend(value_validation::validate_create(strategy, gates, object));
        errors = self.validate_custom(object, None, errors);
        if errors.is_empty() {
            errors.extend(self.check_param_permission(None, object)?);
        }
        Rejection::ensure_no_errors(errors).map_err(|rejection| self.invalid_status(rejection, object))
    }

    /// The Status of an invalid object. Like in kube-apiserver it names the group and kind that a custom object says to be.
    fn invalid_status(&self, rejection: Rejection, object: &JsonObject) -> Status {
        let status_context = self.context.status_context(metadata_string(object, "name"));
        let text = |field: &str| object.get(field).and_then(serde_json::Value::as_str);
        let kind = text("kind").unwrap_or(status_context.kind);
        let group = match text("apiVersion").map(GroupVersion::parse) {
            Some(Ok(own)) if self.context.resource.as_custom().is_some() => own.group,
            Some(_) | None => status_context.resource.group,
        };
        let resource = GroupResource { group, ..status_context.resource };
        error_status::status_for_rejection(rejection, StatusContext { kind, resource, ..status_context })
    }

    pub(super) fn rejection_of_new(&self, rejection: Rejection, object: &JsonObject) -> Status {
        self.context.rejection_status(rejection, metadata_string(object, "name"))
    }

    /// Completes the requested state: defaults are set, and fields that this release does not know come from the stored
    /// object.
    pub(super) fn complete_update(&self, old: &JsonObject, new: &mut JsonObject) {
        let context = self.context;
        let (resource, gates) = (context.resource, &context.server.feature_gates);
        built_in_types::set_defaults(new, gates, resource.group_version_kind());
        context.execution.add_warnings(metadata::dedup_owner_references(new));
        if let Some(schema) = context.schema_of(resource.group_version_kind()) {
            unknown_fields::drop_unknown_fields(Some(old), new, schema);
            unknown_fields::keep_unknown_fields(old, new, schema);
        }
    }

    /// Restores the fields that the subresource does not write.
    pub(super) fn keep_fields_of_others(&self, old: &JsonObject, new: &mut JsonObject) {
        let context = self.context;
        let part = context.resource.strategy().subresource(&context.target.subresource);
        let gates = &context.server.feature_gates;
        if let Some(next) = part.and_then(|part| part.next_state([old, new], gates, self.now)) {
            *new = next;
        }
    }

    /// Applies the rules of metadata, status and generation.
    pub(super) fn prepare_update(&self, old: &JsonObject, new: &mut JsonObject) -> Result<(), Status> {
        let context = self.context;
        let (rules, strategy) = (context.resource.rules(), context.resource.strategy());
        let subresource = &*context.target.subresource;
        let part = strategy.subresource(subresource);
        let kind = context.resource.group_version_kind();
        built_in_types::drop_disabled_fields(Some(old), new, &context.server.feature_gates, kind);
        if context.target.verb == Verb::Update {
            metadata::ensure_uid_matches(old, new)
                .map_err(|rejection| context.rejection_status(rejection, &context.target.name))?;
        }
        let prepared = match part {
            Some(part) if part.writes_status => metadata::prepare_status_update(old, new, rules),
            Some(_) | None => metadata::prepare_update(old, new, rules),
        };
        let prepared = prepared.and_then(|()| match (subresource, part) {
            ("" | "scale", _) => (strategy.prepare_for_update)(old, new),
            (_, Some(part)) => (part.prepare)(old, new, self.now),
            (_, None) => Ok(()),
        });
        prepared.map_err(|rejection| context.rejection_status(rejection, &context.target.name))?;
        if part.is_some_and(|part| part.writes_status) {
            built_in_types::set_empty_status(new, context.server.served_resources.release(), kind);
        }
        Ok(())
    }

    /// Validates metadata, values and immutable fields of an update to the object or a subresource.
    pub(super) fn validate_update(&self, old: &JsonObject, new: &JsonObject) -> Result<(), Status> {
        let context = self.context;
        let (resource, gates) = (context.resource, &context.server.feature_gates);
        let subresource = &*context.target.subresource;
        let mut errors = self.check_device_requirements(Some(old), new)?;
        errors.extend(validate::validate_metadata_update(old, new, resource.rules()));
        let of_values = value_validation::validate_values(resource.strategy(), gates, subresource, [old, new]);
        let of_changes = built_in_types::validate_immutable_fields([old, new], gates, resource, subresource);
        match resource.strategy().reports_changes_first {
            true => errors.extend(of_changes.into_iter().chain(of_values)),
            false => errors.extend(of_values.into_iter().chain(of_changes)),
        }
        errors = self.validate_custom(new, Some(old), errors);
        if errors.is_empty() && subresource.is_empty() {
            errors.extend(self.check_param_permission(Some(old), new)?);
        }
        Rejection::ensure_no_errors(errors).map_err(|rejection| self.invalid_status(rejection, new))
    }

    /// Validates an object of a custom resource by its schema and rules. Returns all errors, those of the metadata first.
    fn validate_custom(
        &self,
        new: &JsonObject,
        old: Option<&JsonObject>,
        metadata_errors: Vec<FieldError>,
    ) -> Vec<FieldError> {
        let context = self.context;
        let Some((live, version)) = context.resource.as_custom() else { return metadata_errors };
        let verdict = live.validate(version, new, old, &context.target.subresource, metadata_errors);
        context.execution.add_warnings(verdict.warnings);
        verdict.errors
    }
}
