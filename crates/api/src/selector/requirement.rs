//! One condition on one label.

use std::fmt;

use crate::field_error::FieldError;
use crate::validation;

/// A condition on one label. Always valid: it can only be made by [`Requirement::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, each once.
    values: Vec<String>,
    /// What `>` and `<` compare with; zero for all others.
    bound: i64,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Its value is one of several.
    In,
    /// It is absent, or its value is none of several.
    NotIn,
    /// Its value is this one, written `=`.
    Equals,
    /// Its value is this one, written `==`.
    DoubleEquals,
    /// It is absent, or its value is another.
    NotEquals,
    /// It is present.
    Exists,
    /// It is absent.
    DoesNotExist,
    /// Its value is a greater integer.
    GreaterThan,
    /// Its value is a lesser integer.
    LessThan,
}

/// A condition that breaks the rules of keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementError {
    /// Never empty.
    errors: Vec<FieldError>,
}

/// How many errors are told: a request line has room for thousands of bad values, and each message is far longer.
const ERRORS_MAX: usize = 16;

impl Requirement {
    /// Checks key, number of values, and values; values are sorted and doubles dropped.
    pub fn new(key: impl Into<String>, operator: Operator, values: Vec<String>) -> Result<Self, RequirementError> {
        let (key, mut values) = (key.into(), values);
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        let faults = validation::label_key(&key);
        if !faults.is_empty() {
            errors.push(FieldError::invalid("key", key.as_str(), faults.join("; ")));
        }
        if let Some(fault) = operator.fault_of_count(values.len()) {
            errors.push(FieldError::invalid("values", values.clone(), fault));
        }
        let bound = match operator {
            Operator::GreaterThan | Operator::LessThan => bound_of(&values, &mut errors),
            Operator::In
            | Operator::NotIn
            | Operator::Equals
            | Operator::DoubleEquals
            | Operator::NotEquals
            | Operator::Exists
            | Operator::DoesNotExist => 0,
        };
        for (index, value) in values.iter().enumerate() {
            let faults = validation::label_value(value);
            if !faults.is_empty() && errors.len() < ERRORS_MAX {
                errors.push(FieldError::invalid(format!("values[{index}][{key}]"), value.as_str(), faults.join("; ")));
            }
        }
        if errors.is_empty() { Ok(Self { key, operator, values, bound }) } else { Err(RequirementError { errors }) }
    }

    /// The label it is about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it compares.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it compares with, sorted.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether an object with this value of the label meets the condition; `None` is absence.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |value: &str| self.values.iter().any(|candidate| candidate == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(is_among),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(is_among),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => integer(value).is_some_and(|value| value > self.bound),
            Operator::LessThan => integer(value).is_some_and(|value| value < self.bound),
        }
    }
}

impl Operator {
    fn fault_of_count(self, values: usize) -> Option<&'static str> {
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

fn bound_of(values: &[String], errors: &mut Vec<FieldError>) -> i64 {
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

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

/// The canonical form, which parses back to the same requirement.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values, .. } = self;
        let values = values.join(",");
        match operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl fmt::Display for RequirementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&FieldError::aggregate(&self.errors).unwrap_or_default())
    }
}

impl std::error::Error for RequirementError {}
