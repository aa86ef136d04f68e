//! Custom resources: from CustomResourceDefinition objects to served resources.
//!
//! Everything here is a function over values: a definition object in, its verdict, its served versions, its names or its
//! next condition out. Storage, caches and requests are `apiserver`'s.

pub mod definition;
pub mod lifecycle;
pub mod rules;
pub mod validation;

pub use definition::Definition;
pub use rules::{RuleOutcome, Rules};
