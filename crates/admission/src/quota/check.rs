//! The decision: whether a write fits into the quotas of its namespace, and what they are charged.

use api::json::JsonObject;
use kinds::FeatureGates;
use object::unstructured::{metadata_string, nested_object, nested_object_mut};

use super::evaluator::{Evaluator, EvaluatorKind};
use super::list::ResourceList;
use super::scopes::{self, ScopeRequirement};
use super::{limits, pod};
use crate::refusal::Refusal;

/// A quota, and what exists of the resource that is written.
#[derive(Clone, Debug)]
pub struct QuotaState {
    /// The quota as stored.
    pub quota: JsonObject,
    /// What existing objects use, from a view that is not older than the quota: `status.used` is not believed if it is
    /// lower. `None` if the status is known to include them.
    pub existing: Option<ResourceList>,
}

/// A write that quotas may limit.
#[derive(Clone, Copy, Debug)]
pub struct QuotaWrite<'a> {
    /// Of the resource.
    pub evaluator: &'a Evaluator<'a>,
    /// The name of the resource with its group, to which configured limits apply.
    pub resource: (&'a str, &'a str),
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The new object.
    pub new: &'a JsonObject,
    /// The stored object; `None` for a create.
    pub old: Option<&'a JsonObject>,
}

/// Resources that may be used only if a quota covers them, from the plugin's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitedResource {
    /// Empty for core resources.
    pub api_group: String,
    /// For example `pods`.
    pub resource: String,
    /// Parts of resource names such as `.storageclass.storage.k8s.io/requests.storage`.
    pub match_contains: Vec<String>,
    /// Requirements on scopes, as in a scope selector of a quota.
    pub match_scopes: Vec<JsonObject>,
}

/// Checks a write against the quotas of its namespace, in order. Returns per quota the changed object, with the usage
/// after the write; `None` if the quota does not change.
pub fn check(
    write: QuotaWrite<'_>,
    quotas: &[QuotaState],
    limited: &[LimitedResource],
    gates: &FeatureGates,
) -> Result<Vec<Option<JsonObject>>, Refusal> {
    let QuotaWrite { evaluator, new, old, .. } = write;
    let usage = evaluator.usage(new, gates, false);
    let mut covering = Vec::with_capacity(quotas.len());
    for QuotaState { quota, .. } in quotas {
        let names = evaluator.matching(&limits(quota));
        let covers = !names.is_empty() && scopes::quota_covers(evaluator, quota, new, gates);
        if covers
            && evaluator.kind == EvaluatorKind::Pods
            && let Some(missing) = pod::missing_resources(new, &names, gates)
        {
            let name = metadata_string(quota, "name");
            return Err(Refusal::Forbidden(format!("failed quota: {name}: {missing}")));
        }
        covering.push(covers.then_some(names));
    }
    let negative: Vec<&str> =
        usage.0.iter().filter(|(_, amount)| amount.billionths() < 0).map(|(name, _)| &**name).collect();
    if !negative.is_empty() {
        return Err(Refusal::Forbidden(format!("quota usage is negative for resource(s): {}", negative.join(","))));
    }
    let old_usage = old.map(|old| evaluator.usage(old, gates, false));
    let growth = match &old_usage {
        Some(old_usage) => usage.growth_from(old_usage),
        None => usage.without_zeros(),
    };
    let deltas = quotas.iter().zip(&covering).map(|(state, names)| {
        names.as_ref()?;
        let was_covered = old.is_some_and(|old| scopes::quota_covers(evaluator, &state.quota, old, gates));
        Some(if was_covered { growth.clone() } else { usage.without_zeros() })
    });
    let deltas: Vec<Option<ResourceList>> = deltas.map(|delta| delta.filter(|delta| !delta.0.is_empty())).collect();
    let is_charged =
        if covering.iter().any(Option::is_some) { deltas.iter().any(Option::is_some) } else { !growth.0.is_empty() };
    if !is_charged {
        return Ok(vec![None; quotas.len()]);
    }
    check_limited(write, quotas, limited, &usage, &covering, gates)?;
    quotas
        .iter()
        .zip(deltas)
        .map(|(state, delta)| delta.map_or(Ok(None), |delta| charge(write, state, &delta)))
        .collect()
}

