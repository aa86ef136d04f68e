//! Selects the objects of a list, watch or deletecollection.

use std::sync::Arc;

use api::Status;
use api::json::JsonObject;
use api::selector::{FieldSelector, LabelSelector};
use object::StoredObject;
use parking_lot::Mutex;
use serde_json::Value;

use crate::object_codec;
use crate::resource::Resource;

/// The label selector, field selector and name of a request.
#[derive(Debug)]
pub(super) struct ObjectSelector {
    label_selector: LabelSelector,
    field_selector: FieldSelector,
    resource: Arc<Resource>,
    /// Selects only the object of this name, unless empty.
    name: String,
    /// True if the field selector uses only name and namespace, so that objects need not be decoded.
    needs_only_name_fields: bool,
    /// Why an object could not be compared, if one could not.
    failure: Mutex<Option<Status>>,
}

impl ObjectSelector {
    /// Rejects field selectors that the kind does not support.
    pub(super) fn new(labels: LabelSelector, fields: FieldSelector, resource: &Arc<Resource>) -> Result<Self, Status> {
        let checked = match resource.as_custom() {
            Some((_, version)) => version.selectable_fields().check_selector(&fields),
            None => resource.strategy().selectable_fields.check_selector(&fields),
        };
        checked.map_err(|rejection| Status::bad_request(rejection.to_string()))?;
        let is_name_field = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let is_by_name = fields.terms().iter().all(|term| is_name_field(&term.field));
        Ok(Self {
            label_selector: labels,
            field_selector: fields,
            resource: resource.clone(),
            name: String::new(),
            needs_only_name_fields: is_by_name,
            failure: Mutex::default(),
        })
    }

    /// Restricts the selection to the name in the path, for which the caller was authorized. Empty: no restriction.
    pub(super) fn with_name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// True if the selection depends on fields beside name and namespace.
    pub(super) fn needs_selectable_fields(&self) -> bool {
        !self.needs_only_name_fields
    }

    /// Decodes objects by a later state of the same resource from now on.
    pub(super) fn set_resource(&mut self, resource: &Arc<Resource>) {
        self.resource = resource.clone();
    }

    /// True without selectors and name.
    pub(super) fn selects_all(&self) -> bool {
        self.label_selector.is_empty() && self.field_selector.is_empty() && self.name.is_empty()
    }

    /// Takes the reason for which [`Self::matches`] could not compare an object, such as a missing conversion. The matches
    /// since the last call then count for nothing.
    pub(super) fn take_failure(&self) -> Option<Status> {
        self.failure.lock().take()
    }

    pub(super) fn matches(&self, stored: &StoredObject) -> bool {
        let is_named = self.name.is_empty() || *self.name == *stored.name;
        is_named && self.matches_labels_and_fields(stored)
    }

    fn matches_labels_and_fields(&self, stored: &StoredObject) -> bool {
        // A webhook may change labels.
        let needs_converted = !self.label_selector.is_empty() || !self.needs_only_name_fields;
        if !needs_converted || !self.resource.needs_webhook(stored) {
            return self.label_selector.matches(|label| stored.label(label)) && self.matches_fields(stored);
        }
        let Some(object) = self.to_served(stored) else { return false };
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        let label = |name: &str| labels.and_then(|labels| labels.get(name)).and_then(Value::as_str);
        self.label_selector.matches(label) && self.matches_custom_fields(&object)
    }

    fn to_served(&self, stored: &StoredObject) -> Option<JsonObject> {
        self.resource.to_served(stored).map_err(|failure| *self.failure.lock() = Some(failure)).ok()
    }

    fn matches_custom_fields(&self, object: &JsonObject) -> bool {
        let version = self.resource.as_custom().map(|(_, version)| version);
        version.is_some_and(|version| version.selectable_fields().matches(&self.field_selector, object))
    }

    fn matches_fields(&self, stored: &StoredObject) -> bool {
        if self.field_selector.is_empty() {
            return true;
        }
        if !self.needs_only_name_fields {
            return match self.resource.as_custom() {
                Some(_) => self.to_served(stored).is_some_and(|object| self.matches_custom_fields(&object)),
                None => {
                    let selectable_fields = self.resource.strategy().selectable_fields;
                    selectable_fields.matches(&self.field_selector, &object_codec::decode_stored(stored))
                }
            };
        }
        self.field_selector.matches(|name| match name {
            "metadata.name" => Some(&*stored.name),
            "metadata.namespace" => Some(&*stored.namespace),
            _ => None,
        })
    }
}
