//! Rules of APIServices, which tell the API server what serves each group-version.
//!
//! [`automatic`]: the APIServices that the servers keep for the group-versions that they serve themselves. [`api_service`]: the
//! APIServices that name a service, whose group-versions extension API servers serve. [`availability`]: whether the service of one
//! can be reached. [`condition`]: the condition `Available`. [`documents`]: what discovery lists of extension API servers. Pure:
//! objects and times come in as values.

pub mod api_service;
pub mod automatic;
pub mod availability;
pub mod condition;
pub mod documents;