/// What is used may need a quota that covers it.
fn check_limited(
    write: QuotaWrite<'_>,
    quotas: &[QuotaState],
    limited: &[LimitedResource],
    usage: &ResourceList,
    covering: &[Option<Vec<String>>],
    gates: &FeatureGates,
) -> Result<(), Refusal> {
    let of_resource = limited.iter().filter(|limited| (&*limited.api_group, &*limited.resource) == write.resource);
    let parts: Vec<&String> = of_resource.flat_map(|limited| &limited.match_contains).collect();
    let is_limited = |name: &str| parts.iter().any(|part| name.contains(part.as_str()));
    let is_covered = |name: &String| covering.iter().flatten().any(|names| names.contains(name));
    let uncovered: Vec<&str> = usage
        .0
        .iter()
        .filter(|(name, amount)| amount.billionths() > 0 && is_limited(name) && !is_covered(name))
        .map(|(name, _)| &**name)
        .collect();
    if !uncovered.is_empty() {
        return Err(Refusal::Forbidden(format!("insufficient quota to consume: {}", uncovered.join(","))));
    }
    let matches = |requirement: &ScopeRequirement<'_>| requirement.matches(write.evaluator, write.new, gates);
    let matched: Vec<ScopeRequirement<'_>> =
        quotas.iter().flat_map(|state| scopes::requirements(&state.quota)).filter(matches).collect();
    let required = limited.iter().flat_map(|limited| &limited.match_scopes).map(ScopeRequirement::read);
    let mut uncovered = required
        .filter(matches)
        .filter(|requirement| !matched.iter().any(|matched| matched.scope == requirement.scope))
        .map(|requirement| requirement.to_string())
        .peekable();
    if uncovered.peek().is_some() {
        let scopes: Vec<String> = uncovered.collect();
        return Err(Refusal::internal(format!("insufficient quota to match these scopes: [{}]", scopes.join(" "))));
    }
    Ok(())
}

fn charge(write: QuotaWrite<'_>, state: &QuotaState, delta: &ResourceList) -> Result<Option<JsonObject>, Refusal> {
    let quota = &state.quota;
    let hard = limits(quota);
    let names = write.evaluator.matching(&hard);
    let requested = delta.masked(&hard.names());
    let stored = ResourceList::read(nested_object(quota, &["status", "used"]));
    let mut used = stored.clone();
    if let Some(existing) = &state.existing {
        used.raise(existing);
    }
    if let Some(unknown) = unknown_usage(&names, &used) {
        let name = metadata_string(quota, "name");
        return Err(Refusal::Forbidden(format!("status unknown for quota: {name}, resources: {unknown}")));
    }
    let mut after = used.clone();
    after.add(&requested);
    let exceeded = after.masked(&requested.names()).exceeding(&hard);
    if write.subresource != "status" && !exceeded.is_empty() {
        return Err(Refusal::Forbidden(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            metadata_string(quota, "name"),
            requested.masked(&exceeded),
            used.masked(&exceeded),
            hard.masked(&exceeded)
        )));
    }
    if after.is_equal(&stored) {
        return Ok(None);
    }
    let mut charged = quota.clone();
    let mut shown = ResourceList::read(nested_object(quota, &["status", "hard"]));
    shown.replace(&hard.masked(&names));
    let status = nested_object_mut(&mut charged, "status");
    status.insert("hard".to_owned(), shown.to_value());
    status.insert("used".to_owned(), after.to_value());
    Ok(Some(charged))
}

fn unknown_usage(names: &[String], used: &ResourceList) -> Option<String> {
    names.iter().any(|name| !used.0.contains_key(name)).then(|| names.join(","))
}
