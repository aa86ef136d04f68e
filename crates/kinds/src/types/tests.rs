use api::GroupVersionKind;

use super::*;
use crate::groups::GROUPS;
use crate::kind::ResponseKind;

#[test]
fn every_served_kind_has_a_type() {
    for release in Release::ALL {
        for (group, served) in GROUPS.iter().flat_map(|group| group.kinds.iter().map(move |kind| (group, kind))) {
            for version in served.served_versions(release) {
                let kind = GroupVersionKind { group: group.name, version: version.name, kind: served.name };
                let found = types_of(release).for_kind(kind).unwrap_or_else(|| panic!("{release} {kind:?}"));
                assert!(found.field("metadata").is_some() || served.name.ends_with("Review"), "{found:?}");
                for subresource in served.subresources_in(release).filter(|subresource| !subresource.is_connect) {
                    let answered = match subresource.kind {
                        ResponseKind::Parent => kind,
                        ResponseKind::Sibling(sibling) => GroupVersionKind { kind: sibling, ..kind },
                        ResponseKind::Foreign(group, version, kind) => GroupVersionKind { group, version, kind },
                    };
                    assert!(types_of(release).for_kind(answered).is_some(), "{release} {answered:?}");
                }
            }
        }
    }
}

#[test]
fn every_stored_kind_has_a_list_type() {
    let release = Release::NEWEST;
    let without: Vec<_> = GROUPS
        .iter()
        .flat_map(|group| group.kinds.iter().map(move |kind| (group, kind)))
        .filter_map(|(group, kind)| Some((group, kind, kind.storage_version(release)?)))
        .filter(|(_, kind, version)| kind.version(version).is_some_and(|version| version.is_served(release)))
        .filter(|(group, kind, version)| {
            let list = format!("{}List", kind.name);
            types_of(release).for_kind(GroupVersionKind { group: group.name, version, kind: &list }).is_none()
        })
        .map(|(_, kind, _)| kind.name)
        .collect();
    assert_eq!(without, [""; 0]);
}
