//! Who the servers of a cluster are, what each serves, and where a request goes.
//!
//! The rules are pure: [`identity`], [`endpoint_record`] and [`documents`] read what servers write about themselves; [`members`]
//! derives the state of each server; [`routing_table`] and [`view`] hold the result; [`route()`] routes a request; [`merged`] is
//! the merged discovery document; [`debug`] explains. Tasks act through [`ports`]: [`membership_task`] is the only
//! writer of the view, [`discovery_fetch`] fetches documents of servers that do not publish them, [`presence`] makes this server a
//! member. [`Cluster`] follows a cluster from any source of observations; [`Participant`] follows it from storage and joins it.
//!
//! States follow from storage alone, so that all servers agree. A failure is never read as absence. Nothing is kept for ever.

mod absence_proof;
mod cleanup;
pub mod cluster;
pub mod debug;
pub mod discovery_client;
pub mod discovery_fetch;
pub mod documents;
pub mod endpoint_record;
pub mod exclusion;
pub mod hop;
pub mod identity;
pub mod members;
pub mod membership_task;
pub mod merged;
pub mod metrics;
pub mod participant;
pub mod ports;
pub mod presence;
pub mod readiness;
pub mod route;
pub mod routing_table;
mod storage_feeds;
#[cfg(test)]
mod testing;
pub mod view;
mod wait;

pub use absence_proof::{AbsenceNotProven, AbsenceProver};
pub use cluster::{Cluster, ClusterSources};
pub use documents::ServerDocument;
pub use hop::Hop;
pub use identity::{HolderIdentity, ServerId};
pub use membership_task::MembershipConfig;
pub use participant::{Participant, ParticipantConfig, ParticipantPorts};
pub use route::{AbsenceProof, LocalReason, PeerRouteMismatch, Route, UnavailableReason, route};
pub use routing_table::{MemberIndex, RoutingTable};
pub use view::View;
