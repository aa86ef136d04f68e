//! From a service reference to an address.

/// Where a service is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceAddress {
    /// A host name or an IP address without brackets.
    pub host: String,
    /// The port at that host.
    pub port: u16,
}

/// Why a service has no address, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is no such service.
    #[error("service {0:?} not found")]
    NotFound(String),
    /// The service has no such port.
    #[error("no service port {port} found for service {name:?}")]
    NoPort {
        /// The service's name.
        name: String,
        /// The missing port.
        port: u16,
    },
    /// No endpoint is ready.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    /// The service is headless.
    #[error("cannot route to service with ClusterIP \"None\"")]
    Headless,
    /// The service has a type that cannot be reached.
    #[error("unsupported service type {0:?}")]
    UnsupportedType(String),
    /// The service is this API server itself: a webhook that the server calls with its own identity.
    #[error("cannot route to the API server's own service {0:?}")]
    OwnService(String),
}

/// Resolves services of the cluster.
pub trait ServiceResolver: Send + Sync {
    /// Returns an address of a service's port. Called for every request, so that connections follow the service.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<ServiceAddress, ResolveError>;
}
