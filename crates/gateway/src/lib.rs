//! The mixed-version proxy in front of stock kube-apiservers: the pipeline of a server, with another *here*, another gate, and
//! upstreams for members.
//!
//! [`upstream`] names the upstreams; [`inspector`] asks each of them how it is and what it serves; [`upstream_storage`] shows that to
//! peering as if it stood in storage; [`vouching`] decides to which of them users may be named; [`upstreams`] is all of them together, and [`endpoint_slices`] finds some of
//! them. [`access_control`] knows people by their certificates and
//! judges nothing else, [`page_access`] asks an upstream who may see our own pages, and [`any_upstream`] has any upstream answer what is
//! about no resource, or about one that nobody has.
//!
//! A gateway grants nothing: whoever is let in anywhere is let in by the upstream that answers.

pub mod access_control;
pub mod any_upstream;
pub mod endpoint_slices;
pub mod inspector;
pub mod metrics;
pub mod page_access;
pub mod state_dir;
pub mod upstream;
mod upstream_client;
pub mod upstream_storage;
pub mod upstreams;
mod versioned_table;
pub mod vouching;

pub use access_control::{GatewayAccessControl, GatewayCaller};
pub use any_upstream::AnyUpstream;
pub use endpoint_slices::{Cidr, EndpointSlicePoller};
pub use page_access::PageAccessReviews;
pub use state_dir::StateDir;
pub use upstream::{Upstream, UpstreamError};
pub use upstream_client::{GatewayFetch, UpstreamClient};
pub use upstreams::{Upstreams, UpstreamsConfig};
pub use vouching::VouchingDecider;
