//! The rim of the program: connections in, responses out.
//!
//! [`listener`] accepts connections, [`pipeline`] takes each request through its stages in one function, [`respond`] is the
//! only place where a failure becomes a response. What *here* means is a [`Local`], and who may do what is a [`Gate`]: a
//! server and a gateway differ in these two values alone.
//!
//! Reading order: [`pipeline`], [`call`], [`certificates`], [`peers`], [`merged`], [`respond`], [`audit`], [`access_log`], [`body`],
//! `seats`, [`health`], [`metrics`], [`listener`].

pub mod access_log;
pub mod audit;
pub mod body;
pub mod call;
pub mod certificates;
pub mod claims;
mod cork;
mod glance;
pub mod health;
pub mod listener;
pub mod merged;
pub mod metrics;
pub mod peers;
pub mod pipeline;
pub mod respond;
mod seats;
mod sending;
mod stopping;

pub use body::Body;
pub use call::{Call, Connection, Gate, Local};
pub use pipeline::Pipeline;
pub use respond::Error;

/// A response on its way out.
pub type Response = http::Response<Body>;
/// A request as it came in.
pub type Request = http::Request<hyper::body::Incoming>;
