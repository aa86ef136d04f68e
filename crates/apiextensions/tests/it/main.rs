//! Definitions over the public interface of the crate.

mod lifecycle;
mod recorded;
mod releases;
