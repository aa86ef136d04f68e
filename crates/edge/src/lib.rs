//! The HTTP edge: connections in, responses out.
//!
//! [`listener`] accepts connections and parses request lines, [`pipeline`] takes each request through its stages in one function, and
//! [`error_response`] alone turns a failure into a response. A [`LocalHandler`] serves requests in this process and an
//! [`AccessControl`] authenticates and authorizes them: an API server and a gateway differ in these two values alone.
//!
//! Reading order: [`pipeline`], [`handler`], [`certificate_verification`], [`peer_routing`], [`merged_discovery`], [`openapi`],
//! [`error_response`], `record`, `request_framing`, [`audit`], [`access_log`], [`body`], `seats`, [`health`], [`metrics`], [`listener`].

pub mod access_log;
pub mod audit;
pub mod body;
pub mod certificate_verification;
pub mod error_response;
mod graceful_stop;
pub mod handler;
pub mod health;
pub mod identity_headers;
pub mod listener;
pub mod merged_discovery;
pub mod metrics;
pub mod openapi;
pub mod peer_fetch;
pub mod peer_routing;
pub mod pipeline;
mod record;
mod request_framing;
pub mod response;
pub mod routing_status;
mod seats;
mod send_limit;

pub use body::Body;
pub use error_response::Error;
pub use handler::{AccessControl, AuthorizedRequest, CachedConnection, ClientConnection, LocalHandler};
pub use pipeline::Pipeline;
pub use record::RequestRecord;

/// A response to a client.
pub type Response = http::Response<Body>;
/// A request from a client.
pub type Request = http::Request<hyper::body::Incoming>;
