//! Integration tests of the API server over a real store, and of the conversions in the table of kinds.

mod partial_execution;
mod storage_versions;

use std::collections::HashSet;

use api::{GroupVersion, GroupVersionKind};
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources, types_of};
use schema::{StructType, TypeForm};

/// All resources that a release can serve, with every API and feature gate enabled.
fn served_with_everything_enabled(release: Release) -> ServedResources {
    let feature_gates = FeatureGates::parse(release, "AllAlpha=true,AllBeta=true").expect("every release has these");
    let config = RuntimeConfig::parse(release, "api/all=true").expect("every release has this");
    ServedResources::new(&feature_gates, &config)
}

#[test]
fn every_served_version_converts_from_storage_version() {
    let mut missing = Vec::new();
    let mut pairs = 0;
    for release in Release::ALL {
        let served_resources = served_with_everything_enabled(release);
        for served in served_resources.resources() {
            let Some(stored_resource) = &served.stored_resource else { continue };
            let (stored, shown) = (stored_resource.encoding, served.group_version_kind());
            if (stored.group, stored.version) == (shown.group, shown.version) {
                continue;
            }
            pairs += 1;
            let version =
                |kind: GroupVersionKind<&'static str>| GroupVersion { group: kind.group, version: kind.version };
            let [there, back] = [(stored, shown), (shown, stored)]
                .map(|(from, to)| (served.kind.strategy.conversion)(version(from), version(to)).is_some());
            let is_same = match (types_of(release).for_kind(stored), types_of(release).for_kind(shown)) {
                (Some(a), Some(b)) => are_types_equal(a, b, &mut HashSet::new()),
                // The release has no type for a version that it only reads from storage.
                (None, _) | (_, None) => false,
            };
            let is_converted = there && back;
            if !is_converted && !is_same {
                missing.push(format!(
                    "{release}: {} stored as {} served as {}",
                    shown.kind,
                    version(stored),
                    version(shown)
                ));
            }
        }
    }
    assert!(pairs > 100, "only {pairs} pairs of stored and served versions");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// True if two types have the same fields of the same forms, recursively.
fn are_types_equal(a: StructType<'_>, b: StructType<'_>, compared: &mut HashSet<(String, String)>) -> bool {
    if !compared.insert((a.definition(), b.definition())) {
        return true;
    }
    let (mut of_a, mut of_b) = (a.fields(), b.fields());
    loop {
        match (of_a.next(), of_b.next()) {
            (None, None) => return true,
            (Some(x), Some(y))
                if x.name() == y.name() && are_forms_equal(x.value_type().form(), y.value_type().form(), compared) => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

fn are_forms_equal(a: TypeForm<'_>, b: TypeForm<'_>, compared: &mut HashSet<(String, String)>) -> bool {
    match (a, b) {
        (TypeForm::Struct(a), TypeForm::Struct(b)) => are_types_equal(a, b, compared),
        (TypeForm::List(a), TypeForm::List(b)) | (TypeForm::Map(a), TypeForm::Map(b)) => {
            are_forms_equal(a.form(), b.form(), compared)
        }
        (TypeForm::Special(a), TypeForm::Special(b)) => a == b,
        (a, b) => std::mem::discriminant(&a) == std::mem::discriminant(&b),
    }
}
