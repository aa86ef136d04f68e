//! Connections to peers: TLS that follows its files, a way there, and a pool for each peer.
//!
//! Short requests travel one at a time on a connection, over HTTP/1.1; what is idle is used again, the last one first. No task
//! runs for such a connection: whoever waits for an answer, or reads it, moves the connection along, and dropping either closes
//! it, which is how a peer learns that nobody waits any more.
//!
//! Answers that last, such as watches, share connections over HTTP/2 where the peer speaks it: a connection each would cost more
//! than the answer. They are apart from the others, so that nothing short ever waits behind them, and when one connection is
//! full the next is opened, so that they do not wait for each other either.
//!
//! Nothing here repeats a request or judges an answer. What a failure means is known by whether the request comes back with it.

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
pub use tls::{ClientTls, ClientTlsError, ClientTlsFiles};
pub use tunnel::{PeerUpgrade, copy_bidirectional, copy_bidirectional_throttled};

#[cfg(test)]
mod tests;
