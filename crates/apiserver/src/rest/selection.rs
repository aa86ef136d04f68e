//! Which objects a list, a watch or a deletion is about.

use api::selector::{FieldSelector, LabelSelector};
use api::{GroupKind, Status};
use catalogue::Served;
use object::{Stored, selectable};

use crate::forms;

/// Label and field selectors of a request.
#[derive(Debug)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Only the object of this name, if it is not empty.
    name: String,
    /// Whether the fields are all in an object's head, so that it need not be parsed.
    is_by_name: bool,
}

impl Selection {
    /// Refuses fields that objects of this kind cannot be selected by.
    pub(super) fn new(labels: LabelSelector, fields: FieldSelector, served: &Served) -> Result<Self, Status> {
        let kind = GroupKind { group: served.group.name, kind: served.kind.name };
        selectable::check(&fields, kind).map_err(|refusal| Status::bad_request(refusal.to_string()))?;
        let in_head = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let is_by_name = fields.terms().iter().all(|term| in_head(&term.field));
        Ok(Self { labels, fields, name: String::new(), is_by_name })
    }

    /// The same of the one object that a path names, which is what the caller was authorized for. Empty: of all.
    pub(super) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Whether everything is selected.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_empty()
    }

    /// Whether this object is.
    pub(super) fn selects(&self, stored: &Stored) -> bool {
        let is_named = self.name.is_empty() || *self.name == *stored.name;
        is_named && self.labels.matches(|label| stored.label(label)) && self.selects_fields(stored)
    }

    fn selects_fields(&self, stored: &Stored) -> bool {
        if self.fields.is_empty() {
            return true;
        }
        if !self.is_by_name {
            return selectable::matches(&self.fields, &forms::stored_object(stored));
        }
        self.fields.matches(|name| match name {
            "metadata.name" => Some(&*stored.name),
            "metadata.namespace" => Some(&*stored.namespace),
            _ => None,
        })
    }
}
