//! Tests of the crate through its interface.

mod case;
mod fuzz;
mod limits;
mod recorded;
mod releases;
