//! Which objects a list, a watch or a deletion is about.

use api::Status;
use api::selector::{FieldSelector, LabelSelector};
use object::Stored;

/// Label and field selectors of a request.
#[derive(Debug)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Refuses fields that cannot be selected by.
    pub(super) fn new(labels: LabelSelector, fields: FieldSelector) -> Result<Self, Status> {
        let known = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        match fields.terms().iter().find(|term| !known(&term.field)) {
            Some(term) => Err(Status::bad_request(format!("field label not supported: {}", term.field))),
            None => Ok(Self { labels, fields }),
        }
    }

    /// Whether everything is selected.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether this object is.
    pub(super) fn selects(&self, stored: &Stored) -> bool {
        let field = |name: &str| match name {
            "metadata.name" => Some(&*stored.name),
            "metadata.namespace" => Some(&*stored.namespace),
            _ => None,
        };
        self.labels.matches(|label| stored.label(label)) && self.fields.matches(field)
    }
}
