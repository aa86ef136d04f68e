//! What may be written before this server has published anything: KEP-2339, "Updating StorageVersion", and kube-apiserver's
//! own additions.
//!
//! Not here, because they never ask for a permit: reads, reviews and other things that are not persisted, requests that are
//! forwarded, and aggregated APIs. Custom resources are registered one by one before their handlers open; until then nothing
//! of them is registered, and nothing of them is held.

use api::GroupResource;

/// A write that asks for a permit.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// What is written, as storage versions name it.
    pub resource: GroupResource<&'a str>,
    /// The rest of the key: the namespace, if there is one, a slash, and the name.
    pub path: &'a str,
    /// On whose behalf.
    pub author: Author,
    /// Whether there is something already.
    pub novelty: Novelty,
}

/// On whose behalf something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// Somebody asked for it.
    Client,
    /// The server itself needs it.
    Server,
}

/// Whether there is something already where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// Nothing: it is created.
    New,
    /// Something: it is replaced or removed.
    Existing,
}

/// Whether a write may go ahead whatever was published.
pub fn is_exempt(write: &Write<'_>) -> bool {
    match (write.resource.group, write.resource.resource) {
        // Publication itself, by us and by whoever else may: a controller-manager collects garbage too.
        ("internal.apiserver.k8s.io", "storageversions") => true,
        // A server is a member before it publishes, and elections must go on.
        ("coordination.k8s.io", "leases") => write.path.starts_with("kube-system/"),
        // Everything else needs a namespace to lie in.
        ("", "namespaces") => write.author == Author::Server && write.novelty == Novelty::New,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(group: &str, resource: &str, path: &str, author: Author, novelty: Novelty, expected: bool) {
        let write = Write { resource: GroupResource { group, resource }, path, author, novelty };
        assert_eq!(is_exempt(&write), expected, "{write:?}");
    }

    #[test]
    fn storage_versions_are_exempt_whoever_writes_them() {
        for author in [Author::Client, Author::Server] {
            check("internal.apiserver.k8s.io", "storageversions", "core.pods", author, Novelty::New, true);
            check("internal.apiserver.k8s.io", "storageversions", "core.pods", author, Novelty::Existing, true);
        }
    }

    #[test]
    fn leases_are_exempt_in_kube_system_alone() {
        check("coordination.k8s.io", "leases", "kube-system/apiserver-a", Author::Client, Novelty::New, true);
        check("coordination.k8s.io", "leases", "kube-system/apiserver-a", Author::Server, Novelty::Existing, true);
        check("coordination.k8s.io", "leases", "kube-node-lease/n", Author::Client, Novelty::Existing, false);
        check("coordination.k8s.io", "leases", "kube-systems/x", Author::Server, Novelty::New, false);
        check("coordination.k8s.io", "leasecandidates", "kube-system/x", Author::Client, Novelty::New, false);
    }

    #[test]
    fn namespaces_are_exempt_when_the_server_creates_them() {
        check("", "namespaces", "kube-system", Author::Server, Novelty::New, true);
        check("", "namespaces", "kube-system", Author::Server, Novelty::Existing, false);
        check("", "namespaces", "team", Author::Client, Novelty::New, false);
    }

    #[test]
    fn everything_else_waits_internal_writers_too() {
        check("", "services", "default/kubernetes", Author::Server, Novelty::New, false);
        check("rbac.authorization.k8s.io", "clusterroles", "view", Author::Server, Novelty::New, false);
        check("apps", "deployments", "default/web", Author::Client, Novelty::Existing, false);
    }
}
