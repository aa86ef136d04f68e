//! Custom resources: from CustomResourceDefinition objects to served resources.
//!
//! Everything here is a function over values: a definition object in, its verdict, its served versions, its names or its
//! next condition out. Storage, caches and requests are `apiserver`'s.

pub mod columns;
pub mod conversion;
pub mod custom_resource;
pub mod definition;
pub mod discovery;
mod embedded;
mod finalizers;
pub mod json_path;
pub mod lifecycle;
pub mod naming;
pub mod openapi;
pub mod rules;
pub mod scale;
pub mod selectable_fields;
pub mod validation;

pub use custom_resource::CustomResourceVersion;
pub use definition::Definition;
pub use embedded::validate_embedded_metadata;
pub use finalizers::finalizer_warnings;
pub use rules::{RuleOutcome, Rules};
