//! Requests over raw sockets that no HTTP library sends: at one server, forwarded to a peer, and at a gateway.
//!
//! Every request of jane and joe names its sender in the query, so that a request that is executed as another user is
//! found in the audit logs and in what the gateway's upstream receives.

mod floods;
mod frames;
mod http1;
mod http2;
mod identity_headers;
mod site;
