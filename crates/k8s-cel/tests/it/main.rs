//! Tests of the crate through its interface.

mod case;
mod conformance;
mod fuzz;
mod lazy;
mod limits;
mod patches;
mod recorded;
mod releases;
