//! Who the servers are, what each serves, and where a request goes.

pub mod documents;
pub mod endpoints;
pub mod identity;
pub mod members;
pub mod ports;
#[cfg(test)]
mod testing;

pub use documents::ServerDocument;
pub use endpoints::Address;
pub use identity::{HolderIdentity, ServerId};
