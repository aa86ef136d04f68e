//! TLS and connections: certificate verification, certificate files, and connection pools to peers.
//!
//! [`reloading`] reloads a value when its files change. [`client_ca`] verifies client certificates after the
//! handshake, against CA bundles that may change; [`server`] is the serving side of TLS; [`serving`] accepts connections
//! and holds what makes them cheap; [`peer`] is the client side with its connection pools; [`pki`] creates keys and certificates if none are configured.

pub mod client_ca;
pub mod peer;
pub mod pki;
pub mod reloading;
pub mod server;
pub mod serving;
pub mod subject;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls_policy;

pub use client_ca::{ClientCaBundle, ClientCertificateError};
pub use reloading::Reloading;
pub use subject::X509Subject;
pub use tls_policy::{TlsPolicy, TlsPolicyError};
