//! The mixed-version proxy in front of stock kube-apiservers: a server's pipeline whose members are upstreams.
//!
//! [`upstream`] names the upstreams; [`inspector`] asks each of them whether it is ready and what it serves; [`upstream_members`]
//! hands that to membership as observations; [`vouching`] decides to which of them users are named; [`upstreams`] holds all of them,
//! and [`endpoint_slices`] finds some of them. [`access_control`] authenticates client certificates and authorizes nothing,
//! [`page_access`] asks an upstream who may see the gateway's own pages, and [`any_upstream`] has any upstream answer requests that
//! are about no resource, or about one that no upstream serves.
//!
//! A gateway grants nothing: the upstream that answers authorizes the request.

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
