//! The lab's page in a real browser, with snapshots made up for the purpose.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accessibility;
mod page_server;
mod rendering;
