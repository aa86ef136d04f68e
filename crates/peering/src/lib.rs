//! Who the servers of a cluster are, what each serves, and where a request goes.
//!
//! A pure core decides: [`identity`], [`endpoints`] and [`documents`] read what servers leave in storage about themselves;
//! [`members`] judges them by it; [`table`] and [`view`] hold what follows; [`route()`] places a request; [`merged`] is the one
//! discovery document of all; [`status`] and [`debug`] say why. A thin shell acts through [`ports`]: [`membership`] follows
//! storage and is the only writer of the view, [`askers`] ask those who do not publish, [`presence`] makes us a member,
//! [`forward`] carries requests to others.
//! [`Cluster`] wires all of it.
//!
//! States follow from storage alone, so that all servers agree. Failure is never read as absence. Nothing is kept for ever.

pub mod ask;
pub mod askers;
pub mod cluster;
pub mod debug;
pub mod documents;
pub mod endpoints;
pub mod exclusion;
pub mod forward;
pub mod hop;
pub mod identity;
pub mod members;
pub mod membership;
pub mod merged;
pub mod metrics;
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
pub use route::{Proof, Route, Unavailable, Unfit, Why, route};
pub use table::{MemberIndex, Table};
pub use view::View;
