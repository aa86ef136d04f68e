//! Who the servers of a cluster are, what each serves, and where a request goes.
//!
//! A pure core decides: [`identity`], [`endpoint_record`] and [`documents`] read what servers leave in storage about themselves;
//! [`members`] judges them by it; [`routing_table`] and [`view`] hold what follows; [`route()`] places a request; [`merged`] is the one
//! discovery document of all; [`status`] and [`debug`] say why. A thin shell acts through [`ports`]: [`membership`] follows
//! storage and is the only writer of the view, [`discovery_fetch`] ask those who do not publish, [`presence`] makes us a member,
//! [`forward`] carries requests to others.
//! [`Cluster`] wires all of it.
//!
//! States follow from storage alone, so that all servers agree. Failure is never read as absence. Nothing is kept for ever.

mod absence_proof;
mod cleanup;
pub mod cluster;
pub mod debug;
pub mod discovery_client;
pub mod discovery_fetch;
pub mod documents;
pub mod endpoint_record;
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
pub mod readiness;
pub mod route;
pub mod routing_table;
pub mod status;
#[cfg(test)]
mod testing;
pub mod view;
mod wait;

pub use absence_proof::{AbsenceNotProven, AbsenceProver};
pub use cluster::{Cluster, ClusterConfig, ClusterPorts};
pub use documents::ServerDocument;
pub use endpoint_record::Address;
pub use hop::Hop;
pub use identity::{HolderIdentity, ServerId};
pub use route::{AbsenceProof, LocalReason, PeerRouteMismatch, Route, UnavailableReason, route};
pub use routing_table::{MemberIndex, RoutingTable};
pub use view::View;
