//! Label selectors: `app=web,tier in (front,back),!legacy`.

mod lexer;
mod parser;

use std::fmt;

use super::requirement::{LabelRequirement, LabelRequirementError};
use crate::field_error::FieldError;

/// A conjunction of requirements; empty matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key.
    requirements: Vec<LabelRequirement>,
}

/// A malformed label selector; displays as in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    /// An unexpected token before or after a requirement.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token; empty at the end of the text.
        found: Box<str>,
        /// The tokens permitted there.
        expected: ExpectedToken,
    },
    /// An unexpected token within a requirement.
    #[error("unable to parse requirement: found '{found}'{}expected: {expected}", expected.separator())]
    UnexpectedInRequirement {
        /// The token; empty at the end of the text.
        found: Box<str>,
        /// The tokens permitted there.
        expected: ExpectedToken,
    },
    /// The key is not a label key.
    #[error("unable to parse requirement: {0}")]
    Key(FieldError),
    /// The values do not match the operator, or are not label values.
    #[error("unable to parse requirement: {0}")]
    Requirement(#[from] LabelRequirementError),
}

/// The tokens permitted in place of an unexpected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedToken {
    /// A requirement, or the end.
    RequirementOrEnd,
    /// A requirement.
    RequirementAfterComma,
    /// A further requirement, or the end.
    CommaOrEnd,
    /// A key or a value.
    Identifier,
    /// An operator.
    Operator,
    /// The start of the value list.
    OpeningParenthesis,
    /// A value, or the end of the list.
    ValueOrClosingParenthesis,
    /// A further value, or the end of the list.
    CommaOrClosingParenthesis,
    /// A value, or an empty one.
    CommaOrValue,
}

impl LabelSelector {
    /// Parses a selector; empty text matches everything.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        parser::parse_requirements(text).map(Self::from_iter)
    }

    /// Reports whether an object matches; `label` returns a label's value.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(requirement.key())))
    }

    /// Reports whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, all of which must match, sorted by key.
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

/// Formats canonically: requirements sorted by key, values sorted.
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
