//! Discovery documents: data model, parsing, merging and encoding.
//!
//! A document is parsed ([`mod@parse`]) or built from local sources ([`build()`]) into a [`GroupDiscoveryList`]. The
//! documents of several servers are merged ([`merge()`]). The result is encoded once into an [`EncodedDocument`]
//! ([`aggregated`], [`legacy`]), from which [`respond()`] answers requests.
//!
//! No I/O, no clock, no async: members and their liveness are inputs. Equal inputs give equal bytes on every server.

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
