//! TLS: who may be trusted, and the files that say so.
//!
//! [`watched`] keeps a value in step with the files it was read from. [`authority`] verifies client certificates apart from
//! the handshake, against bundles that may change; [`server`] is the serving side; [`peer`] is the client side, with its
//! connections; [`pki`] makes keys and certificates where none are given.

pub mod authority;
pub mod peer;
pub mod pki;
pub mod server;
pub mod subject;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod watched;

pub use authority::{Authorities, CertificateError};
pub use subject::Subject;
pub use watched::Watched;
