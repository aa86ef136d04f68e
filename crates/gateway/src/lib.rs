//! The mixed-version proxy in front of stock kube-apiservers: a server's pipeline whose members are upstreams.
//!
//! - [`upstreams`] holds the current set of [`upstream`]s, as configured or as found by [`endpoint_slices`].
//! - [`inspector`] polls each upstream for readiness and discovery; [`upstream_members`] feeds the results to
//!   membership.
//! - [`vouching`] decides which upstreams receive front-proxy user headers.
//! - [`access_control`] authenticates client certificates and authorizes nothing; [`page_access`] sends access reviews
//!   to an upstream for the gateway's own pages.
//! - [`any_upstream`] forwards requests that name no resource, or a resource that no upstream serves, to any ready
//!   upstream.
//!
//! A gateway grants nothing: the upstream that serves a request authorizes it.

pub mod access_control;
pub mod any_upstream;
pub mod endpoint_slices;
pub mod inspector;
pub mod metrics;
pub mod page_access;
pub mod state_dir;
pub mod upstream;
mod upstream_client;
pub mod upstream_members;
pub mod upstreams;
mod versioned_table;
pub mod vouching;

pub use access_control::{GatewayAccessControl, GatewayCaller};
pub use any_upstream::AnyUpstream;
pub use endpoint_slices::{Cidr, EndpointSlicePoller};
pub use page_access::PageAccessReviews;
pub use state_dir::StateDir;
pub use upstream::{Upstream, UpstreamError};
pub use upstream_client::UpstreamClient;
pub use upstreams::{Upstreams, UpstreamsConfig};
pub use vouching::VouchingDecider;
