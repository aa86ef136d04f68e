//! The vocabulary of validation rules: how a kind's file says what is valid.
//!
//! A rule reads one [`Field`], a value together with its path, and reports what is wrong with it in Kubernetes' words.
//! Rules of a kind are functions over its root field; the shapes that recur in many kinds are methods and functions of the
//! modules here: names, numbers, labels and selectors, quantities, addresses, references.
//!
//! A rule reports and never stops: like Kubernetes, a response names every invalid field. Objects have passed the type
//! check, so that a rule treats a value of another type as absent.

pub(crate) mod addresses;
pub(crate) mod conditions;
pub(crate) mod field;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod references;
pub(crate) mod resources;
pub(crate) mod volume_sources;

pub(crate) use field::{Field, Report, go_label_selector, go_object};
