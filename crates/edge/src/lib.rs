//! The rim of the program: connections in, responses out.
//!
//! [`listener`] accepts connections, [`pipeline`] takes each request through its stages in one function, [`error_response`] is the
//! only place where a failure becomes a response. What *here* means is a [`LocalHandler`], and who may do what is a [`AccessControl`]: a
//! server and a gateway differ in these two values alone.
//!
//! Reading order: [`pipeline`], [`handler`], [`certificate_verification`], [`peer_routing`], [`merged_discovery`], [`error_response`], [`audit`], [`access_log`], [`body`],
//! `seats`, [`health`], [`metrics`], [`listener`].

pub mod access_log;
pub mod audit;
pub mod body;
pub mod certificate_verification;
mod coarse_timer;
pub mod error_response;
mod graceful_stop;
pub mod handler;
pub mod health;
pub mod identity_headers;
pub mod listener;
pub mod merged_discovery;
pub mod metrics;
pub mod peer_routing;
pub mod pipeline;
mod seats;
mod send_limit;
mod write_coalescer;

pub use body::Body;
pub use error_response::Error;
pub use handler::{AccessControl, AuthorizedRequest, ClientConnection, LocalHandler};
pub use pipeline::Pipeline;

/// A response on its way out.
pub type Response = http::Response<Body>;
/// A request as it came in.
pub type Request = http::Request<hyper::body::Incoming>;
