//! TLS: who may be trusted, and the files that say so.
//!
//! [`reloading`] keeps a value in step with the files it was read from. [`client_ca`] verifies client certificates apart from
//! the handshake, against bundles that may change; [`server`] is the serving side; [`peer`] is the client side, with its
//! connections; [`pki`] makes keys and certificates where none are given.

pub mod client_ca;
pub mod peer;
pub mod pki;
pub mod reloading;
pub mod server;
pub mod subject;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use client_ca::{ClientCaBundle, ClientCertificateError};
pub use reloading::Reloading;
pub use subject::X509Subject;
