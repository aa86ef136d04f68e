//! REST verbs on built-in resources.

mod bad_input;
mod immutable_fields;
pub(crate) mod kinds;
mod lists;
mod number_limits;
mod objects;
mod protobuf;
mod scale;
mod watches;
