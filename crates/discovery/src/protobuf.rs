//! Encodes discovery documents as protobuf exactly like kube-apiserver: non-optional strings and messages are written
//! even if empty, fields in the order of their numbers.

use api::GroupVersionKind;
use api::protobuf::{write_integer, write_message, write_string};

use crate::groups::{
    GroupDiscovery, GroupDiscoveryList, ResourceDiscovery, SharedStrList, SubresourceDiscovery, VersionDiscovery,
};

/// Encodes an `APIGroupDiscoveryList`.
pub(crate) fn encode_group_list(groups: &GroupDiscoveryList) -> Vec<u8> {
    let mut list = Vec::new();
    write_message(&mut list, 1, |metadata| (1..=3).for_each(|field| write_string(metadata, field, "")));
    for item in groups.items() {
        write_message(&mut list, 2, |group| write_group(group, item));
    }
    list
}

fn write_group(out: &mut Vec<u8>, group: &GroupDiscovery) {
    write_message(out, 1, |metadata| {
        write_string(metadata, 1, &group.name);
        // Empty generateName, namespace, selfLink, uid, resourceVersion.
        (2..=6).for_each(|field| write_string(metadata, field, ""));
        // generation 0, then an empty creationTimestamp.
        write_integer(metadata, 7, 0);
        write_message(metadata, 8, |_| {});
    });
    for version in &group.versions {
        write_message(out, 2, |out| write_version(out, version));
    }
}

fn write_version(out: &mut Vec<u8>, version: &VersionDiscovery) {
    write_string(out, 1, &version.name);
    for resource in &version.resources {
        write_message(out, 2, |out| write_resource(out, resource));
    }
    write_string(out, 3, version.freshness.as_str());
}

fn write_resource(out: &mut Vec<u8>, resource: &ResourceDiscovery) {
    write_string(out, 1, &resource.name);
    write_kind(out, 2, resource.response_kind.as_ref());
    write_string(out, 3, resource.scope.as_str());
    write_string(out, 4, &resource.singular);
    write_strings(out, 5, resource.verbs.as_ref());
    write_strings(out, 6, Some(&resource.short_names));
    write_strings(out, 7, Some(&resource.categories));
    for subresource in &resource.subresources {
        write_message(out, 8, |out| write_subresource(out, subresource));
    }
}

fn write_subresource(out: &mut Vec<u8>, subresource: &SubresourceDiscovery) {
    write_string(out, 1, &subresource.name);
    write_kind(out, 2, subresource.response_kind.as_ref());
    for accepted in &subresource.accepted_types {
        write_kind(out, 3, Some(accepted));
    }
    write_strings(out, 4, subresource.verbs.as_ref());
}

fn write_kind(out: &mut Vec<u8>, field: u32, kind: Option<&GroupVersionKind>) {
    if let Some(kind) = kind {
        write_message(out, field, |out| {
            write_string(out, 1, &kind.group);
            write_string(out, 2, &kind.version);
            write_string(out, 3, &kind.kind);
        });
    }
}

fn write_strings(out: &mut Vec<u8>, field: u32, texts: Option<&SharedStrList>) {
    for text in texts.into_iter().flat_map(|texts| texts.iter()) {
        write_string(out, field, text);
    }
}

#[cfg(test)]
mod tests;
