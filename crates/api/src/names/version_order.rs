//! The kube-aware version order: stable before beta before alpha, higher numbers first.

use std::cmp::{Ordering, Reverse};

/// Compares two versions; `Less` means preferred.
///
/// Stable precedes beta, beta precedes alpha, and higher numbers precede lower ones; other names come last,
/// alphabetically. Versions that differ only in leading zeros are equal in Kubernetes; here the text decides, so that
/// the order is total and documents do not depend on the order of arrival.
pub fn compare_kube_aware_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a_rank), Some(b_rank)) => Reverse(a_rank).cmp(&Reverse(b_rank)).then_with(|| a.cmp(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum VersionStability {
    Alpha,
    Beta,
    Stable,
}

/// Parses into stability, major number, and the number after `alpha` or `beta`.
fn parse_version(version: &str) -> Option<(VersionStability, u64, u64)> {
    let (major, rest) = leading_number(version.strip_prefix('v')?)?;
    if rest.is_empty() {
        return Some((VersionStability::Stable, major, 0));
    }
    let (stability, minor) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        (Some(minor), _) => (VersionStability::Alpha, minor),
        (None, Some(minor)) => (VersionStability::Beta, minor),
        (None, None) => return None,
    };
    let (minor, rest) = leading_number(minor)?;
    rest.is_empty().then_some((stability, major, minor))
}

/// Splits off a leading decimal number. A number beyond Go's `int` makes the version non-conforming, as in Kubernetes.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let number = number.parse::<i64>().ok()?;
    Some((number.unsigned_abs(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn compare_kube_aware_versions_matches_documented_order() {
        // The example in the CustomResourceDefinition versioning documentation.
        let documented =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        let mut sorted = documented;
        sorted.reverse();
        sorted.sort_by(|a, b| compare_kube_aware_versions(a, b));
        assert_eq!(sorted, documented);
    }

    #[test]
    fn non_kubernetes_versions_sort_last() {
        for odd in ["", "v", "v1beta", "v1gamma1", "v1beta1x", "1", "V1", "v-1", "v+1", "v9223372036854775808"] {
            assert_eq!(compare_kube_aware_versions("v1alpha1", odd), Ordering::Less, "{odd}");
            assert_eq!(compare_kube_aware_versions(odd, "v1alpha1"), Ordering::Greater, "{odd}");
        }
        assert_eq!(compare_kube_aware_versions("v1", "v1"), Ordering::Equal);
        assert_eq!(compare_kube_aware_versions("v01", "v1"), Ordering::Less);
    }

    proptest! {
        #[test]
        fn version_order_is_total(mut versions in prop::collection::vec("v?[0-9]{0,3}(alpha|beta|x)?[0-9]{0,2}", 3)) {
            versions.sort_by(|a, b| compare_kube_aware_versions(a, b));
            for pair in versions.windows(2) {
                prop_assert_ne!(compare_kube_aware_versions(&pair[0], &pair[1]), Ordering::Greater);
                prop_assert_eq!(compare_kube_aware_versions(&pair[0], &pair[1]), compare_kube_aware_versions(&pair[1], &pair[0]).reverse());
            }
            prop_assert_ne!(compare_kube_aware_versions(&versions[0], &versions[2]), Ordering::Greater);
        }
    }
}
