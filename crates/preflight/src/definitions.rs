//! Definitions of custom resources, as far as they decide whether stored objects can be read.

use std::collections::BTreeMap;

use api::GroupVersionKind;
use serde_json::{Map, Value};

use crate::envelope::{Envelope, StoredMediaType};
use crate::inventory::ResourceInventory;
use crate::key_layout::{KeyOwner, ResourceClass};
use crate::releases::{self, Release, TargetServer};
use crate::verdict::{Finding, FindingEffect, count_of, qualified_name};

const GROUP: &str = "apiextensions.k8s.io";
/// kube-apiservers store definitions as `v1beta1`. Group, names and versions have the same place in `v1`.
const KIND: GroupVersionKind<&str> = GroupVersionKind { group: GROUP, version: "v1", kind: "CustomResourceDefinition" };

/// From it on, kube-apiservers decode custom objects in CBOR whatever their gates.
const FIRST_WITH_CBOR: Release = Release::R32;

/// The versions of each definition in storage.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// By group and plural.
    versions: BTreeMap<(String, String), Vec<String>>,
    /// Definitions that could not be decoded.
    unread: u64,
}

impl Definitions {
    /// Adds a stored value if it is a definition.
    pub(crate) fn add(&mut self, owner: &KeyOwner<'_>, envelope: &Envelope<'_>, plain: &[u8]) {
        if owner.group != GROUP || owner.resource != "customresourcedefinitions" {
            return;
        }
        let media_type = match envelope {
            Envelope::Object { media_type, .. } => Some(media_type),
            Envelope::Encrypted(_) | Envelope::Undecodable(_) => None,
        };
        let decoded: Option<Map<String, Value>> = match media_type {
            Some(StoredMediaType::Json) => serde_json::from_slice(plain).ok(),
            Some(StoredMediaType::Protobuf) => releases::decode_protobuf(plain, KIND).and_then(Result::ok),
            Some(StoredMediaType::Cbor) | None => None,
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(spec) = decoded.as_ref().and_then(|object| object.get("spec")) else {
            self.unread += 1;
            return;
        };
        let listed = spec["versions"].as_array().into_iter().flatten().map(|version| text(&version["name"]));
        // The only version of a definition that was written as v1beta1 long ago.
        let single = spec["version"].as_str().map(str::to_owned);
        let versions = listed.chain(single).collect();
        self.versions.insert((text(&spec["group"]), text(&spec["names"]["plural"])), versions);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of definitions that could not be decoded.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// Whether a custom resource can be read: every stored version must be one of its definition, and the encoding known.
    pub(crate) fn judge(&self, resource: &ResourceInventory, target: &TargetServer) -> Vec<Finding> {
        if resource.class != ResourceClass::Custom {
            return Vec::new();
        }
        let name = qualified_name(&resource.group, &resource.resource);
        let finding = |effect, evidence: String, cure: &str| {
            let (resource, field, cure) = (name.clone(), String::new(), cure.to_owned());
            Finding { effect, resource, field, evidence, cure, objects: Vec::new() }
        };
        let Some(versions) = self.versions.get(&(resource.group.clone(), resource.resource.clone())) else {
            if self.unread > 0 {
                return Vec::new();
            }
            let evidence = format!("{} without a definition", count_of(resource.objects, "object"));
            let cure = "Create the definition again, or delete these keys in storage.";
            return vec![finding(FindingEffect::Invisible, evidence, cure)];
        };
        let forms = resource.forms.iter().filter_map(|form| {
            let Some(api_version) = &form.api_version else {
                let evidence = format!("{} with a version that encryption hides", count_of(form.objects, "object"));
                return Some(finding(FindingEffect::Unjudged, evidence, "Give --encryption-provider-config."));
            };
            if form.media_type == Some(StoredMediaType::Cbor.as_str()) && target.release() < FIRST_WITH_CBOR {
                let evidence = format!(
                    "{} stored as CBOR, which servers before {FIRST_WITH_CBOR} cannot decode",
                    count_of(form.objects, "object")
                );
                let cure = "Turn the gate CBORServingAndStorage off, and migrate the resource before the change.";
                return Some(finding(FindingEffect::Unreadable, evidence, cure));
            }
            let (_, version) = api_version.split_once('/')?;
            if versions.iter().any(|known| known == version) {
                return None;
            }
            let evidence = format!(
                "{} stored as {api_version}, which the definition does not have; it has {}",
                count_of(form.objects, "object"),
                versions.join(", ")
            );
            let cure =
                "Add the version to the definition with served: false, migrate the resource, then remove the version.";
            Some(finding(FindingEffect::Unreadable, evidence, cure))
        });
        forms.collect()
    }
}
