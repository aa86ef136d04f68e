//! Tests of the crate's public interface.
#![cfg(test)]

mod decision_reasons;
mod decisions;
mod escalation;
mod random_policies;
mod rbac_notation;
mod reference_evaluator;
mod token_lifecycle;
