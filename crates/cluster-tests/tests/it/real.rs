//! Tests beside a real kube-apiserver. They run with `cargo xtask real` alone, and fail without `KUBEBUILDER_ASSETS`.

mod aggregation;
mod apply;
mod controllers;
mod conversion;
mod custom_responses;
mod definitions;
mod policies;
mod services;
mod validation;
