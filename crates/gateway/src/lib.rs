//! The mixed-version proxy in front of stock kube-apiservers: the pipeline of a server, with another *here*, another gate, and
//! upstreams for members.
//!
//! [`upstream`] names the upstreams; [`inspector`] asks each of them how it is and what it serves; [`board`] shows that to
//! peering as if it stood in storage; [`vouching`] decides to which of them users may be named; [`upstreams`] is all of them together, and [`slices`] finds some of
//! them. [`gate`] knows people by their certificates and
//! judges nothing else, [`reviews`] asks an upstream who may see our own pages, and [`local`] has any upstream answer what is
//! about no resource, or about one that nobody has.
//!
//! A gateway grants nothing: whoever is let in anywhere is let in by the upstream that answers.

pub mod board;
pub mod gate;
pub mod inspector;
pub mod local;
pub mod metrics;
pub mod reviews;
mod shelf;
pub mod slices;
pub mod state_dir;
pub mod upstream;
pub mod upstreams;
pub mod vouching;
mod way;

pub use gate::{Caller, GatewayGate};
pub use local::AnyUpstream;
pub use reviews::Reviews;
pub use slices::{Cidr, Slices};
pub use state_dir::StateDir;
pub use upstream::{Upstream, UpstreamError};
pub use upstreams::{Config, Upstreams};
pub use vouching::Vouching;
pub use way::{AsGateway, Way};
