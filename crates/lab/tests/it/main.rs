//! Tests of the lab's page in a real browser, with constructed snapshots.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accessibility;
mod page_server;
mod rendering;
