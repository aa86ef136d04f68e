//! The selectors that a question about access may carry. RBAC does not look at them; they are checked and told about.

use api::FieldError;
use api::selector::{FieldSelector, LabelSelector, Operator, Requirement as LabelRequirement};
use api::validation;
use api::wire::{null_is_default, objects};
use serde::{Deserialize, Serialize};

use crate::rbac::Requirement;

/// A selector as text or as requirements.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Selector {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    raw_selector: String,
    #[serde(default, deserialize_with = "objects", skip_serializing_if = "Vec::is_empty")]
    requirements: Vec<Requirement>,
}

/// How much of a selector was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    All,
    Some,
}

impl Problem {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::All => "ignored",
            Self::Some => "partially ignored",
        }
    }

    fn of(understood: usize, total: usize) -> Option<Self> {
        match understood {
            _ if understood == total => None,
            0 => Some(Self::All),
            _ => Some(Self::Some),
        }
    }
}

impl Selector {
    pub(super) fn field_faults(&self, path: &str) -> Vec<FieldError> {
        self.faults(path, |requirement, path| {
            if requirement.key.is_empty() {
                return vec![FieldError::required(format!("{path}.key"), "must be specified")];
            }
            Vec::new()
        })
    }

    pub(super) fn label_faults(&self, path: &str) -> Vec<FieldError> {
        self.faults(path, |requirement, path| {
            let key = validation::label_key(&requirement.key).into_iter();
            let mut faults: Vec<FieldError> =
                key.map(|fault| FieldError::invalid(format!("{path}.key"), requirement.key.as_str(), fault)).collect();
            for (index, value) in requirement.values.iter().enumerate() {
                let values = validation::label_value(value).into_iter();
                faults.extend(
                    values.map(|fault| FieldError::invalid(format!("{path}.values[{index}]"), value.as_str(), fault)),
                );
            }
            faults
        })
    }

    pub(super) fn field_problem(&self) -> Option<Problem> {
        if !self.requirements.is_empty() {
            let is_understood = |requirement: &&Requirement| {
                matches!(requirement.operator.as_str(), "In" | "NotIn") && requirement.values.len() == 1
            };
            return Problem::of(self.requirements.iter().filter(is_understood).count(), self.requirements.len());
        }
        FieldSelector::parse(&self.raw_selector).is_err().then_some(Problem::All)
    }

    pub(super) fn label_problem(&self) -> Option<Problem> {
        if !self.requirements.is_empty() {
            let is_understood = |requirement: &&Requirement| {
                let operator = match requirement.operator.as_str() {
                    "In" => Operator::In,
                    "NotIn" => Operator::NotIn,
                    "Exists" => Operator::Exists,
                    "DoesNotExist" => Operator::DoesNotExist,
                    _ => return false,
                };
                LabelRequirement::new(&*requirement.key, operator, requirement.values.clone()).is_ok()
            };
            return Problem::of(self.requirements.iter().filter(is_understood).count(), self.requirements.len());
        }
        LabelSelector::parse(&self.raw_selector).is_err().then_some(Problem::All)
    }

    fn faults(&self, path: &str, special: impl Fn(&Requirement, &str) -> Vec<FieldError>) -> Vec<FieldError> {
        let mut faults = Vec::new();
        match (self.raw_selector.is_empty(), self.requirements.is_empty()) {
            (false, false) => faults.push(FieldError::invalid(
                format!("{path}.rawSelector"),
                self.raw_selector.as_str(),
                "may not specified at the same time as requirements",
            )),
            (true, true) => faults.push(FieldError::required(
                format!("{path}.requirements"),
                format!("when {path} is specified, requirements or rawSelector is required"),
            )),
            _ => {}
        }
        for (index, requirement) in self.requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{index}]");
            faults.extend(operator_fault(requirement, &format!("{path}.values")));
            faults.extend(special(requirement, &path));
        }
        faults
    }
}

/// Operators that we do not know are let through: they are asked by clients of a newer release.
fn operator_fault(requirement: &Requirement, values: &str) -> Option<FieldError> {
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
