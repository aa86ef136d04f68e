//! Compares the served resources of every release with documents of real kube-apiservers.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests: they end where data is not as described, and say what they saw"
)]

mod recorded_documents;
