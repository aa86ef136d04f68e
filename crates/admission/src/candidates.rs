//! Finds the webhooks or policies that can match a write, without looking at each of them.

use std::collections::HashMap;

use api::json::JsonObject;
use api::selector::{LabelOperator, LabelRequirement, LabelSelector};
use object::unstructured::nested_object;

use crate::attributes::Operation;
use crate::chain::{Context, Write};
use crate::webhook::matching::{is_outside_namespaces, selected_namespace};
use crate::webhook::{MatchCriteria, split_resource};

/// Positions in a list of webhooks or policies, by what their rules and selectors require of a write. One that is not
/// found does not match; one that is found may match.
///
/// Versions and groups are not looked at: those that share storage have the same name of the resource, so that the
/// candidates are the same whether or not equivalent resources match.
#[derive(Debug, Default)]
pub(crate) struct CandidateIndex {
    /// By resource and subresource as rules name them, either may be `*`; then by operation.
    by_resource: HashMap<String, HashMap<String, [SelectorIndex; Operation::COUNT]>>,
    /// Those that every write is a candidate for.
    of_all_writes: Vec<usize>,
}

/// Positions under one rule, by a label that must be present for a selector to match.
#[derive(Debug, Default)]
struct SelectorIndex {
    by_object_label: LabelIndex,
    by_namespace_label: LabelIndex,
    /// Without a required label.
    of_all_labels: Vec<usize>,
}

/// By key of the label.
type LabelIndex = HashMap<String, PositionsByValue>;

#[derive(Debug, Default)]
struct PositionsByValue {
    by_value: HashMap<String, Vec<usize>>,
    of_all_values: Vec<usize>,
}

impl CandidateIndex {
    /// Adds an item, under each of its rules.
    pub(crate) fn add(&mut self, position: usize, criteria: &MatchCriteria) {
        for rule in &criteria.rules {
            for (name, subresource) in rule.resources.iter().map(|resource| split_resource(resource)) {
                let by_subresource = self.by_resource.entry(name.to_owned()).or_default();
                let by_operation = by_subresource.entry(subresource.to_owned()).or_default();
                for operation in Operation::ALL.into_iter().filter(|operation| rule.has_operation(*operation)) {
                    by_operation[operation as usize].add(position, criteria);
                }
            }
        }
    }

    /// Adds an item that every write is a candidate for.
    pub(crate) fn add_unconditional(&mut self, position: usize) {
        self.of_all_writes.push(position);
    }

    /// The positions of the items that can match a write, in ascending order. `object` is the object as mutated so far.
    pub(crate) fn find(&self, write: &Write<'_>, object: Option<&JsonObject>, context: &Context<'_>) -> Vec<usize> {
        let attributes = &write.attributes;
        let mut found = self.of_all_writes.clone();
        for by_subresource in [attributes.resource.resource, "*"].iter().filter_map(|name| self.by_resource.get(*name))
        {
            for by_operation in [attributes.subresource, "*"].iter().filter_map(|name| by_subresource.get(*name)) {
                by_operation[attributes.operation as usize].collect(write, object, context, &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl SelectorIndex {
    fn add(&mut self, position: usize, criteria: &MatchCriteria) {
        let required = |selector: &'_ Result<LabelSelector, String>| {
            selector
                .as_ref()
                .ok()
                .and_then(|selector| selector.requirements().iter().find(|it| needs_label(it)).cloned())
        };
        if let Some(required) = required(&criteria.object_selector) {
            add_labelled(&mut self.by_object_label, position, &required);
        } else if let Some(required) = required(&criteria.namespace_selector) {
            add_labelled(&mut self.by_namespace_label, position, &required);
        } else {
            self.of_all_labels.push(position);
        }
    }

    fn collect(&self, write: &Write<'_>, object: Option<&JsonObject>, context: &Context<'_>, found: &mut Vec<usize>) {
        found.extend(&self.of_all_labels);
        if !self.by_object_label.is_empty() {
            for labelled in [object, write.old_object].into_iter().flatten() {
                collect_labelled(&self.by_object_label, labelled, found);
            }
        }
        if self.by_namespace_label.is_empty() {
            return;
        }
        let all = || self.by_namespace_label.values().flat_map(PositionsByValue::all);
        if is_outside_namespaces(&write.attributes) {
            return found.extend(all());
        }
        match selected_namespace(write, object, context) {
            Ok(Some(namespace)) => collect_labelled(&self.by_namespace_label, namespace, found),
            Ok(None) => {}
            // A namespace that cannot be read is an error of each item whose rules match.
            Err(_) => found.extend(all()),
        }
    }
}

impl PositionsByValue {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.by_value.values().chain([&self.of_all_values]).flatten().copied()
    }
}

/// True if a requirement never matches an object without the label.
fn needs_label(requirement: &LabelRequirement) -> bool {
    match requirement.operator() {
        LabelOperator::In
        | LabelOperator::Equals
        | LabelOperator::DoubleEquals
        | LabelOperator::Exists
        | LabelOperator::GreaterThan
        | LabelOperator::LessThan => true,
        LabelOperator::NotIn | LabelOperator::NotEquals | LabelOperator::DoesNotExist => false,
    }
}

fn add_labelled(index: &mut LabelIndex, position: usize, requirement: &LabelRequirement) {
    let positions = index.entry(requirement.key().to_owned()).or_default();
    if matches!(requirement.operator(), LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals) {
        for value in requirement.values() {
            positions.by_value.entry(value.clone()).or_default().push(position);
        }
    } else {
        positions.of_all_values.push(position);
    }
}

fn collect_labelled(index: &LabelIndex, object: &JsonObject, found: &mut Vec<usize>) {
    for (key, value) in nested_object(object, &["metadata", "labels"]).into_iter().flatten() {
        let (Some(positions), Some(value)) = (index.get(key), value.as_str()) else { continue };
        found.extend(positions.by_value.get(value).into_iter().flatten());
        found.extend(&positions.of_all_values);
    }
}
