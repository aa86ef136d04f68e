//! The discovery of custom resources: group-versions of all definitions, for the documents of crate `discovery`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::GroupVersionKind;
use discovery::build::{DiscoverySource, LocalGroupVersion};
use discovery::legacy::{ApiResourceList, storage_version_hash};
use discovery::{DiscoveryFreshness, Interner, ResourceDiscovery, SharedStr, SubresourceDiscovery, VersionDiscovery};

use crate::definition::{Definition, DefinitionVersion};

/// The priority of every group of custom resources.
const GROUP_PRIORITY: i32 = 1000;
/// The priority of every version of custom resources; versions of equal priority are ordered by name.
const VERSION_PRIORITY: i32 = 100;

const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// While the definition is being deleted.
const TERMINATING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The served group-versions of custom resources, sorted by group and version name; resources sorted by name.
#[derive(Clone, Debug, Default)]
pub struct CustomDiscovery {
    /// For [`discovery::build()`], beside the built-in ones.
    pub group_versions: Vec<LocalGroupVersion>,
    /// By group and plural; only resources whose storage version is served.
    storage_version_hashes: HashMap<(SharedStr, SharedStr), SharedStr>,
}

impl CustomDiscovery {
    /// The group-versions of established definitions.
    pub fn new<'d>(definitions: impl IntoIterator<Item = &'d Definition>) -> Self {
        let mut interner = Interner::default();
        let mut resources: BTreeMap<(SharedStr, SharedStr), Vec<Arc<ResourceDiscovery>>> = BTreeMap::new();
        let mut storage_version_hashes = HashMap::new();
        for definition in definitions.into_iter().filter(|definition| definition.is_established()) {
            let group = interner.intern(&definition.spec.group);
            for version in definition.spec.versions.iter().filter(|version| version.served) {
                let resource = Arc::new(resource_discovery(&mut interner, definition, version));
                if version.storage {
                    let hash = storage_version_hash(&group, &version.name, &definition.spec.names.kind);
                    storage_version_hashes.insert((group.clone(), resource.name.clone()), hash.into());
                }
                let version = interner.intern(&version.name);
                resources.entry((group.clone(), version)).or_default().push(resource);
            }
        }
        let group_versions = resources.into_iter().map(|((group, version), mut resources)| {
            resources.sort_by(|a, b| a.name.cmp(&b.name));
            LocalGroupVersion {
                source: DiscoverySource::CustomResource,
                group,
                version,
                group_priority: GROUP_PRIORITY,
                version_priority: VERSION_PRIORITY,
                freshness: DiscoveryFreshness::Current,
                resources,
            }
        });
        Self { group_versions: group_versions.collect(), storage_version_hashes }
    }

    /// The legacy document of one version; `None` if nothing of it is served.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<ApiResourceList> {
        let found = self.group_versions.iter().find(|found| &*found.group == group && &*found.version == version)?;
        let version = VersionDiscovery {
            name: found.version.clone(),
            resources: found.resources.clone(),
            freshness: found.freshness.clone(),
        };
        let hash_of = |_: &str, resource: &str| {
            self.storage_version_hashes.get(&(found.group.clone(), SharedStr::from(resource))).cloned()
        };
        Some(ApiResourceList::from_version(group, &version, hash_of))
    }
}

fn resource_discovery(
    interner: &mut Interner,
    definition: &Definition,
    version: &DefinitionVersion,
) -> ResourceDiscovery {
    let names = &definition.status.accepted_names;
    // Servers up to 1.36 look at the condition alone, which the deletion itself sets.
    let verbs = match definition.is_terminating() {
        true => interner.intern_list(TERMINATING_VERBS),
        false => interner.intern_list(VERBS),
    };
    let own_kind = GroupVersionKind {
        group: interner.intern(&definition.spec.group),
        version: interner.intern(&version.name),
        kind: interner.intern(&names.kind),
    };
    let mut subresource = |name: &str, kind: GroupVersionKind| SubresourceDiscovery {
        name: interner.intern(name),
        response_kind: Some(kind),
        accepted_types: Vec::new(),
        verbs: Some(interner.intern_list(SUBRESOURCE_VERBS)),
    };
    let mut subresources = Vec::new();
    if version.subresources.status.is_some() {
        subresources.push(subresource("status", own_kind.clone()));
    }
    if version.subresources.scale.is_some() {
        let scale = ["autoscaling", "v1", "Scale"].map(SharedStr::from);
        let [group, version, kind] = scale;
        subresources.push(subresource("scale", GroupVersionKind { group, version, kind }));
    }
    ResourceDiscovery {
        name: interner.intern(&names.plural),
        response_kind: Some(own_kind),
        scope: definition.scope().into(),
        singular: interner.intern(&names.singular),
        verbs: Some(verbs),
        short_names: interner.intern_list(names.short_names.iter().map(String::as_str)),
        categories: interner.intern_list(names.categories.iter().map(String::as_str)),
        subresources,
    }
}

