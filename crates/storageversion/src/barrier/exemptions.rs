//! The writes that need no published storage version: KEP-2339, "Updating StorageVersion", and kube-apiserver's
//! additions.
//!
//! Some requests never ask for a permit and so need no exemption: reads, reviews and other requests that persist
//! nothing, forwarded requests, and aggregated APIs. Custom resources are registered one by one before their handlers
//! open; an unregistered resource is not held.

use api::GroupResource;

/// A write that needs a permit.
#[derive(Clone, Copy, Debug)]
pub struct WriteIntent<'a> {
    /// The resource in the notation of storage versions.
    pub resource: GroupResource<&'a str>,
    /// The rest of the key: the namespace, if any, a slash, and the name.
    pub path: &'a str,
    /// Who initiated the write.
    pub author: IntentAuthor,
    /// Whether the object exists.
    pub operation: WriteOperation,
}

/// Who initiated a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentAuthor {
    /// A client request.
    Client,
    /// The server itself.
    Server,
}

/// Whether the object of a write exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOperation {
    /// The object is created.
    Create,
    /// The object exists and is replaced or deleted.
    UpdateOrDelete,
}

/// True if a write needs no published storage version.
pub fn is_exempt(write: &WriteIntent<'_>) -> bool {
    match (write.resource.group, write.resource.resource) {
        // Publication itself, and garbage collection by a kube-controller-manager.
        ("internal.apiserver.k8s.io", "storageversions") => true,
        // A server is a member before it publishes, and leader elections must go on.
        ("coordination.k8s.io", "leases") => write.path.starts_with("kube-system/"),
        // The server creates the system namespaces, which its other objects need.
        ("", "namespaces") => write.author == IntentAuthor::Server && write.operation == WriteOperation::Create,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(group: &str, resource: &str, path: &str, author: IntentAuthor, novelty: WriteOperation, expected: bool) {
        let write = WriteIntent { resource: GroupResource { group, resource }, path, author, operation: novelty };
        assert_eq!(is_exempt(&write), expected, "{write:?}");
    }

    #[test]
    fn storage_version_writes_are_exempt_for_all_authors() {
        for author in [IntentAuthor::Client, IntentAuthor::Server] {
            check("internal.apiserver.k8s.io", "storageversions", "core.pods", author, WriteOperation::Create, true);
            check(
                "internal.apiserver.k8s.io",
                "storageversions",
                "core.pods",
                author,
                WriteOperation::UpdateOrDelete,
                true,
            );
        }
    }

    #[test]
    fn lease_writes_are_exempt_only_in_kube_system() {
        check(
            "coordination.k8s.io",
            "leases",
            "kube-system/apiserver-a",
            IntentAuthor::Client,
            WriteOperation::Create,
            true,
        );
        check(
            "coordination.k8s.io",
            "leases",
            "kube-system/apiserver-a",
            IntentAuthor::Server,
            WriteOperation::UpdateOrDelete,
            true,
        );
        check(
            "coordination.k8s.io",
            "leases",
            "kube-node-lease/n",
            IntentAuthor::Client,
            WriteOperation::UpdateOrDelete,
            false,
        );
        check("coordination.k8s.io", "leases", "kube-systems/x", IntentAuthor::Server, WriteOperation::Create, false);
        check(
            "coordination.k8s.io",
            "leasecandidates",
            "kube-system/x",
            IntentAuthor::Client,
            WriteOperation::Create,
            false,
        );
    }

    #[test]
    fn namespace_creation_by_the_server_is_exempt() {
        check("", "namespaces", "kube-system", IntentAuthor::Server, WriteOperation::Create, true);
        check("", "namespaces", "kube-system", IntentAuthor::Server, WriteOperation::UpdateOrDelete, false);
        check("", "namespaces", "team", IntentAuthor::Client, WriteOperation::Create, false);
    }

    #[test]
    fn other_writes_are_not_exempt_even_for_the_server() {
        check("", "services", "default/kubernetes", IntentAuthor::Server, WriteOperation::Create, false);
        check("rbac.authorization.k8s.io", "clusterroles", "view", IntentAuthor::Server, WriteOperation::Create, false);
        check("apps", "deployments", "default/web", IntentAuthor::Client, WriteOperation::UpdateOrDelete, false);
    }
}
