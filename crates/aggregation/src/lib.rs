//! Rules of APIServices, which tell the API server what serves each group-version.
//!
//! [`automatic`]: the APIServices that the servers keep for the group-versions that they serve themselves. [`condition`]: the
//! condition `Available`. Pure: objects and times come in as values.

pub mod automatic;
pub mod condition;
