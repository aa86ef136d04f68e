//! Coverage between rule sets: which requested permissions the held rules do not include.

use std::collections::BTreeSet;
use std::collections::HashMap;

use super::PolicyRule;
use super::rule::path_matches;

/// Limit on the single permissions (group x resource x name x verb) that requested rules may expand to. Kubernetes
/// has no limit, but a role of a few megabytes can expand to billions.
const PERMISSIONS_MAX: usize = 100_000;

/// The rules expand to more than `PERMISSIONS_MAX` permissions.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rules name more than {PERMISSIONS_MAX} combinations of group, resource, name and verb")]
pub struct TooManyPermissions;

/// Returns the requested permissions that no held rule covers, each with one verb on one resource or path.
pub fn uncovered_permissions<'a>(
    held_rules: &[&PolicyRule],
    requested_rules: impl Iterator<Item = &'a PolicyRule> + Clone,
) -> Result<Vec<PolicyRule>, TooManyPermissions> {
    let count = requested_rules.clone().map(permission_count).fold(0_usize, usize::saturating_add);
    if count > PERMISSIONS_MAX {
        return Err(TooManyPermissions);
    }
    let is_uncovered = |part: &PolicyRule| !held_rules.iter().any(|rule| rule_covers(rule, part));
    Ok(requested_rules.flat_map(split_into_permissions).filter(is_uncovered).collect())
}

/// Returns the rules to add to a role so that it includes the required ones.
///
/// If the default rules exceeded `PERMISSIONS_MAX`, which they do not, all required rules would be returned.
pub fn missing_rules(existing_rules: &[PolicyRule], required_rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let held: Vec<&PolicyRule> = existing_rules.iter().collect();
    uncovered_permissions(&held, required_rules.iter())
        .map_or_else(|TooManyPermissions| required_rules.to_vec(), compact_rules)
}

/// Formats permissions as escalation errors do: one line per resource with all its verbs, sorted.
pub(super) fn describe_permissions(permissions: Vec<PolicyRule>) -> Vec<String> {
    let lines: BTreeSet<String> = compact_rules(permissions).iter().map(ToString::to_string).collect();
    lines.into_iter().collect()
}

/// Merges permissions that differ only by verb; path permissions stay separate, as in Kubernetes.
fn compact_rules(permissions: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    let mut position_of = HashMap::new();
    for permission in permissions {
        let key = (permission.api_groups.clone(), permission.resources.clone(), permission.resource_names.clone());
        match position_of.get(&key) {
            Some(&position) if permission.non_resource_urls.is_empty() => {
                let rule: &mut PolicyRule = &mut rules[position];
                rule.verbs.extend(permission.verbs);
            }
            _ => {
                position_of.insert(key, rules.len());
                rules.push(permission);
            }
        }
    }
    rules
}

fn permission_count(rule: &PolicyRule) -> usize {
    let names = rule.resource_names.len().max(1);
    let resources = rule.api_groups.len().saturating_mul(rule.resources.len()).saturating_mul(names);
    resources.saturating_add(rule.non_resource_urls.len()).saturating_mul(rule.verbs.len())
}

fn split_into_permissions(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut permissions = Vec::with_capacity(permission_count(rule));
    let names: Vec<Vec<String>> = match rule.resource_names.as_slice() {
        [] => vec![Vec::new()],
        names => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let permission = |verb: &String, names: &Vec<String>| PolicyRule {
                verbs: vec![verb.clone()],
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                resource_names: names.clone(),
                non_resource_urls: Vec::new(),
            };
            permissions
                .extend(rule.verbs.iter().flat_map(|verb| names.iter().map(move |names| permission(verb, names))));
        }
    }
    for url in &rule.non_resource_urls {
        let permission = |verb: &String| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        };
        permissions.extend(rule.verbs.iter().map(permission));
    }
    permissions
}

/// Reports whether the rule includes the permission. A rule limited to names never covers a permission on all objects.
fn rule_covers(rule: &PolicyRule, permission: &PolicyRule) -> bool {
    let all_in = |rule_items: &[String], permission_items: &[String]| {
        permission_items.iter().all(|item| rule_items.contains(item)) || rule_items.iter().any(|item| item == "*")
    };
    let names_covered = rule.resource_names.is_empty()
        || (!permission.resource_names.is_empty()
            && permission.resource_names.iter().all(|name| rule.resource_names.contains(name)));
    names_covered
        && all_in(&rule.verbs, &permission.verbs)
        && all_in(&rule.api_groups, &permission.api_groups)
        && permission.resources.iter().all(|resource| any_covers_resource(&rule.resources, resource))
        && permission
            .non_resource_urls
            .iter()
            .all(|url| rule.non_resource_urls.iter().any(|held| path_matches(held, url)))
}

fn any_covers_resource(rule_resources: &[String], resource: &str) -> bool {
    let subresource_name = resource.split_once('/').map(|(_, subresource)| subresource);
    rule_resources.iter().any(|held| {
        held == "*"
            || held == resource
            || (subresource_name.is_some()
                && held.strip_prefix("*/").is_some_and(|held| Some(held) == subresource_name))
    })
}
