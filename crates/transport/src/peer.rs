//! Connections to peers: TLS configuration that follows its files, dialing, and one connection pool per peer.
//!
//! Short requests use HTTP/1.1, one at a time per connection; idle connections are reused, the most recently used
//! first. No task drives an HTTP/1.1 connection: the future that awaits the response, or the body being read, polls
//! it. Dropping either closes the connection, which tells the peer that the request is cancelled.
//!
//! Long-running responses such as watches are multiplexed over HTTP/2 where the peer supports it, because one
//! connection each would cost more than the stream. They use connections of their own, so that short requests never
//! queue behind them; a full connection makes the pool open another.
//!
//! This module neither retries requests nor interprets responses. On failure the caller gets the request back if none
//! of it was sent.

mod body;
mod dial;
pub mod egress;
mod error;
mod h2_connection;
mod h2_connection_set;
mod http1_connection;
mod pool;
mod socket;
mod tls;
mod tunnel;

pub use body::{BoxError, PeerBody, RequestBody};
pub use dial::{DialError, Dialer, Egress, ProxyTls};
pub use error::PeerConnectionError;
pub use pool::{ConnectionPool, Connector, PoolLimits, PoolStats, PooledConnection, SendError, StreamClass};
pub use tls::{ClientCertificate, ClientTls, ClientTlsError, ClientTlsFiles, ServerTrust};
pub use tunnel::{PeerUpgrade, copy_bidirectional, copy_bidirectional_throttled};

#[cfg(test)]
mod tests;
