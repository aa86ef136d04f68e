//! What must hold between the catalogue's data and the rules that work on it.

mod partial;
mod storage_versions;

use std::collections::HashSet;

use api::{GroupVersion, GroupVersionKind};
use catalogue::schema::{Form, Struct};
use catalogue::{Gates, Release, RuntimeConfig, Surface};

/// Everything that a release can serve.
fn everything(release: Release) -> Surface {
    let gates = Gates::parse(release, "AllAlpha=true,AllBeta=true").expect("every release has these");
    let config = RuntimeConfig::parse(release, "api/all=true").expect("every release has this");
    Surface::new(&gates, &config)
}

#[test]
fn what_is_stored_in_one_version_and_served_in_another_is_converted_or_the_same() {
    let mut missing = Vec::new();
    let mut pairs = 0;
    for release in Release::ALL {
        let surface = everything(release);
        for served in surface.served() {
            let Some(persisted) = &served.persisted else { continue };
            let (stored, shown) = (persisted.encoding, served.response_kind());
            if (stored.group, stored.version) == (shown.group, shown.version) {
                continue;
            }
            pairs += 1;
            let version =
                |kind: GroupVersionKind<&'static str>| GroupVersion { group: kind.group, version: kind.version };
            let [there, back] = [(stored, shown), (shown, stored)]
                .map(|(from, to)| object::convert::special(shown.kind, version(from), version(to)).is_some());
            let is_same = match (Struct::of_kind(release, stored), Struct::of_kind(release, shown)) {
                (Some(a), Some(b)) => are_same(a, b, &mut HashSet::new()),
                // A version that this release only reads from storage has no type of its own in it.
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
    assert!(pairs > 100, "the catalogue has many such pairs: {pairs}");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether two types have the same fields of the same forms, all the way down.
fn are_same(a: Struct, b: Struct, seen: &mut HashSet<(String, String)>) -> bool {
    if !seen.insert((a.definition(), b.definition())) {
        return true;
    }
    let (mut of_a, mut of_b) = (a.fields(), b.fields());
    loop {
        match (of_a.next(), of_b.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if x.name() == y.name() && are_alike(x.shape().form(), y.shape().form(), seen) => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

fn are_alike(a: Form, b: Form, seen: &mut HashSet<(String, String)>) -> bool {
    match (a, b) {
        (Form::Struct(a), Form::Struct(b)) => are_same(a, b, seen),
        (Form::List(a), Form::List(b)) | (Form::Map(a), Form::Map(b)) => are_alike(a.form(), b.form(), seen),
        (Form::Special(a), Form::Special(b)) => a == b,
        (a, b) => std::mem::discriminant(&a) == std::mem::discriminant(&b),
    }
}
