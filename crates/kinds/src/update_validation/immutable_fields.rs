//! Immutable fields of a kind.

use api::FieldError;
use schema::TypeForm;
use schema::semantic_equality::{is_field_equal, is_semantically_empty};

use super::{FIELD_IS_IMMUTABLE, ObjectUpdate};
use crate::release::{Release, ReleaseRange};
use crate::validation::go_label_selector;

/// An immutable field, and the error for a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImmutableField {
    /// Names with dots.
    path: &'static str,
    /// The field in error messages, which is not always its path.
    displayed_path: &'static str,
    fixed_from: FixedFrom,
    violation: ViolationMessage,
    pub(crate) releases: ReleaseRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FixedFrom {
    Creation,
    /// An absent field may be set once.
    FirstValue,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ViolationMessage {
    /// `Invalid` error with the new value and this message.
    Invalid(&'static str),
    /// `Forbidden` error with this message.
    Forbidden(&'static str),
    /// `Forbidden` error with this message; changes of these subfields are allowed.
    ForbiddenExcept(&'static [&'static str], &'static str),
}

impl ImmutableField {
    pub(crate) fn check(&self, update: ObjectUpdate<'_>) -> Option<FieldError> {
        let field = update.field(self.path)?;
        let [old, new] = [update.old_value(self.path), update.new_value(self.path)];
        if is_field_equal(field, old, new) {
            return None;
        }
        if self.fixed_from == FixedFrom::FirstValue && old.is_none_or(|old| is_semantically_empty(field, old)) {
            return None;
        }
        match self.violation {
            ViolationMessage::Invalid(detail) => {
                let error = update.invalid(self.displayed_path, self.path, detail);
                let is_selector =
                    matches!(field.value_type().form(), TypeForm::Struct(kind) if kind.name() == "LabelSelector");
                Some(if is_selector { error.showing(go_label_selector(new)) } else { error })
            }
            ViolationMessage::Forbidden(detail) => Some(FieldError::forbidden(self.displayed_path, detail)),
            ViolationMessage::ForbiddenExcept(free, detail) => {
                let names =
                    [old, new].into_iter().flatten().filter_map(|part| part.as_object()).flat_map(|part| part.keys());
                let is_kept = |name: &String| update.is_unchanged(&format!("{}.{name}", self.path));
                let is_broken = names.into_iter().any(|name| !free.contains(&name.as_str()) && !is_kept(name));
                is_broken.then(|| FieldError::forbidden(self.displayed_path, detail))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    pub(crate) const fn displayed_as(self, shown: &'static str) -> Self {
        Self { displayed_path: shown, ..self }
    }

    pub(crate) const fn immutable_once_set(self) -> Self {
        Self { fixed_from: FixedFrom::FirstValue, ..self }
    }

    pub(crate) const fn since(self, since: Release) -> Self {
        Self { releases: ReleaseRange { since, ..self.releases }, ..self }
    }

    /// Applies only to releases before this one.
    pub(crate) const fn until(self, removed: Release) -> Self {
        Self { releases: ReleaseRange { removed: Some(removed), ..self.releases }, ..self }
    }
}

pub(crate) const fn immutable_field(path: &'static str, refusal: ViolationMessage) -> ImmutableField {
    ImmutableField {
        path,
        displayed_path: path,
        fixed_from: FixedFrom::Creation,
        violation: refusal,
        releases: ReleaseRange::ALL,
    }
}

pub(crate) const fn fixed_field(path: &'static str) -> ImmutableField {
    immutable_field(path, ViolationMessage::Invalid(FIELD_IS_IMMUTABLE))
}

pub(crate) const fn forbidden_change(path: &'static str, detail: &'static str) -> ImmutableField {
    immutable_field(path, ViolationMessage::Forbidden(detail))
}

/// The whole spec stays as created.
pub(crate) const SPEC_IS_FIXED: &[ImmutableField] = &[fixed_field("spec")];
