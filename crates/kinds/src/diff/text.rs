//! Text report of a [`super::ReleaseDiff`].

use std::fmt;

use api::GroupVersion;

use super::{GateChange, ReleaseDiff, ReleaseResource, ResourceEntry};
use crate::feature_gates::{FeatureSpec, FeatureStage, GateLock};

impl fmt::Display for ReleaseDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, .. } = self;
        writeln!(f, "Kubernetes {from} -> {to}")?;
        write_section(f, "appears", &resource_rows(&self.added))?;
        write_section(f, "disappears", &resource_rows(&self.removed))?;
        let (on, off): (Vec<&ReleaseResource>, Vec<&ReleaseResource>) =
            self.default_changes.iter().partition(|listed| listed.enabled_by_default);
        write_section(f, &format!("on by default in {to}, not in {from}"), &resource_rows(on))?;
        write_section(f, &format!("on by default in {from}, not in {to}"), &resource_rows(off))?;
        let storage = self.storage_changes.iter();
        let storage = storage.map(|change| [change.resource.to_string(), format!("{} -> {}", change.from, change.to)]);
        write_section(f, "stored in another version", &storage.collect::<Vec<_>>())?;
        let (gone, rest): (Vec<&GateChange>, Vec<&GateChange>) =
            self.gate_changes.iter().partition(|gate| gate.to.is_none());
        let (new, changed): (Vec<&GateChange>, Vec<&GateChange>) =
            rest.into_iter().partition(|gate| gate.from.is_none());
        write_section(f, &format!("gates unknown to {to}, which does not start when told of them"), &gate_rows(&gone))?;
        write_section(f, "gates that are new", &gate_rows(&new))?;
        write_section(f, "gates that change", &gate_rows(&changed))
    }
}

/// Prints a heading and rows of two columns; prints nothing without rows.
fn write_section(f: &mut fmt::Formatter<'_>, heading: &str, rows: &[[String; 2]]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{heading}")?;
    let width = rows.iter().map(|[first, _]| first.len()).max().unwrap_or_default();
    rows.iter().try_for_each(|[first, second]| writeln!(f, "  {first:width$}  {second}"))
}

/// One row per resource, with its subresources in brackets; subresources get rows of their own if the resource is not
/// listed.
fn resource_rows<'a>(listed: impl IntoIterator<Item = &'a ReleaseResource>) -> Vec<[String; 2]> {
    let mut rows: Vec<(ReleaseResource, Vec<&str>)> = Vec::new();
    for listed in listed {
        match (rows.last_mut(), listed.entry.subresource) {
            (Some((parent, subresources)), Some(name)) if is_parent(parent, listed) => subresources.push(name),
            _ => rows.push((*listed, Vec::new())),
        }
    }
    rows.into_iter().map(|(listed, subresources)| resource_row(listed, &subresources)).collect()
}

fn is_parent(parent: &ReleaseResource, listed: &ReleaseResource) -> bool {
    *parent == ReleaseResource { entry: ResourceEntry { subresource: None, ..listed.entry }, ..*listed }
}

fn resource_row(listed: ReleaseResource, subresources: &[&str]) -> [String; 2] {
    let ResourceEntry { group, version, resource, subresource } = listed.entry;
    let mut text = resource.to_owned();
    if let Some(subresource) = subresource {
        text = format!("{text}/{subresource}");
    }
    if !subresources.is_empty() {
        text = format!("{text} ({})", subresources.join(", "));
    }
    if !listed.enabled_by_default {
        text += ", off by default";
    }
    [GroupVersion { group, version }.to_string(), text]
}

fn gate_rows(changes: &[&GateChange]) -> Vec<[String; 2]> {
    let rows = changes.iter().map(|change| {
        let states = [change.from, change.to].into_iter().flatten().map(format_feature_spec).collect::<Vec<_>>();
        [change.name.to_owned(), states.join(" -> ")]
    });
    rows.collect()
}

fn format_feature_spec(spec: FeatureSpec) -> String {
    let stage = match spec.stage {
        FeatureStage::Alpha => "alpha",
        FeatureStage::Beta => "beta",
        FeatureStage::Stable => "stable",
        FeatureStage::Deprecated => "deprecated",
    };
    let default = if spec.default { "on" } else { "off" };
    let lock = match spec.lock {
        GateLock::Unlocked => "",
        GateLock::Locked => ", locked",
    };
    format!("{stage} {default}{lock}")
}
