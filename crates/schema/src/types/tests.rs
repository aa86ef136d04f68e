use std::collections::BTreeSet;

use expect_test::{Expect, expect};

use super::*;
use crate::built_in_types;

#[track_caller]
fn kind(release: u8, group: &str, version: &str, kind: &str) -> StructType<'static> {
    built_in_types(release).for_kind(GroupVersionKind { group, version, kind }).unwrap()
}

/// Prints the fields of the type at a path from a kind, with all their properties.
#[track_caller]
fn check(release: u8, from: (&str, &str, &str), path: &[&str], expected: &Expect) {
    let (group, version, name) = from;
    let mut home = kind(release, group, version, name);
    for step in path {
        let mut form = home.field(step).unwrap_or_else(|| panic!("no field {step} in {home:?}")).value_type().form();
        while let TypeForm::List(inner) | TypeForm::Map(inner) = form {
            form = inner.form();
        }
        let TypeForm::Struct(inner) = form else { panic!("{step} is no type with fields") };
        home = inner;
    }
    let line = |field: StructField<'_>| {
        let mut line =
            format!("{}{} {:?}", field.name(), if field.is_required() { "!" } else { "" }, field.value_type());
        line.extend(field.topology().map(|topology| format!(" {topology:?}")));
        line.extend(field.patch_rule().map(|patch| format!(" {} {:?}", patch.strategy, patch.merge_key)));
        line.extend(field.default().map(|default| format!(" ={default}")));
        line + &format!(" {:?}\n", field.protobuf_numbers().collect::<Vec<_>>())
    };
    expected.assert_eq(&home.fields().map(line).collect::<String>());
}

