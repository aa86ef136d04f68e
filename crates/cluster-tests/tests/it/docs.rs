//! Tests that execute the documentation.

mod deploy;
mod readme;
