//! Discovery through its public face: documents of real servers, hostile bytes, and the laws of the merge.
#![cfg(test)]

mod malformed_input;
mod merge_properties;
mod recorded_documents;
