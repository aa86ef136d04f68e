//! Connections to peers: TLS that follows its files, a way there, and a pool for each peer.
//!
//! One request at a time travels on a connection, over HTTP/1.1. So a watch keeps a connection to itself and nothing ever waits
//! behind it; what is idle is used again, the last one first. No task runs for a connection: whoever waits for an answer, or
//! reads it, moves the connection along, and dropping either closes it, which is how a peer learns that nobody waits any more.
//!
//! Nothing here repeats a request or judges an answer. What a failure means is known by whether the request comes back with it.

mod body;
mod connection;
mod dial;
pub mod egress;
mod pool;
mod socket;
mod tls;
mod tunnel;

pub use body::{BoxError, PeerBody, RequestBody};
pub use dial::{DialError, Dialer, Egress, ProxyTls};
pub use pool::{Connector, Line, Pool, PoolLimits, SendError, ServedBy};
pub use tls::{ClientFiles, ClientTls, ClientTlsError};
pub use tunnel::{PeerEnd, join};

#[cfg(test)]
mod tests;
