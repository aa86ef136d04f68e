//! Who the servers are, what each serves, and where a request goes.

pub mod endpoints;
pub mod identity;

pub use endpoints::Address;
pub use identity::{HolderIdentity, ServerId};
