//! `/openapi/v2` and `/openapi/v3` for all servers of the cluster.
//!
//! [`MergedOpenApi`] adds to this server's documents the resources that only peers serve; in a gateway the newest upstream takes the
//! place of this server. Documents of peers are fetched when a client needs them (`peer_documents`); which resources are missing
//! follows from the discovery documents in the view (`peer_only`). [`page`] turns documents into responses.

mod merged;
pub mod page;
mod peer_documents;
mod peer_only;

use std::fmt;

use futures_util::future::BoxFuture;
use schema::openapi::OpenApiDocument;

pub use merged::MergedOpenApi;

/// The documents of this server alone.
pub trait LocalOpenApi: fmt::Debug + Send + Sync {
    /// The paths of the group-versions below `/openapi/v3/`, and the hashes of their documents.
    fn addresses(&self) -> BoxFuture<'_, Vec<(String, Box<str>)>>;

    /// The document of a group-version: `apis/apps/v1`.
    fn version<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Option<OpenApiDocument>>;

    /// `/openapi/v2` in JSON.
    fn swagger(&self) -> BoxFuture<'_, OpenApiDocument>;
}
