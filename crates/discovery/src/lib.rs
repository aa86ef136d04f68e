//! Discovery documents: what a server serves, as values and as the bytes clients are given.
//!
//! A document is read ([`mod@parse`]) or built from parts ([`build()`]) into [`GroupDiscoveryList`]; several are merged into one ([`merge()`]);
//! the result is encoded once into a finished [`EncodedDocument`] ([`aggregated`], [`legacy`]), and [`respond()`] picks the bytes for
//! one request.
//!
//! Pure: no I/O, no clock, no async. Who is a member, and whether it is live, comes in as a value. The same set of inputs gives
//! the same bytes on every server.

pub mod aggregated;
pub mod build;
pub mod document;
pub mod groups;
mod intern;
pub mod legacy;
pub mod merge;
pub mod parse;
mod protobuf;
pub mod respond;
#[cfg(test)]
mod testing;

pub use build::{DiscoverySource, LocalGroupVersion, build};
pub use document::EncodedDocument;
pub use groups::{
    CreationTimestamp, DiscoveryEtag, DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList,
    ResourceDiscovery, SharedStr, SharedStrList, SubresourceDiscovery, VersionDiscovery,
};
pub use intern::Interner;
pub use merge::{Conflict, MergeInput, MergedDiscovery, ServerLiveness, merge};
pub use parse::ParseError;
pub use respond::respond;