#[test]
fn struct_fields_have_go_types() {
    check(
        36,
        ("apps", "v1", "Deployment"),
        &["spec"],
        &expect![[r#"
        minReadySeconds int32 [5]
        paused bool [7]
        progressDeadlineSeconds int32 [9]
        replicas int32 [1]
        revisionHistoryLimit int32 [6]
        selector! v1.LabelSelector [2]
        strategy v1.DeploymentStrategy retainKeys None [4]
        template! v1.PodTemplateSpec [3]
    "#]],
    );
    check(
        31,
        ("", "v1", "Pod"),
        &["spec", "containers", "ports"],
        &expect![[r#"
        containerPort! int32 [3]
        hostIP string [5]
        hostPort int32 [2]
        name string [1]
        protocol v1.Protocol ="TCP" [4]
    "#]],
    );
    check(
        36,
        ("", "v1", "Pod"),
        &["spec", "containers", "resources"],
        &expect![[r#"
        claims []v1.ResourceClaim Map(["name"]) [3]
        limits v1.ResourceList [1]
        requests v1.ResourceList [2]
    "#]],
    );
    check(
        36,
        ("", "v1", "PodList"),
        &[],
        &expect![[r#"
        apiVersion string []
        items! []v1.Pod [2]
        kind string []
        metadata v1.ListMeta [1]
    "#]],
    );
}

#[test]
fn fields_state_topology_and_patch_rule() {
    let spec = |field: &str| {
        let TypeForm::Struct(spec) = kind(36, "", "v1", "Pod").field("spec").unwrap().value_type().form() else {
            panic!("spec has fields")
        };
        let field = spec.field(field).unwrap();
        format!("{:?} {:?}", field.topology(), field.patch_rule())
    };
    expect![[r#"Some(Map(["name"])) Some(PatchRule { merges_lists: true, replaces_objects: false, retains_keys: true, merge_key: Some("name"), strategy: "merge,retainKeys" })"#]].assert_eq(&spec("volumes"));
    expect!["Some(Atomic) None"].assert_eq(&spec("nodeSelector"));
    expect![[r#"Some(Map(["topologyKey", "whenUnsatisfiable"])) Some(PatchRule { merges_lists: true, replaces_objects: false, retains_keys: false, merge_key: Some("topologyKey"), strategy: "merge" })"#]].assert_eq(&spec("topologySpreadConstraints"));
    expect!["Some(Atomic) None"].assert_eq(&spec("tolerations"));
    assert_eq!(kind(36, "", "v1", "Pod").topology(), None);
    let selector = built_in_types(36).for_definition("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector");
    assert_eq!(selector.unwrap().topology(), Some(Topology::Atomic));
}

#[test]
fn fields_exist_only_in_their_releases() {
    let has = |field: &str, release| {
        built_in_types(release).for_definition("io.k8s.api.core.v1.Container").unwrap().field(field).is_some()
    };
    assert!(!has("restartPolicyRules", 33));
    assert!(has("restartPolicyRules", 34));
    let is_required = |release| kind(release, "apps", "v1", "Deployment").field("spec").unwrap().is_required();
    assert!(!is_required(36));
    assert!(is_required(37));
    let alpha = GroupVersionKind { group: "scheduling.k8s.io", version: "v1alpha2", kind: "Workload" };
    let known = (31..=37).filter(|release| built_in_types(*release).for_kind(alpha).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [36]);
}

/// Every field of a release has a type that exists in the release.
#[test]
fn every_field_type_exists_in_its_release() {
    for release in 31..=37 {
        for home in built_in_types(release).all() {
            for field in home.fields() {
                let mut form = field.value_type().form();
                while let TypeForm::List(inner) | TypeForm::Map(inner) = form {
                    form = inner.form();
                }
                let TypeForm::Struct(inner) = form else { continue };
                assert!(inner.row.releases.contains(release), "{field:?} in {release}");
            }
        }
    }
}

#[test]
fn types_and_fields_are_sorted_and_unique() {
    let table = built_in_types(37).table;
    for package in &table.packages {
        let names = built_in_types(37).all().filter(|known| known.package() == package.name).map(StructType::name);
        assert!(names.is_sorted_by(|a, b| a < b), "{}", package.name);
    }
    for home in &table.types {
        for release in 31..=37 {
            let Some(home) = built_in_types(release).if_in_release(home) else { continue };
            let names: Vec<_> = home.fields().map(StructField::name).collect();
            assert!(names.is_sorted_by(|a, b| a < b), "{home:?}");
            assert!(names.iter().all(|name| home.field(name).is_some()), "{home:?}");
        }
    }
}

/// The keys of a list must be fields of its items.
#[test]
fn list_map_keys_are_fields_of_items() {
    for home in (31..=37).flat_map(|release| built_in_types(release).all()) {
        for field in home.fields() {
            let keys: Vec<_> = match field.topology() {
                Some(Topology::Map(keys)) => keys.names().collect(),
                Some(Topology::Atomic | Topology::Granular | Topology::Set) | None => Vec::new(),
            };
            let keys = keys.into_iter().chain(field.patch_rule().and_then(|patch| patch.merge_key));
            // Kubernetes declares `type`, a field of conditions, as merge key of this list; its items do not have it.
            if home.name() == "StorageVersionMigrationList" {
                continue;
            }
            for key in keys {
                let TypeForm::List(items) = field.value_type().form() else {
                    panic!("{field:?} has keys and is no list")
                };
                let TypeForm::Struct(item) = items.form() else { panic!("{field:?} has keys and its items no fields") };
                assert!(item.field(key).is_some(), "{field:?} by {key}");
            }
        }
    }
}

/// Fields of one message have distinct numbers.
#[test]
fn protobuf_numbers_are_unique_within_type() {
    for home in built_in_types(37).all() {
        let numbers: Vec<Vec<u32>> = home.fields().map(|field| field.protobuf_numbers().collect()).collect();
        let numbers: Vec<_> = numbers.into_iter().filter(|numbers| !numbers.is_empty()).collect();
        let distinct: BTreeSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len(), "{home:?}");
        let known = home.fields().filter(|field| field.protobuf_numbers().next().is_none());
        let unnumbered: Vec<_> =
            known.map(StructField::name).filter(|name| !matches!(*name, "apiVersion" | "kind")).collect();
        let is_wire_only = home.package() == "io.k8s.apimachinery.pkg.version";
        assert!(unnumbered.is_empty() || is_wire_only, "{home:?} {unnumbered:?}");
    }
}

#[test]
fn type_table_stays_below_one_mebibyte() {
    let table = built_in_types(37).table;
    let rows = table.types.len() * size_of::<table::TypeRow>();
    let fields: usize = table.types.iter().map(|row| table.fields_of(row).len()).sum();
    let bytes = rows + fields * size_of::<table::FieldRow>();
    assert!(bytes < 1 << 20, "{bytes} bytes for {} types and {fields} fields", table.types.len());
}
