//! What the documents say, tried.

mod deploy;
mod readme;
