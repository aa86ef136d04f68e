//! Whether some rules grant all that others grant: nobody may hand out what they do not have.

use std::collections::BTreeSet;
use std::collections::HashMap;

use super::PolicyRule;
use super::rule::path_matches;

/// The most single permissions a set of rules may fall into when it is compared. Kubernetes has no limit, but a role of a
/// few megabytes can name billions.
const PARTS_MAX: usize = 100_000;

/// A set of rules names more single permissions than are ever compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rules name more than {PARTS_MAX} combinations of group, resource, name and verb")]
pub struct TooManyParts;

/// The parts of the wanted rules that no held rule covers, each with one verb of one resource or path.
pub fn uncovered<'a>(
    held: &[&PolicyRule],
    wanted: impl Iterator<Item = &'a PolicyRule> + Clone,
) -> Result<Vec<PolicyRule>, TooManyParts> {
    let parts = wanted.clone().map(part_count).fold(0_usize, usize::saturating_add);
    if parts > PARTS_MAX {
        return Err(TooManyParts);
    }
    let is_uncovered = |part: &PolicyRule| !held.iter().any(|rule| covers(rule, part));
    Ok(wanted.flat_map(parts_of).filter(is_uncovered).collect())
}

/// The wanted rules as far as the held ones do not cover them, for completing a role.
///
/// Roles of ours are short, so the limit on what is compared never applies; if it did, everything would be missing.
pub fn missing_rules(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let held: Vec<&PolicyRule> = held.iter().collect();
    uncovered(&held, wanted.iter()).map_or_else(|TooManyParts| wanted.to_vec(), compact)
}

/// Parts as an error shows them: one line per resource with all its verbs, sorted.
pub(super) fn describe(parts: Vec<PolicyRule>) -> Vec<String> {
    let lines: BTreeSet<String> = compact(parts).iter().map(ToString::to_string).collect();
    lines.into_iter().collect()
}

/// Joins parts that differ by verb only; those of paths stay apart, as Kubernetes leaves them.
fn compact(parts: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    let mut position_of = HashMap::new();
    for part in parts {
        let key = (part.api_groups.clone(), part.resources.clone(), part.resource_names.clone());
        match position_of.get(&key) {
            Some(&position) if part.non_resource_urls.is_empty() => {
                let rule: &mut PolicyRule = &mut rules[position];
                rule.verbs.extend(part.verbs);
            }
            _ => {
                position_of.insert(key, rules.len());
                rules.push(part);
            }
        }
    }
    rules
}

fn part_count(rule: &PolicyRule) -> usize {
    let names = rule.resource_names.len().max(1);
    let resources = rule.api_groups.len().saturating_mul(rule.resources.len()).saturating_mul(names);
    resources.saturating_add(rule.non_resource_urls.len()).saturating_mul(rule.verbs.len())
}

fn parts_of(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut parts = Vec::with_capacity(part_count(rule));
    let names: Vec<Vec<String>> = match rule.resource_names.as_slice() {
        [] => vec![Vec::new()],
        names => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let part = |verb: &String, names: &Vec<String>| PolicyRule {
                verbs: vec![verb.clone()],
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                resource_names: names.clone(),
                non_resource_urls: Vec::new(),
            };
            parts.extend(rule.verbs.iter().flat_map(|verb| names.iter().map(move |names| part(verb, names))));
        }
    }
    for url in &rule.non_resource_urls {
        let part = |verb: &String| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        };
        parts.extend(rule.verbs.iter().map(part));
    }
    parts
}

/// Whether the rule grants all of the part. A rule for some names never covers a part for all of them.
fn covers(rule: &PolicyRule, part: &PolicyRule) -> bool {
    let all_in = |of_rule: &[String], of_part: &[String]| {
        of_part.iter().all(|item| of_rule.contains(item)) || of_rule.iter().any(|item| item == "*")
    };
    let names_covered = rule.resource_names.is_empty()
        || (!part.resource_names.is_empty()
            && part.resource_names.iter().all(|name| rule.resource_names.contains(name)));
    names_covered
        && all_in(&rule.verbs, &part.verbs)
        && all_in(&rule.api_groups, &part.api_groups)
        && part.resources.iter().all(|resource| covers_resource(&rule.resources, resource))
        && part.non_resource_urls.iter().all(|url| rule.non_resource_urls.iter().any(|held| path_matches(held, url)))
}

fn covers_resource(of_rule: &[String], resource: &str) -> bool {
    let of_any = resource.split_once('/').map(|(_, subresource)| subresource);
    of_rule.iter().any(|held| {
        held == "*"
            || held == resource
            || (of_any.is_some() && held.strip_prefix("*/").is_some_and(|held| Some(held) == of_any))
    })
}
