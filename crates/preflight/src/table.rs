//! Inventories and preflights as text for people.

use std::fmt::Write as _;

use crate::inventory::{Inventory, ResourceInventory, StoredEncryption, StoredForm};
use crate::key_layout::ResourceClass;
use crate::verdict::{FindingEffect, Preflight};

const COLUMNS: usize = 7;
const HEADER: [&str; COLUMNS] = ["RESOURCE", "VERSION", "ENCODING", "ENCRYPTION", "OBJECTS", "BYTES", "OLDEST"];
/// From this column on, numbers, which are aligned to the right.
const FIRST_NUMBER: usize = 4;

/// One row per resource and form; then the undecodable keys, and what the inventory cannot know.
pub fn render_inventory(inventory: &Inventory) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    for resource in &inventory.resources {
        rows.extend(resource.forms.iter().map(|form| form_row(resource, form)));
        if resource.undecodable.count > 0 {
            let count = resource.undecodable.count.to_string();
            let empty = String::new;
            rows.push([resource_name(resource), "undecodable".to_owned(), empty(), empty(), count, empty(), empty()]);
        }
    }
    let mut text = render_rows(&rows);
    let objects: u64 = inventory.resources.iter().map(|resource| resource.objects).sum();
    let bytes: u64 = inventory.resources.iter().map(|resource| resource.bytes).sum();
    let at = inventory.revision.map_or(String::new(), |revision| format!(" at revision {revision}"));
    let _ = writeln!(text, "\n{objects} objects, {bytes} bytes in {}{at}", inventory.source);
    for resource in inventory.resources.iter().filter(|resource| resource.undecodable.count > 0) {
        let _ = writeln!(text, "\nUndecodable in {}:", resource_name(resource));
        for undecodable in &resource.undecodable.keys {
            let _ = writeln!(text, "  {}: {}", undecodable.key, undecodable.reason);
        }
        let unnamed = resource.undecodable.count - resource.undecodable.keys.len() as u64;
        if unnamed > 0 {
            let _ = writeln!(text, "  and {unnamed} more");
        }
    }
    if !inventory.not_known.is_empty() {
        let _ = writeln!(text, "\nNot known:");
        for sentence in &inventory.not_known {
            let _ = writeln!(text, "  {sentence}");
        }
    }
    text
}

/// `deployments.apps`, `pods`, `ranges (internal)`.
pub fn resource_name(resource: &ResourceInventory) -> String {
    let ResourceInventory { group, resource: name, class, .. } = resource;
    let qualified = if group.is_empty() { name.clone() } else { format!("{name}.{group}") };
    match class {
        ResourceClass::BuiltIn | ResourceClass::Served => qualified,
        ResourceClass::Custom => format!("{qualified} (custom)"),
        ResourceClass::Internal => format!("{qualified} (internal)"),
        ResourceClass::Unknown => format!("{qualified} (unknown)"),
    }
}

fn form_row(resource: &ResourceInventory, form: &StoredForm) -> [String; COLUMNS] {
    let version = match (&form.api_version, &form.encryption, form.media_type) {
        (Some(api_version), _, _) => api_version.clone(),
        (None, Some(_), None) => "encrypted, unknown".to_owned(),
        (None, _, _) if resource.class == ResourceClass::Internal => "-".to_owned(),
        (None, _, _) => "unknown".to_owned(),
    };
    let media_type = form.media_type.map_or("-", short_media_type).to_owned();
    let encryption = form.encryption.as_ref().map_or_else(|| "-".to_owned(), describe_encryption);
    let revision = form.lowest_revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string());
    let name = resource_name(resource);
    [name, version, media_type, encryption, form.objects.to_string(), form.bytes.to_string(), revision]
}

