//! What a server of another release would do to what is stored: findings with their evidence and their cure.
//!
//! [`PreflightBuilder`] takes the same keys and values as an inventory, and looks into the objects of built-in kinds for
//! fields and values that the target release does not have. [`Preflight::safe`] is true only if nothing was found.

use serde::Serialize;

use crate::clients::{ClientUse, ClientUses};
use crate::definitions::Definitions;
use crate::encryption::EncryptionConfig;
use crate::flags::StartRefusal;
use crate::inventory::{Inventory, InventoryBuilder, ResourceInventory, StoredForm};
use crate::key_layout::ResourceClass;
use crate::object_findings::ObjectFindings;
use crate::releases::{self, Readability, Release, TargetServer, release_list};

/// Objects that are named per finding: enough to act on, and little enough to read.
pub const OBJECTS_NAMED_MAX: usize = 20;

/// The result of a preflight.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// The target release, `1.36`.
    pub to: String,
    /// Where the objects were read.
    pub source: String,
    /// The store's revision at which they were read.
    pub revision: Option<u64>,
    /// The release that the servers have now, if it was given.
    pub from: Option<String>,
    /// Resources at rest that the target stores in versions which the present release cannot read: its first write of one
    /// closes the way back.
    pub closes_way_back: Vec<String>,
    /// True if nothing was found.
    pub safe: bool,
    /// The gravest first.
    pub findings: Vec<Finding>,
    /// What was not looked at, one sentence each.
    pub not_looked_at: Vec<String>,
}

/// One reason why the change is not safe.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What would happen.
    pub effect: FindingEffect,
    /// The resource, `deployments.apps`; empty for flags.
    pub resource: String,
    /// The field, `spec.containers[].restartPolicyRules`; its name alone if it belongs to a gate; empty if the finding is not
    /// about a field.
    pub field: String,
    /// What was seen.
    pub evidence: String,
    /// What to do about it.
    pub cure: String,
    /// Objects concerned, with the field managers that set the field; at most [`OBJECTS_NAMED_MAX`].
    pub objects: Vec<String>,
}

/// What would happen to a cluster, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingEffect {
    /// The server does not start.
    StartRefused,
    /// Objects that the server cannot decode: every list of their resource fails.
    Unreadable,
    /// Objects whose version could not be seen.
    Unjudged,
    /// Objects that stay in storage, and that no client can see, change or delete.
    Invisible,
    /// Objects with values that the server refuses: they cannot be updated.
    WritesRefused,
    /// Fields that the server drops when it next writes the object.
    FieldsDropped,
    /// Fields and values of a feature gate that has another setting there: stored objects keep them, and new objects lose
    /// the fields or are refused.
    GateDiffers,
    /// Requests of clients that the server answers 404.
    ClientsRefused,
}

/// Collects what a preflight needs from keys and values in any order.
#[derive(Debug)]
pub struct PreflightBuilder {
    inventory: InventoryBuilder,
    target: TargetServer,
    refusals: Vec<StartRefusal>,
    objects: ObjectFindings,
    definitions: Definitions,
    from: Option<Release>,
}

impl PreflightBuilder {
    /// A preflight of the keys below `prefix` for a server that is started with these flags.
    pub fn new(
        prefix: &str,
        encryption: Option<EncryptionConfig>,
        (target, refusals): (TargetServer, Vec<StartRefusal>),
    ) -> Self {
        let inventory = InventoryBuilder::new(prefix, encryption);
        let (objects, definitions) = (ObjectFindings::default(), Definitions::default());
        Self { inventory, target, refusals, objects, definitions, from: None }
    }

    /// With the release that the servers have now, to say what closes the way back to it.
    #[must_use]
    pub fn coming_from(self, from: Option<Release>) -> Self {
        Self { from, ..self }
    }

    /// The prefix of all keys, with a slash at its end.
    pub fn prefix(&self) -> &str {
        self.inventory.prefix()
    }

