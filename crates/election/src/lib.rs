//! Leader election over a Lease, compatible with client-go.
//!
//! [`Elector`] runs the leader's work only while its process leads. The rules are pure ([`rules`]); storage is a port
//! ([`LeaseClient`]), so that servers use their registry and clients use HTTP. Both work side by side with real
//! controller managers: the Lease has the same fields with the same meaning.
//!
//! Leader election is not a lock: the work of a paused leader may overlap with that of the next one for the duration of
//! one call. A leader's writes are therefore conditional on what it read, and it checks [`Term::is_current`] first.

pub mod elector;
pub mod ports;
pub mod rules;

pub use elector::{Config, ElectionTimings, Elector, Term};
pub use ports::{LeaseClient, LeaseFuture};
