//! Who the servers are, what each serves, and where a request goes.

pub mod ask;
pub mod askers;
pub mod cluster;
pub mod debug;
pub mod documents;
pub mod endpoints;
pub mod exclusion;
pub mod hop;
pub mod identity;
pub mod members;
pub mod membership;
pub mod merged;
pub mod metrics;
mod pace;
pub mod ports;
pub mod presence;
mod prove;
pub mod readiness;
pub mod route;
pub mod status;
mod sweep;
pub mod table;
#[cfg(test)]
mod testing;
pub mod view;
mod wait;

pub use cluster::{Cluster, Config, Ports};
pub use documents::ServerDocument;
pub use endpoints::Address;
pub use hop::Hop;
pub use identity::{HolderIdentity, ServerId};
pub use prove::{NotProven, Prover};
pub use route::{Proof, Route, Unavailable, Why, route};
pub use table::{MemberIndex, Table};
pub use view::View;
