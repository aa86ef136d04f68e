//! Documents in protobuf, as kube-apiserver writes them: strings and messages that are not optional are written even if empty,
//! fields in the order of their numbers.

use api::GroupVersionKind;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::groups::{Group, Groups, Names, Resource, Subresource, Version};

/// The start of every protobuf body of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// Wraps an encoded object in `runtime.Unknown`, which says what it is.
pub(crate) fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let mut body = MAGIC.to_vec();
    message(&mut body, 1, |type_meta| {
        string(type_meta, 1, api_version);
        string(type_meta, 2, kind);
    });
    bytes(&mut body, 2, object);
    string(&mut body, 3, "");
    string(&mut body, 4, "");
    body
}

/// `APIGroupDiscoveryList`.
pub(crate) fn list(groups: &Groups) -> Vec<u8> {
    let mut list = Vec::new();
    message(&mut list, 1, |metadata| (1..=3).for_each(|field| string(metadata, field, "")));
    for item in groups.items() {
        message(&mut list, 2, |group| write_group(group, item));
    }
    list
}

fn write_group(out: &mut Vec<u8>, group: &Group) {
    message(out, 1, |metadata| {
        string(metadata, 1, &group.name);
        // generateName, namespace, selfLink, uid, resourceVersion.
        (2..=6).for_each(|field| string(metadata, field, ""));
        // generation, a number; then creationTimestamp, which is empty for no time at all.
        metadata.extend_from_slice(&[7 << 3, 0]);
        message(metadata, 8, |_| {});
    });
    for version in &group.versions {
        message(out, 2, |out| write_version(out, version));
    }
}

fn write_version(out: &mut Vec<u8>, version: &Version) {
    string(out, 1, &version.name);
    for resource in &version.resources {
        message(out, 2, |out| write_resource(out, resource));
    }
    string(out, 3, version.freshness.as_str());
}

fn write_resource(out: &mut Vec<u8>, resource: &Resource) {
    string(out, 1, &resource.name);
    kind(out, 2, resource.response_kind.as_ref());
    string(out, 3, resource.scope.as_str());
    string(out, 4, &resource.singular);
    strings(out, 5, resource.verbs.as_ref());
    strings(out, 6, Some(&resource.short_names));
    strings(out, 7, Some(&resource.categories));
    for subresource in &resource.subresources {
        message(out, 8, |out| write_subresource(out, subresource));
    }
}

fn write_subresource(out: &mut Vec<u8>, subresource: &Subresource) {
    string(out, 1, &subresource.name);
    kind(out, 2, subresource.response_kind.as_ref());
    for accepted in &subresource.accepted_types {
        kind(out, 3, Some(accepted));
    }
    strings(out, 4, subresource.verbs.as_ref());
}

fn kind(out: &mut Vec<u8>, field: u32, kind: Option<&GroupVersionKind>) {
    if let Some(kind) = kind {
        message(out, field, |out| {
            string(out, 1, &kind.group);
            string(out, 2, &kind.version);
            string(out, 3, &kind.kind);
        });
    }
}

fn strings(out: &mut Vec<u8>, field: u32, texts: Option<&Names>) {
    for text in texts.into_iter().flat_map(|texts| texts.iter()) {
        string(out, field, text);
    }
}

fn string(out: &mut Vec<u8>, field: u32, text: &str) {
    bytes(out, field, text.as_bytes());
}

/// The content is written to a buffer of its own, because its length goes in front of it.
fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    write(&mut content);
    bytes(out, field, &content);
}

fn bytes(out: &mut Vec<u8>, field: u32, content: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests;
