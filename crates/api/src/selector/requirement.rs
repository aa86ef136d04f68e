//! A requirement on one label.

use std::fmt;

use crate::field_error::FieldError;
use crate::validation;

/// A requirement on one label, always valid: [`LabelRequirement::new`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    /// Sorted, without duplicates.
    values: Vec<String>,
    /// The integer that `>` and `<` compare with; 0 for other operators.
    bound: i64,
}

/// The comparison of a label requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// The value is in the list.
    In,
    /// The label is absent, or its value is not in the list.
    NotIn,
    /// The value is equal, written `=`.
    Equals,
    /// The value is equal, written `==`.
    DoubleEquals,
    /// The label is absent, or its value differs.
    NotEquals,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is a greater integer.
    GreaterThan,
    /// The value is a smaller integer.
    LessThan,
}

/// An invalid requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirementError {
    /// Never empty.
    errors: Vec<FieldError>,
}

/// Limit on reported errors: a request line can contain thousands of bad values, and each message is far longer.
const REPORTED_ERRORS_MAX: usize = 16;

impl LabelRequirement {
    /// Validates key, number of values, and values; sorts the values and removes duplicates.
    pub fn new(
        key: impl Into<String>,
        operator: LabelOperator,
        values: Vec<String>,
    ) -> Result<Self, LabelRequirementError> {
        let (key, mut values) = (key.into(), values);
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        let faults = validation::validate_label_key(&key);
        if !faults.is_empty() {
            errors.push(FieldError::invalid("key", key.as_str(), faults.join("; ")));
        }
        if let Some(error) = operator.values_count_error(values.len()) {
            errors.push(FieldError::invalid("values", values.clone(), error));
        }
        let bound = match operator {
            LabelOperator::GreaterThan | LabelOperator::LessThan => parse_bound(&values, &mut errors),
            LabelOperator::In
            | LabelOperator::NotIn
            | LabelOperator::Equals
            | LabelOperator::DoubleEquals
            | LabelOperator::NotEquals
            | LabelOperator::Exists
            | LabelOperator::DoesNotExist => 0,
        };
        for (index, value) in values.iter().enumerate() {
            let faults = validation::validate_label_value(value);
            if !faults.is_empty() && errors.len() < REPORTED_ERRORS_MAX {
                errors.push(FieldError::invalid(format!("values[{index}][{key}]"), value.as_str(), faults.join("; ")));
            }
        }
        if errors.is_empty() {
            Ok(Self { key, operator, values, bound })
        } else {
            Err(LabelRequirementError { errors })
        }
    }

    /// Returns the label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the comparison.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// Returns the values, sorted.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Reports whether a label value matches; `None` means that the label is absent.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |value: &str| self.values.iter().any(|candidate| candidate == value);
        match self.operator {
            LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => value.is_some_and(is_among),
            LabelOperator::NotIn | LabelOperator::NotEquals => !value.is_some_and(is_among),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan => parse_integer(value).is_some_and(|value| value > self.bound),
            LabelOperator::LessThan => parse_integer(value).is_some_and(|value| value < self.bound),
        }
    }
}

impl LabelOperator {
    fn values_count_error(self, values: usize) -> Option<&'static str> {
        match self {
            Self::In | Self::NotIn => (values == 0).then_some("for 'in', 'notin' operators, values set can't be empty"),
            Self::Equals | Self::DoubleEquals | Self::NotEquals => {
                (values != 1).then_some("exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist => {
                (values != 0).then_some("values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan => {
                (values != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
        }
    }
}

fn parse_bound(values: &[String], errors: &mut Vec<FieldError>) -> i64 {
    let mut bound = 0;
    for (index, value) in values.iter().enumerate() {
        match value.parse() {
            Ok(number) => bound = number,
            Err(_) => {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{index}]"), value.as_str(), detail));
            }
        }
    }
    bound
}

fn parse_integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

/// Formats canonically; parsing the result yields the same requirement.
impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values, .. } = self;
        let values = values.join(",");
        match operator {
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl fmt::Display for LabelRequirementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&FieldError::aggregate(&self.errors).unwrap_or_default())
    }
}

impl std::error::Error for LabelRequirementError {}
