use api::GroupVersionKind;
use expect_test::{Expect, expect};
use serde_json::{Map, json};

use super::*;
use crate::defaults;
use crate::groups::{GROUPS, strategy_of};
use crate::release::Release::{self, *};
use crate::types::types_of;

mod kinds;
mod pods;
mod resize;
mod storage;

/// Errors of an update, one per line. Defaults are applied to both states first, as in a server.
fn update_errors(release: Release, flags: &str, what: &str, states: [&Value; 2]) -> String {
    subresource_update_errors("", release, flags, what, states)
}

/// The same, of an update through a subresource.
fn subresource_update_errors(
    subresource: &str,
    release: Release,
    flags: &str,
    what: &str,
    [old, new]: [&Value; 2],
) -> String {
    let gates = FeatureGates::parse(release, flags).unwrap();
    let (api_version, kind) = what.split_once(' ').unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some(kind) = types_of(release).for_kind(GroupVersionKind { group, version, kind }) else {
        return "unknown\n".to_owned();
    };
    let strategy = strategy_of(group, kind.name()).unwrap();
    let [old, new] = [old, new].map(|state| {
        let Value::Object(mut state) = state.clone() else { panic!("a state is an object") };
        assert_eq!(schema::check_types(&state, kind), Ok(Vec::new()), "{state:?}");
        defaults::apply_defaults(&mut state, kind, &gates);
        state
    });
    for unchanged in ["", "status"] {
        assert_eq!(validate_update(strategy, kind, &gates, unchanged, [&old, &old]), [], "nothing has changed");
    }
    validate_update(strategy, kind, &gates, subresource, [&old, &new])
        .iter()
        .map(|fault| format!("{fault}\n"))
        .collect()
}

/// Errors of an update in 1.36.
#[track_caller]
fn check(what: &str, old: &Value, new: &Value, expected: &Expect) {
    expected.assert_eq(&update_errors(R36, "", what, [old, new]));
}

/// An update that all releases let pass.
#[track_caller]
fn check_allowed(what: &str, old: &Value, new: &Value) {
    for release in Release::ALL {
        assert_eq!(update_errors(release, "", what, [old, new]), "", "{release}");
    }
}

/// Errors in each release that differ from the previous release.
#[track_caller]
fn check_releases(what: &str, old: &Value, new: &Value, expected: &Expect) {
    let mut lines = String::new();
    let mut last = None;
    for release in Release::ALL {
        let said = update_errors(release, "", what, [old, new]);
        if last.as_ref() != Some(&said) {
            lines.push_str(&format!("{release}:\n{said}"));
            last = Some(said);
        }
    }
    expected.assert_eq(&lines);
}

#[test]
fn immutable_fields_name_existing_fields() {
    for (group, kind) in GROUPS.iter().flat_map(|group| group.kinds.iter().map(move |kind| (group.name, kind))) {
        for row in kind.strategy.immutable_fields {
            let of_release = |release: Release| {
                let known = types_of(release).all().filter(move |known| {
                    known.kind().is_some_and(|named| (named.group, named.kind) == (group, kind.name))
                });
                known.filter(move |_| row.releases.contains(release))
            };
            let gates = FeatureGates::new(R36);
            let empty = Map::new();
            let found = Release::ALL.into_iter().flat_map(of_release).any(|kind| {
                let update = ObjectUpdate { kind, gates: &gates, old: &empty, new: &empty };
                update.field(row.path()).is_some()
            });
            assert!(found, "{group} {} {}", kind.name, row.path());
        }
    }
}
