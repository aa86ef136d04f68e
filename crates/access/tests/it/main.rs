//! Access as the API server sees it: objects in, decisions out.
#![cfg(test)]

mod decision_reasons;
mod decisions;
mod escalation;
mod random_policies;
mod rbac_notation;
mod reference_evaluator;
mod token_lifecycle;
