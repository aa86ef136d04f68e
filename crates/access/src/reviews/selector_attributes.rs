//! The selectors in a review's resource attributes. RBAC ignores them; they are validated, and parse errors are
//! reported.

use api::FieldError;
use api::selector::{FieldSelector, LabelOperator, LabelRequirement, LabelSelector};
use api::validation;
use api::wire::{null_is_default, objects};
use serde::{Deserialize, Serialize};

use crate::rbac::LabelSelectorRequirement;

/// A selector, as text or as requirements.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SelectorAttributes {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    raw_selector: String,
    #[serde(default, deserialize_with = "objects", skip_serializing_if = "Vec::is_empty")]
    requirements: Vec<LabelSelectorRequirement>,
}

/// How much of a selector cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnoredExtent {
    Entirely,
    Partially,
}

impl IgnoredExtent {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Entirely => "ignored",
            Self::Partially => "partially ignored",
        }
    }

    fn from_counts(understood: usize, total: usize) -> Option<Self> {
        match understood {
            _ if understood == total => None,
            0 => Some(Self::Entirely),
            _ => Some(Self::Partially),
        }
    }
}

impl SelectorAttributes {
    pub(super) fn validate_as_field_selector(&self, path: &str) -> Vec<FieldError> {
        self.validate_with(path, |requirement, path| {
            if requirement.key.is_empty() {
                return vec![FieldError::required(format!("{path}.key"), "must be specified")];
            }
            Vec::new()
        })
    }

    pub(super) fn validate_as_label_selector(&self, path: &str) -> Vec<FieldError> {
        self.validate_with(path, |requirement, path| {
            let key = validation::validate_label_key(&requirement.key).into_iter();
            let mut errors: Vec<FieldError> =
                key.map(|error| FieldError::invalid(format!("{path}.key"), requirement.key.as_str(), error)).collect();
            for (index, value) in requirement.values.iter().enumerate() {
                let values = validation::validate_label_value(value).into_iter();
                errors.extend(
                    values.map(|error| FieldError::invalid(format!("{path}.values[{index}]"), value.as_str(), error)),
                );
            }
            errors
        })
    }

    /// Returns how much of the field selector cannot be parsed; `None` if all of it can.
    pub(super) fn ignored_field_terms(&self) -> Option<IgnoredExtent> {
        if !self.requirements.is_empty() {
            let is_understood = |requirement: &&LabelSelectorRequirement| {
                matches!(requirement.operator.as_str(), "In" | "NotIn") && requirement.values.len() == 1
            };
            return IgnoredExtent::from_counts(
                self.requirements.iter().filter(is_understood).count(),
                self.requirements.len(),
            );
        }
        FieldSelector::parse(&self.raw_selector).is_err().then_some(IgnoredExtent::Entirely)
    }

    /// Returns how much of the label selector cannot be parsed; `None` if all of it can.
    pub(super) fn ignored_label_terms(&self) -> Option<IgnoredExtent> {
        if !self.requirements.is_empty() {
            let is_understood = |requirement: &&LabelSelectorRequirement| {
                let operator = match requirement.operator.as_str() {
                    "In" => LabelOperator::In,
                    "NotIn" => LabelOperator::NotIn,
                    "Exists" => LabelOperator::Exists,
                    "DoesNotExist" => LabelOperator::DoesNotExist,
                    _ => return false,
                };
                LabelRequirement::new(&*requirement.key, operator, requirement.values.clone()).is_ok()
            };
            return IgnoredExtent::from_counts(
                self.requirements.iter().filter(is_understood).count(),
                self.requirements.len(),
            );
        }
        LabelSelector::parse(&self.raw_selector).is_err().then_some(IgnoredExtent::Entirely)
    }

    fn validate_with(
        &self,
        path: &str,
        validate_requirement: impl Fn(&LabelSelectorRequirement, &str) -> Vec<FieldError>,
    ) -> Vec<FieldError> {
        let mut errors = Vec::new();
        match (self.raw_selector.is_empty(), self.requirements.is_empty()) {
            (false, false) => errors.push(FieldError::invalid(
                format!("{path}.rawSelector"),
                self.raw_selector.as_str(),
                "may not specified at the same time as requirements",
            )),
            (true, true) => errors.push(FieldError::required(
                format!("{path}.requirements"),
                format!("when {path} is specified, requirements or rawSelector is required"),
            )),
            _ => {}
        }
        for (index, requirement) in self.requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{index}]");
            errors.extend(operator_error(requirement, &format!("{path}.values")));
            errors.extend(validate_requirement(requirement, &path));
        }
        errors
    }
}

/// Validates the values of known operators. Unknown operators are accepted: clients of a newer release may send them.
fn operator_error(requirement: &LabelSelectorRequirement, values: &str) -> Option<FieldError> {
    match (requirement.operator.as_str(), requirement.values.is_empty()) {
        ("In" | "NotIn", true) => {
            Some(FieldError::required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
        }
        ("Exists" | "DoesNotExist", false) => {
            Some(FieldError::forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        }
        _ => None,
    }
}
