//! Sets of fields.

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet {}

/// Why a field set cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSetError(pub(crate) String);

impl FieldSet {
    /// The set of these paths of field names, such as `["status"]` and `["metadata", "labels"]`.
    pub fn of_names(paths: &[&[&str]]) -> Self {
        let _ = paths;
        Self {}
    }
}
