//! Who the servers are, what each serves, and where a request goes.

pub mod ask;
pub mod debug;
pub mod documents;
pub mod endpoints;
pub mod exclusion;
pub mod hop;
pub mod identity;
pub mod members;
pub mod merged;
pub mod metrics;
pub mod ports;
pub mod route;
pub mod status;
pub mod table;
#[cfg(test)]
mod testing;
pub mod view;

pub use documents::ServerDocument;
pub use endpoints::Address;
pub use hop::Hop;
pub use identity::{HolderIdentity, ServerId};
pub use route::{Proof, Route, Unavailable, Why, route};
pub use table::{MemberIndex, Table};
pub use view::View;
