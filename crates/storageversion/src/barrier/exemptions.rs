//! What may be written before this server has published anything: KEP-2339, "Updating StorageVersion", and kube-apiserver's
//! own additions.
//!
//! Not here, because they never ask for a permit: reads, reviews and other things that are not persisted, requests that are
//! forwarded, and aggregated APIs. Custom resources are registered one by one before their handlers open; until then nothing
//! of them is registered, and nothing of them is held.

use api::GroupResource;

/// A write that asks for a permit.
#[derive(Clone, Copy, Debug)]
pub struct WriteIntent<'a> {
    /// What is written, as storage versions name it.
    pub resource: GroupResource<&'a str>,
    /// The rest of the key: the namespace, if there is one, a slash, and the name.
    pub path: &'a str,
    /// On whose behalf.
    pub author: IntentAuthor,
    /// Whether there is something already.
    pub operation: WriteOperation,
}

/// On whose behalf something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentAuthor {
    /// Somebody asked for it.
    Client,
    /// The server itself needs it.
    Server,
}

/// Whether there is something already where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOperation {
    /// Nothing: it is created.
    Create,
    /// Something: it is replaced or removed.
    UpdateOrDelete,
}

/// Whether a write may go ahead whatever was published.
pub fn is_exempt(write: &WriteIntent<'_>) -> bool {
    match (write.resource.group, write.resource.resource) {
        // Publication itself, by us and by whoever else may: a controller-manager collects garbage too.
        ("internal.apiserver.k8s.io", "storageversions") => true,
        // A server is a member before it publishes, and elections must go on.
        ("coordination.k8s.io", "leases") => write.path.starts_with("kube-system/"),
        // Everything else needs a namespace to lie in.
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
