//! What a StorageVersion is called: `<group>.<resource>`, with `core` for the core group.

use api::GroupResource;

/// What stands for the core group, whose own name is empty.
const CORE: &str = "core";

/// The name of the object of a resource.
pub fn name_of(resource: GroupResource<&str>) -> String {
    let group = if resource.group.is_empty() { CORE } else { resource.group };
    format!("{group}.{}", resource.resource)
}

/// The resource that an object of this name is about; `None` if it cannot be about any. Groups have dots, resources have none.
pub fn resource_of(name: &str) -> Option<GroupResource<&str>> {
    let (group, resource) = name.rsplit_once('.')?;
    Some(GroupResource { group: if group == CORE { "" } else { group }, resource })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_resources_go_both_ways() {
        for (name, group, resource) in [
            ("core.pods", "", "pods"),
            ("apps.deployments", "apps", "deployments"),
            ("rbac.authorization.k8s.io.roles", "rbac.authorization.k8s.io", "roles"),
        ] {
            let named = GroupResource { group, resource };
            assert_eq!(name_of(named), name);
            assert_eq!(resource_of(name), Some(named));
        }
        assert_eq!(resource_of("pods"), None);
    }
}
