//! Selectors: which objects a list, a watch or a deletion is about.
//!
//! Text is parsed once into requirements that match without allocating. Grammar, canonical form and error texts are
//! Kubernetes'. Parsing is a loop, not a recursion, and takes time and space in proportion to the text.

mod field;
mod label;
mod requirement;

pub use field::{FieldOperator, FieldSelector, FieldSelectorError, FieldTerm};
pub use label::{ExpectedToken, LabelSelector, LabelSelectorError};
pub use requirement::{LabelOperator, LabelRequirement, LabelRequirementError};
