//! Values with types: the walks of structured merge.
//!
//! A [`Type`] says for a value whether it is a leaf, and how the items of lists are identified. Objects of built-in kinds
//! have the form that Go gives them ([`go_form()`]): comparisons of stored objects apply it while walking, everything else
//! works on values that have it.

mod atom;
mod atomics;
mod compare;
mod go_form;
mod items;
mod merge;
mod named_fields;
mod reconcile;
mod remove;
mod to_set;
mod validate;

pub(crate) use atom::Type;
pub(crate) use atomics::atomic_paths;
pub(crate) use compare::{Comparison, compare, objects_equal};
pub(crate) use go_form::{Form, drop_supplied, go_form};
#[cfg(test)]
pub(crate) use items::ELEMENTS_MADE;
pub(crate) use merge::merge;
pub(crate) use named_fields::with_named_fields;
pub(crate) use reconcile::{has_fields_below_atomic, reconcile};
pub(crate) use remove::{remove_items, restore_applied_empty};
pub(crate) use to_set::{has_duplicates, to_set};
pub(crate) use validate::validate;
