//! The tests of the store: one suite for every backend, and what is special to each.

mod broken;
mod conformance;
mod memory;
mod sqlite_conformance;