    /// Discards everything that was added.
    pub fn reset(&mut self) {
        self.inventory.reset();
        self.objects = ObjectFindings::default();
        self.definitions.clear();
    }

    /// Adds one value. A key outside the prefix is ignored.
    pub fn add(&mut self, key: &[u8], value: &[u8], revision: u64) {
        let Self { inventory, target, objects, definitions, .. } = self;
        inventory.add_and_inspect(key, value, revision, |owner, envelope, plain| {
            definitions.add(owner, envelope, plain);
            objects.add(target, owner, envelope, plain);
        });
    }

    /// The verdict on what was added, read at `revision` from `source`, and on what clients use.
    pub fn finish(self, source: String, revision: u64, clients: &ClientUses) -> Preflight {
        let Self { inventory, target, refusals, objects, definitions, from } = self;
        let inventory = inventory.finish(source, revision);
        let mut not_looked_at = not_looked_at(&inventory, definitions.unread(), &objects);
        not_looked_at.extend(clients.not_known());
        let mut findings: Vec<Finding> = refusals.into_iter().map(start_refused).collect();
        for resource in &inventory.resources {
            findings.extend(judge_resource(resource, &target));
            findings.extend(definitions.judge(resource, &target));
        }
        findings.extend(objects.finish(&target));
        findings.extend(clients.uses.iter().filter_map(|client| client_refused(&target, client)));
        findings.sort_by_key(|finding| finding.effect);
        let to = target.release().to_string();
        let closes_way_back = from.map(|from| closing_resources(&inventory, &target, from)).unwrap_or_default();
        let from = from.map(|from| from.to_string());
        let Inventory { source, revision, .. } = inventory;
        let safe = findings.is_empty();
        Preflight { to, source, revision, from, closes_way_back, safe, findings, not_looked_at }
    }
}

/// Stored resources whose storage version in the target release the present one cannot read, as `resource (version)`.
fn closing_resources(inventory: &Inventory, target: &TargetServer, from: Release) -> Vec<String> {
    let built_in = inventory.resources.iter().filter(|resource| resource.class == ResourceClass::BuiltIn);
    let closing = built_in.filter_map(|ResourceInventory { group, resource, .. }| {
        let version = target.storage_version(group, resource)?;
        let is_open = releases::releases_that_read(group, resource, &version).contains(&from);
        (!is_open).then(|| format!("{} ({version})", qualified_name(group, resource)))
    });
    closing.collect()
}

fn start_refused(StartRefusal { evidence, cure }: StartRefusal) -> Finding {
    Finding {
        effect: FindingEffect::StartRefused,
        resource: String::new(),
        field: String::new(),
        evidence,
        cure,
        objects: Vec::new(),
    }
}

fn judge_resource(resource: &ResourceInventory, target: &TargetServer) -> Vec<Finding> {
    let name = qualified_name(&resource.group, &resource.resource);
    let mut findings = Vec::new();
    if resource.undecodable.count > 0 && matches!(resource.class, ResourceClass::BuiltIn | ResourceClass::Custom) {
        findings.push(Finding {
            effect: FindingEffect::Unreadable,
            resource: name.clone(),
            field: String::new(),
            evidence: format!("{} cannot be decoded by any release", count_of(resource.undecodable.count, "value")),
            cure: "Restore or delete these keys in storage.".to_owned(),
            objects: resource.undecodable.keys.iter().map(|found| format!("{}: {}", found.key, found.reason)).collect(),
        });
    }
    let forms = resource.forms.iter().filter(|_| resource.class == ResourceClass::BuiltIn);
    findings.extend(forms.filter_map(|form| judge_form(resource, &name, form, target)));
    findings
}

