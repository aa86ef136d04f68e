//! One Kubernetes object: how it is kept, and the rules that hold whatever its kind.
//!
//! Pure: no I/O, no clock, no async. [`stored`] is the form in which objects lie in storage and in memory, as finished bytes.

pub mod stored;

pub use stored::{Stored, Undecodable};
