//! Label and field selectors.
//!
//! A selector is parsed once into requirements that match without allocating. Grammar, canonical form and error texts
//! are Kubernetes'. Parsing is iterative and linear in the length of the text.

mod field;
mod label;
mod requirement;

pub use field::{FieldOperator, FieldSelector, FieldSelectorError, FieldTerm};
pub use label::{ExpectedToken, LabelSelector, LabelSelectorError};
pub use requirement::{LabelOperator, LabelRequirement, LabelRequirementError};
