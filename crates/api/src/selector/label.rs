//! Label selectors: `app=web,tier in (front,back),!legacy`.

mod lexer;
mod parser;

use std::fmt;

use super::requirement::{LabelRequirement, LabelRequirementError};
use crate::field_error::FieldError;

/// A conjunction of requirements; the empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// In the order of their keys.
    requirements: Vec<LabelRequirement>,
}

/// A text that is no label selector. Prints as Kubernetes prints it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    /// A requirement ends or begins wrongly.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token at fault; empty at the end of the text.
        found: Box<str>,
        /// What could stand there.
        expected: ExpectedToken,
    },
    /// Something inside a requirement is out of place.
    #[error("unable to parse requirement: found '{found}'{}expected: {expected}", expected.separator())]
    UnexpectedInRequirement {
        /// The token at fault; empty at the end of the text.
        found: Box<str>,
        /// What could stand there.
        expected: ExpectedToken,
    },
    /// The key is not a label key.
    #[error("unable to parse requirement: {0}")]
    Key(FieldError),
    /// The values do not fit the operator, or are not label values.
    #[error("unable to parse requirement: {0}")]
    Requirement(#[from] LabelRequirementError),
}

/// What could stand in the place of an unexpected token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedToken {
    /// The start of a requirement, or nothing.
    RequirementOrEnd,
    /// The start of a requirement.
    RequirementAfterComma,
    /// The next requirement, or nothing.
    CommaOrEnd,
    /// A key or a value.
    Identifier,
    /// An operator.
    Operator,
    /// The list of values.
    OpeningParenthesis,
    /// A value, or the end of the list.
    ValueOrClosingParenthesis,
    /// More values, or the end of the list.
    CommaOrClosingParenthesis,
    /// A value, or an empty one.
    CommaOrValue,
}

impl LabelSelector {
    /// Reads a selector; the empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        parser::parse_requirements(text).map(Self::from_iter)
    }

    /// Whether an object is selected; `label` looks up one of its labels.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(requirement.key())))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions, all of which must hold, in the order of their keys.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }
}

impl FromIterator<LabelRequirement> for LabelSelector {
    fn from_iter<Requirements: IntoIterator<Item = LabelRequirement>>(requirements: Requirements) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Self { requirements }
    }
}

/// The canonical form: requirements in the order of their keys, values sorted.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl ExpectedToken {
    /// One of Kubernetes' messages lacks the comma.
    fn separator(self) -> &'static str {
        if self == Self::OpeningParenthesis { " " } else { ", " }
    }
}

impl fmt::Display for ExpectedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequirementOrEnd => "!, identifier, or 'end of string'",
            Self::RequirementAfterComma => "identifier after ','",
            Self::CommaOrEnd => "',' or 'end of string'",
            Self::Identifier => "identifier",
            Self::Operator => "in, notin, =, ==, !=, gt, lt",
            Self::OpeningParenthesis => "'('",
            Self::ValueOrClosingParenthesis => "',', ')' or identifier",
            Self::CommaOrClosingParenthesis => "',' or ')'",
            Self::CommaOrValue => "',', or identifier",
        })
    }
}

#[cfg(test)]
mod tests;
