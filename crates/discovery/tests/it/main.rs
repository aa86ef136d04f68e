//! Discovery through its public face: documents of real servers, hostile bytes, and the laws of the merge.
#![cfg(test)]

mod hostile;
mod laws;
mod real;
