//! The names of StorageVersion objects: `<group>.<resource>`, with `core` for the core group.

use api::GroupResource;

/// Stands for the core group, whose name is empty.
const CORE_GROUP: &str = "core";

/// The name of a resource's StorageVersion.
pub fn storage_version_name(resource: GroupResource<&str>) -> String {
    let group = if resource.group.is_empty() { CORE_GROUP } else { resource.group };
    format!("{group}.{}", resource.resource)
}

/// The resource of a StorageVersion name; `None` without a dot. Groups contain dots, resources do not.
pub fn parse_storage_version_name(name: &str) -> Option<GroupResource<&str>> {
    let (group, resource) = name.rsplit_once('.')?;
    Some(GroupResource { group: if group == CORE_GROUP { "" } else { group }, resource })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_version_names_round_trip() {
        for (name, group, resource) in [
            ("core.pods", "", "pods"),
            ("apps.deployments", "apps", "deployments"),
            ("rbac.authorization.k8s.io.roles", "rbac.authorization.k8s.io", "roles"),
        ] {
            let named = GroupResource { group, resource };
            assert_eq!(storage_version_name(named), name);
            assert_eq!(parse_storage_version_name(name), Some(named));
        }
        assert_eq!(parse_storage_version_name("pods"), None);
    }
}
