//! Access as the API server sees it: objects in, decisions out.
#![cfg(test)]

mod decisions;
mod escalation;
mod flow;
mod random;
mod reasons;
mod slow;
mod world;
