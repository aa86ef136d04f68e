//! Tests of the crate's public interface: recorded documents, malformed input, and properties of the merge.
#![cfg(test)]

mod malformed_input;
mod merge_properties;
mod recorded_documents;
