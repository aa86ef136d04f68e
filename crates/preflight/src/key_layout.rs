//! Which resource a storage key belongs to, in the layout of kube-apiservers.
//!
//! `PREFIX/RESOURCE/[NAMESPACE/]NAME` for built-in resources, some with a name of their own (`minions` for nodes);
//! `PREFIX/GROUP/RESOURCE/[NAMESPACE/]NAME` for custom resources; and a few keys that the servers keep for themselves.

use std::collections::HashMap;

use serde::Serialize;

use crate::releases::{self, StoredKind};

/// What servers keep for themselves, in stock kube-apiservers and in ours: no REST path shows these keys.
const INTERNAL_PREFIXES: [&str; 4] = ["_unskew", "masterleases", "peerserverleases", "ranges"];

/// The kinds of resource that a key can belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceClass {
    /// A resource that some release has built in.
    BuiltIn,
    /// The layout of a custom resource: the first part of the key is an API group.
    Custom,
    /// Bookkeeping of the servers, not an API object.
    Internal,
    /// Seen through the API alone; no key is known.
    Served,
    /// None of these: a resource of a release that is not known, or of another program.
    Unknown,
}

/// A key split into its resource and the object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOwner<'k> {
    /// Whose resource it is.
    pub class: ResourceClass,
    /// The API group; empty for core and for what is not an API object.
    pub group: &'k str,
    /// The plural, or the first part of a key that belongs to no known resource.
    pub resource: &'k str,
    /// The key between the prefix and the object's name: the same for all objects of one resource.
    pub key_prefix: &'k str,
    /// `NAMESPACE/NAME` or `NAME`.
    pub name: &'k str,
}

/// The table of built-in key prefixes.
#[derive(Debug)]
pub struct KeyLayout {
    built_in: HashMap<&'static str, StoredKind>,
}

impl Default for KeyLayout {
    fn default() -> Self {
        Self { built_in: releases::stored_kinds().map(|kind| (kind.key_prefix, kind)).collect() }
    }
}

impl KeyLayout {
    /// The keys of a built-in resource after the prefix, `services/specs`; `None` if it is not built in, or stored as a
    /// resource of another group.
    pub fn built_in_prefix(&self, group: &str, resource: &str) -> Option<&'static str> {
        let mut kinds = self.built_in.values();
        kinds.find(|kind| kind.group == group && kind.resource == resource).map(|kind| kind.key_prefix)
    }

    /// The resource of a key, given without the prefix and its slash: `pods/default/web`.
    pub fn owner<'k>(&self, key: &'k str) -> KeyOwner<'k> {
        let (first, rest) = key.split_once('/').unwrap_or((key, ""));
        let (second, after_second) = rest.split_once('/').unwrap_or((rest, ""));
        let two_parts = &key[..(first.len() + 1 + second.len()).min(key.len())];
        for (prefix, name) in [(two_parts, after_second), (first, rest)] {
            if let Some(kind) = self.built_in.get(prefix) {
                let class = ResourceClass::BuiltIn;
                return KeyOwner { class, group: kind.group, resource: kind.resource, key_prefix: prefix, name };
            }
        }
        if INTERNAL_PREFIXES.contains(&first) {
            let class = ResourceClass::Internal;
            return KeyOwner { class, group: "", resource: first, key_prefix: first, name: rest };
        }
        if first.contains('.') && !after_second.is_empty() {
            let class = ResourceClass::Custom;
            return KeyOwner { class, group: first, resource: second, key_prefix: two_parts, name: after_second };
        }
        KeyOwner { class: ResourceClass::Unknown, group: "", resource: first, key_prefix: first, name: rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected: &str) {
        let layout = KeyLayout::default();
        let KeyOwner { class, group, resource, key_prefix, name } = layout.owner(key);
        assert_eq!(format!("{class:?} {group}/{resource} [{key_prefix}] {name}"), expected);
    }

    #[test]
    fn built_in_prefix_is_known_for_resources_with_their_own_storage() {
        let layout = KeyLayout::default();
        assert_eq!(layout.built_in_prefix("", "services"), Some("services/specs"));
        assert_eq!(layout.built_in_prefix("apps", "deployments"), Some("deployments"));
        assert_eq!(layout.built_in_prefix("", "events"), Some("events"));
        assert_eq!(layout.built_in_prefix("events.k8s.io", "events"), None, "stored as events of the core group");
        assert_eq!(layout.built_in_prefix("shop.example.com", "orders"), None);
    }

    #[test]
    fn keys_of_built_in_resources_are_recognized() {
        check("pods/default/web", "BuiltIn /pods [pods] default/web");
        check("minions/node-1", "BuiltIn /nodes [minions] node-1");
        check("controllers/default/rc", "BuiltIn /replicationcontrollers [controllers] default/rc");
        check("services/specs/default/web", "BuiltIn /services [services/specs] default/web");
        check("services/endpoints/default/web", "BuiltIn /endpoints [services/endpoints] default/web");
        check("ingress/default/web", "BuiltIn networking.k8s.io/ingresses [ingress] default/web");
        check("deployments/default/web", "BuiltIn apps/deployments [deployments] default/web");
        check("events/default/web.1", "BuiltIn /events [events] default/web.1");
        check(
            "podschedulingcontexts/default/x",
            "BuiltIn resource.k8s.io/podschedulingcontexts [podschedulingcontexts] default/x",
        );
        check(
            "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
            "BuiltIn apiextensions.k8s.io/customresourcedefinitions [apiextensions.k8s.io/customresourcedefinitions] a.b.c",
        );
        check(
            "apiregistration.k8s.io/apiservices/v1.",
            "BuiltIn apiregistration.k8s.io/apiservices [apiregistration.k8s.io/apiservices] v1.",
        );
    }

    #[test]
    fn keys_of_custom_resources_carry_their_group() {
        check("example.com/widgets/default/w", "Custom example.com/widgets [example.com/widgets] default/w");
        check("example.com/gadgets/g", "Custom example.com/gadgets [example.com/gadgets] g");
    }

    #[test]
    fn other_keys_are_internal_or_unknown() {
        check("masterleases/10.0.0.1", "Internal /masterleases [masterleases] 10.0.0.1");
        check("peerserverleases/apiserver-x", "Internal /peerserverleases [peerserverleases] apiserver-x");
        check("ranges/serviceips", "Internal /ranges [ranges] serviceips");
        check("_unskew/documents/a", "Internal /_unskew [_unskew] documents/a");
        check("podsecuritypolicy/p", "Unknown /podsecuritypolicy [podsecuritypolicy] p");
        check("example.com/widgets", "Unknown /example.com [example.com] widgets");
        check("", "Unknown / [] ");
    }
}
