//! Tests of the crate through its interface.

mod case;
mod limits;
mod recorded;
mod releases;
