//! Fields of other managers that an apply would change.

use api::quote::Quoted;

use crate::FieldSet;
use crate::entries::{Entry, Operation};
use crate::field_set::PathElement;

/// One field of another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager in messages: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The path in messages: `.spec.replicas`.
    pub field: String,
    /// Sorts managers.
    identifier: String,
    path: Vec<PathElement>,
}

/// The conflicts of an apply, by manager and path; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    /// The conflicts with managers, of which each has fields; `None` if there are none.
    pub(crate) fn new(mut managers: Vec<(&Entry<'_>, FieldSet)>) -> Option<Self> {
        managers.sort_by_cached_key(|(entry, _)| entry.identifier());
        let mut conflicts = Vec::new();
        for (entry, fields) in managers {
            let (manager, identifier) = (shown_manager(entry), entry.identifier());
            fields.for_each_path(&mut |path| {
                conflicts.push(Conflict {
                    manager: manager.clone(),
                    field: path.iter().map(PathElement::to_string).collect(),
                    identifier: identifier.clone(),
                    path: path.to_vec(),
                });
            });
        }
        (!conflicts.is_empty()).then_some(Self(conflicts))
    }

    /// The conflicts at paths that are not in a set.
    pub(crate) fn without(&self, allowed: &FieldSet) -> Option<Self> {
        let rest: Vec<Conflict> =
            self.0.iter().filter(|conflict| !has_path(allowed, &conflict.path)).cloned().collect();
        (!rest.is_empty()).then_some(Self(rest))
    }

    /// The message of the 409.
    pub fn message(&self) -> String {
        if let [only] = &self.0[..] {
            return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
        }
        let mut lines = Vec::new();
        for group in self.0.chunk_by(|one, other| one.identifier == other.identifier) {
            lines.extend(group.first().map(|first| format!("conflicts with {}:", first.manager)));
            lines.extend(group.iter().map(|conflict| format!("- {}", conflict.field)));
        }
        format!("Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }

    /// Message and field of each cause; the reason of all is `FieldManagerConflict`.
    pub fn causes(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().map(|conflict| (format!("conflict with {}", conflict.manager), conflict.field.as_str()))
    }
}

fn has_path(set: &FieldSet, path: &[PathElement]) -> bool {
    let [first, rest @ ..] = path else { return false };
    let Some(node) = set.get(first) else { return false };
    if rest.is_empty() { node.is_member } else { has_path(&node.children, rest) }
}

fn shown_manager(entry: &Entry<'_>) -> String {
    let mut shown = Quoted(&entry.manager).to_string();
    if !entry.subresource.is_empty() {
        shown.push_str(&format!(" with subresource {}", Quoted(&entry.subresource)));
    }
    if entry.operation == Operation::Update {
        shown.push_str(&format!(" using {}", entry.api_version));
    }
    shown
}
