//! Built-in kinds × Kubernetes releases: what a server of a given release serves, stores and understands.
mod flag;
pub mod gates;
pub mod kind;
pub mod kinds;
pub mod release;
pub mod runtime_config;
pub mod surface;
pub mod verbs;
pub use gates::{Gates, GatesError};
pub use release::{Release, ReleaseError};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use surface::{Persisted, Served, Surface};
pub use verbs::Verbs;