fn judge_form(resource: &ResourceInventory, name: &str, form: &StoredForm, target: &TargetServer) -> Option<Finding> {
    let finding = |effect, evidence, cure| {
        let (resource, field) = (name.to_owned(), String::new());
        Some(Finding { effect, resource, field, evidence, cure, objects: Vec::new() })
    };
    let Some(api_version) = &form.api_version else {
        let evidence = format!("{} with a version that encryption or encoding hides", count_of(form.objects, "object"));
        return finding(FindingEffect::Unjudged, evidence, "Give --encryption-provider-config.".to_owned());
    };
    let release = target.release();
    let oldest = form.lowest_revision.unwrap_or_default();
    let evidence = format!(
        "{} stored as {api_version}, the oldest written at revision {oldest}",
        count_of(form.objects, "object")
    );
    match target.readability(&resource.group, &resource.resource, api_version) {
        Readability::Readable => None,
        Readability::Unreadable => {
            let readers = release_list(&releases::releases_that_read(&resource.group, &resource.resource, api_version));
            let storage = target.storage_version(&resource.group, &resource.resource).unwrap_or_default();
            let evidence = format!("{evidence}; {release} cannot decode that, {readers} can");
            let cure = format!(
                "Rewrite them in a version that {release} reads (it stores {storage}) before the change, or delete them."
            );
            finding(FindingEffect::Unreadable, evidence, cure)
        }
        Readability::NotServed => {
            let servers = release_list(&releases::releases_that_store(&resource.group, &resource.resource));
            let evidence =
                format!("{evidence}; {release} with these flags does not serve the resource ({servers} can)");
            let reads =
                releases::releases_that_read(&resource.group, &resource.resource, api_version).contains(&release);
            let cure = match reads {
                true => "Delete them before the change, or turn the API on there with --runtime-config and its gate.",
                false => "Delete them before the change: that release cannot decode them even with the API turned on.",
            };
            finding(FindingEffect::Invisible, evidence, cure.to_owned())
        }
    }
}

fn client_refused(target: &TargetServer, client: &ClientUse) -> Option<Finding> {
    let ClientUse { group, version, resource, requests, .. } = client;
    if !releases::is_built_in(group, version, resource) || target.serves(group, version, resource) {
        return None;
    }
    let prefix = if group.is_empty() { String::new() } else { format!("{group}/") };
    Some(Finding {
        effect: FindingEffect::ClientsRefused,
        resource: qualified_name(group, resource),
        field: String::new(),
        evidence: format!(
            "{} for {prefix}{version} by {}; {} does not serve it",
            count_of(*requests, "request"),
            client.client(),
            target.release()
        ),
        cure: "Move the client to a version that both releases serve.".to_owned(),
        objects: Vec::new(),
    })
}

fn not_looked_at(inventory: &Inventory, unread_definitions: u64, objects: &ObjectFindings) -> Vec<String> {
    let mut sentences = inventory.not_known.clone();
    let of_class = |class| inventory.resources.iter().filter(move |resource| resource.class == class);
    let custom: u64 = of_class(ResourceClass::Custom).map(|resource| resource.objects).sum();
    if custom > 0 {
        sentences.push(format!(
            "{}: their schemas and conversion webhooks; only the versions of their definitions.",
            count_of(custom, "custom object")
        ));
    }
    if unread_definitions > 0 {
        sentences.push(format!("{}: damaged, or in an unknown encoding.", count_of(unread_definitions, "definition")));
    }
    for resource in of_class(ResourceClass::Unknown) {
        sentences.push(format!(
            "{} of {}, which no known release has.",
            count_of(resource.objects, "object"),
            resource.resource
        ));
    }
    if objects.unread() > 0 {
        sentences.push(format!(
            "The fields of {}: stored in a version whose fields are not known.",
            count_of(objects.unread(), "object")
        ));
    }
    if objects.is_protobuf_read() {
        sentences.push(format!(
            "Fields of objects stored as protobuf that releases before {} had and that one does not have.",
            Release::NEWEST
        ));
    }
    sentences.push(
        "Rules that compare an object with its former state, and rules of admission: webhooks, policies, quotas."
            .to_owned(),
    );
    sentences.push("Aggregated API servers, etcd's own version, other components than the API server.".to_owned());
    sentences
}

/// `1 object`, `2 objects`.
pub(crate) fn count_of(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

pub(crate) fn qualified_name(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests;