/// `application/vnd.kubernetes.protobuf` is `protobuf`, `application/json` is `json`.
fn short_media_type(media_type: &'static str) -> &'static str {
    media_type.rsplit(['/', '.']).next().unwrap_or(media_type)
}

fn describe_encryption(encryption: &StoredEncryption) -> String {
    let StoredEncryption { provider, scheme, key } = encryption;
    format!("{provider}:{scheme}:{key}")
}

fn render_rows(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column < FIRST_NUMBER {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The verdict, the findings with their evidence and cures, and what was not looked at.
pub fn render_preflight(preflight: &Preflight) -> String {
    let mut text = String::new();
    let verdict = match preflight.findings.len() {
        0 => "nothing was found that makes it unsafe".to_owned(),
        1 => "NOT SAFE, 1 finding".to_owned(),
        count => format!("NOT SAFE, {count} findings"),
    };
    let _ = writeln!(text, "{} to {}: {verdict}", preflight.source, preflight.to);
    for finding in &preflight.findings {
        let resource = if finding.resource.is_empty() { String::new() } else { format!(" {}", finding.resource) };
        let _ = writeln!(text, "\n{}{resource}", effect_heading(finding.effect));
        let _ = writeln!(text, "  {}.", finding.evidence);
        for object in &finding.objects {
            let _ = writeln!(text, "    {object}");
        }
        let _ = writeln!(text, "  Cure: {}", finding.cure);
    }
    let _ = writeln!(text, "\nNot looked at:");
    for sentence in &preflight.not_looked_at {
        let _ = writeln!(text, "  {sentence}");
    }
    text
}

/// The steps of the change, numbered; the cures first.
pub fn render_plan(preflight: &Preflight) -> String {
    let mut steps: Vec<String> = Vec::new();
    for finding in &preflight.findings {
        let resource = if finding.resource.is_empty() { String::new() } else { format!("{}: ", finding.resource) };
        steps.push(format!("{resource}{}", finding.cure));
    }
    if !preflight.findings.is_empty() {
        steps.push(format!("Run `unskew preflight --to {}` again, until it finds nothing.", preflight.to));
    }
    steps.push("Back up storage: a copy of the SQLite file, or an etcd snapshot.".to_owned());
    if let Some(from) = preflight.from.as_ref().filter(|from| has_two_steps(from, &preflight.to)) {
        steps.push(format!(
            "Give every server of {} the flags --emulated-version={from} --min-compatibility-version={from}: it then serves and \
             stores what {from} does.",
            preflight.to
        ));
    }
    steps.push(format!("Move one server to {}, and look at its /readyz, at lists and at logs.", preflight.to));
    steps.push("Move the other servers, one after another. Do not turn new APIs on yet.".to_owned());
    if let Some(from) = preflight.from.as_ref().filter(|from| has_two_steps(from, &preflight.to)) {
        steps.push("When all are moved, remove --emulated-version, one server after another.".to_owned());
        let closed = match preflight.closes_way_back.is_empty() {
            true => format!("Nothing that is stored now becomes unreadable for {from}"),
            false => format!("From then on {from} cannot read {}", preflight.closes_way_back.join(", ")),
        };
        steps.push(format!("Point of no return: remove --min-compatibility-version. {closed}."));
        steps.push("Run `unskew migrate --all --dry-run`, then `unskew migrate --all`.".to_owned());
    }
    steps.push(
        "Run `unskew inventory` and `unskew preflight --to` the release before, to see whether the way back is open."
            .to_owned(),
    );
    steps.push("Then turn new APIs on. What they store may close the way back: point of no return.".to_owned());
    let mut text = String::from("Plan:\n");
    for (index, step) in steps.iter().enumerate() {
        let _ = writeln!(text, "  {}. {step}", index + 1);
    }
    text
}

/// True for an upgrade to a release that has both flags and emulates the present one: three releases back.
fn has_two_steps(from: &str, to: &str) -> bool {
    let minor = |release: &str| release.split_once('.').and_then(|(_, minor)| minor.parse::<u32>().ok());
    let (Some(from), Some(to)) = (minor(from), minor(to)) else { return false };
    to >= 35 && from < to && to - from <= 3
}

const fn effect_heading(effect: FindingEffect) -> &'static str {
    match effect {
        FindingEffect::StartRefused => "SERVER DOES NOT START",
        FindingEffect::Unreadable => "UNREADABLE",
        FindingEffect::Unjudged => "CANNOT BE JUDGED",
        FindingEffect::Invisible => "INVISIBLE",
        FindingEffect::WritesRefused => "WRITES REFUSED",
        FindingEffect::FieldsDropped => "FIELDS DROPPED",
        FindingEffect::GateDiffers => "GATE DIFFERS",
        FindingEffect::ClientsRefused => "CLIENTS REFUSED",
    }
}