#[cfg(test)]
mod tests {
    use api::json::to_go_json;
    use discovery::{CreationTimestamp, build};
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;

    fn definition(plural: &str, versions: &Value, status: &Value) -> Definition {
        let names = json!({"plural": plural, "singular": "one", "kind": "Foo", "listKind": "FooList", "shortNames": ["f"], "categories": ["all"]});
        let mut object = json!({"metadata": {"name": format!("{plural}.ex.io")},
            "spec": {"group": "ex.io", "scope": "Cluster", "names": names, "versions": versions},
            "status": {"acceptedNames": names}});
        object["status"]["conditions"] = status.clone();
        Definition::from_object(object.as_object().unwrap()).expect("test value is a definition")
    }

    #[test]
    fn discovery_lists_served_versions_of_established_definitions() {
        let established = json!([{"type": "Established", "status": "True"}]);
        let terminating = json!([{"type": "Established", "status": "True"}, {"type": "Terminating", "status": "True"}]);
        let accepted = json!([{"type": "NamesAccepted", "status": "True"}]);
        let definitions = [
            definition(
                "foos",
                &json!([
                    {"name": "v1beta1", "served": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}},
                    {"name": "v1", "served": true, "storage": true},
                    {"name": "v2", "served": false},
                ]),
                &established,
            ),
            definition("bars", &json!([{"name": "v1", "served": true}, {"name": "v0", "storage": true}]), &terminating),
            definition("later", &json!([{"name": "v3", "served": true, "storage": true}]), &accepted),
        ];
        let discovered = CustomDiscovery::new(&definitions);
        let document = build(&discovered.group_versions, CreationTimestamp::Absent);
        let lines: String = document.items()[0]
            .versions
            .iter()
            .map(|version| String::from_utf8(to_go_json(version)).unwrap() + "\n")
            .collect();
        expect![[r#"
            {"version":"v1","resources":[{"resource":"bars","responseKind":{"group":"ex.io","version":"v1","kind":"Foo"},"scope":"Cluster","singularResource":"one","verbs":["delete","deletecollection","get","list","watch"],"shortNames":["f"],"categories":["all"]},{"resource":"foos","responseKind":{"group":"ex.io","version":"v1","kind":"Foo"},"scope":"Cluster","singularResource":"one","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"shortNames":["f"],"categories":["all"]}],"freshness":"Current"}
            {"version":"v1beta1","resources":[{"resource":"foos","responseKind":{"group":"ex.io","version":"v1beta1","kind":"Foo"},"scope":"Cluster","singularResource":"one","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"shortNames":["f"],"categories":["all"],"subresources":[{"subresource":"status","responseKind":{"group":"ex.io","version":"v1beta1","kind":"Foo"},"verbs":["get","patch","update"]},{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","patch","update"]}]}],"freshness":"Current"}
        "#]].assert_eq(&lines);
        let list = discovered.resource_list("ex.io", "v1").unwrap();
        expect![[r#"{"groupVersion":"ex.io/v1","resources":[{"name":"bars","singularName":"one","namespaced":false,"kind":"Foo","verbs":["delete","deletecollection","get","list","watch"],"shortNames":["f"],"categories":["all"]},{"name":"foos","singularName":"one","namespaced":false,"kind":"Foo","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"shortNames":["f"],"categories":["all"],"storageVersionHash":"Ic0/Fpq4BGQ="}]}"#]].assert_eq(&String::from_utf8(to_go_json(&list)).unwrap());
        assert!(discovered.resource_list("ex.io", "v3").is_none() && discovered.resource_list("ex.io", "v2").is_none());
        assert_eq!(document.items().len(), 1);
    }
}
