//! A difference between releases as people read it.

use std::fmt;

use api::GroupVersion;

use super::{Diff, Entry, GateChange, Listed};
use crate::gates::{Lock, Spec, Stage};

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, .. } = self;
        writeln!(f, "Kubernetes {from} -> {to}")?;
        section(f, "appears", &resource_rows(&self.appears))?;
        section(f, "disappears", &resource_rows(&self.disappears))?;
        let (on, off): (Vec<&Listed>, Vec<&Listed>) = self.defaults.iter().partition(|listed| listed.by_default);
        section(f, &format!("on by default in {to}, not in {from}"), &resource_rows(on))?;
        section(f, &format!("on by default in {from}, not in {to}"), &resource_rows(off))?;
        let storage = self.storage.iter();
        let storage = storage.map(|change| [change.resource.to_string(), format!("{} -> {}", change.from, change.to)]);
        section(f, "stored in another version", &storage.collect::<Vec<_>>())?;
        let (gone, rest): (Vec<&GateChange>, Vec<&GateChange>) = self.gates.iter().partition(|gate| gate.to.is_none());
        let (new, changed): (Vec<&GateChange>, Vec<&GateChange>) =
            rest.into_iter().partition(|gate| gate.from.is_none());
        section(f, &format!("gates unknown to {to}, which does not start when told of them"), &gate_rows(&gone))?;
        section(f, "gates that are new", &gate_rows(&new))?;
        section(f, "gates that change", &gate_rows(&changed))
    }
}

/// A heading and rows of two columns; nothing at all without rows.
fn section(f: &mut fmt::Formatter<'_>, heading: &str, rows: &[[String; 2]]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{heading}")?;
    let width = rows.iter().map(|[first, _]| first.len()).max().unwrap_or_default();
    rows.iter().try_for_each(|[first, second]| writeln!(f, "  {first:width$}  {second}"))
}

/// One row per resource: its subresources follow in brackets, or stand alone if the resource itself is not in the list.
fn resource_rows<'a>(listed: impl IntoIterator<Item = &'a Listed>) -> Vec<[String; 2]> {
    let mut rows: Vec<(Listed, Vec<&str>)> = Vec::new();
    for listed in listed {
        match (rows.last_mut(), listed.entry.subresource) {
            (Some((parent, subresources)), Some(name)) if is_parent(parent, listed) => subresources.push(name),
            _ => rows.push((*listed, Vec::new())),
        }
    }
    rows.into_iter().map(|(listed, subresources)| resource_row(listed, &subresources)).collect()
}

fn is_parent(parent: &Listed, listed: &Listed) -> bool {
    *parent == Listed { entry: Entry { subresource: None, ..listed.entry }, ..*listed }
}

fn resource_row(listed: Listed, subresources: &[&str]) -> [String; 2] {
    let Entry { group, version, resource, subresource } = listed.entry;
    let mut text = resource.to_owned();
    if let Some(subresource) = subresource {
        text = format!("{text}/{subresource}");
    }
    if !subresources.is_empty() {
        text = format!("{text} ({})", subresources.join(", "));
    }
    if !listed.by_default {
        text += ", off by default";
    }
    [GroupVersion { group, version }.to_string(), text]
}

fn gate_rows(changes: &[&GateChange]) -> Vec<[String; 2]> {
    let rows = changes.iter().map(|change| {
        let states = [change.from, change.to].into_iter().flatten().map(state_of).collect::<Vec<_>>();
        [change.name.to_owned(), states.join(" -> ")]
    });
    rows.collect()
}

fn state_of(spec: Spec) -> String {
    let stage = match spec.stage {
        Stage::Alpha => "alpha",
        Stage::Beta => "beta",
        Stage::Stable => "stable",
        Stage::Deprecated => "deprecated",
    };
    let default = if spec.default { "on" } else { "off" };
    let lock = match spec.lock {
        Lock::Open => "",
        Lock::Locked => ", locked",
    };
    format!("{stage} {default}{lock}")
}
