//! One of several processes leads: an election over a Lease, as client-go holds it.
//!
//! [`Elector`] runs the leader's work for as long as its process leads, and no longer. The rules are pure ([`rules`]); storage
//! is a port ([`LeaseClient`]), so that servers hold elections over their registry and clients over HTTP, side by side with real
//! controller-managers: the Lease has the same fields with the same meaning.
//!
//! An election saves work, it is no lock: the work of a leader that was paused may overlap with that of the next one for as
//! long as one call takes. So what a leader writes is conditional on what it read, and [`Term::is_current`] is asked before.

pub mod elector;
pub mod ports;
pub mod rules;

pub use elector::{Config, ElectionTimings, Elector, Term};
pub use ports::{LeaseClient, LeaseFuture};
