//! Fields of other managers that an apply would change.

/// One field of another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager for messages: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The path for messages: `.spec.replicas`.
    pub field: String,
}

/// The conflicts of an apply, sorted by manager and path; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub(crate) Vec<Conflict>);

impl Conflicts {
    /// The message of the 409.
    pub fn message(&self) -> String {
        String::new()
    }

    /// Message and field of each cause; the reason of all is `FieldManagerConflict`.
    pub fn causes(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().map(|conflict| (format!("conflict with {}", conflict.manager), conflict.field.as_str()))
    }
}
