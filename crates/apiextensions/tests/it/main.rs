//! Definitions over the public interface of the crate.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lifecycle;
mod options;
mod recorded;
mod releases;

use options::options;
