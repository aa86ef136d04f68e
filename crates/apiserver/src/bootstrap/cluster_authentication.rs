//! The ConfigMap `extension-apiserver-authentication`, with which an aggregated API server verifies client certificates
//! and the front-proxy headers of API servers.
//!
//! All servers share the object and each adds its own CAs and header names, because an aggregated API server must trust
//! all of them.

use access::authentication::FrontProxy;
use api::json::JsonObject;
use object::StoredObject;
use serde_json::{Value, json};

use super::system_objects::SystemObject;
use crate::object_codec;

/// The authentication settings of this server that the ConfigMap publishes.
#[derive(Clone, Debug, Default)]
pub struct ClusterAuthentication {
    /// `--client-ca-file`, PEM.
    pub client_ca: Option<String>,
    /// `--requestheader-client-ca-file`, PEM, and the other `--requestheader-*` settings.
    pub front_proxy: Option<(String, FrontProxy)>,
}

const CLIENT_CA_KEY: &str = "client-ca-file";
const FRONT_PROXY_CA_KEY: &str = "requestheader-client-ca-file";
const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";

pub(super) fn authentication_config_map(cluster_authentication: &ClusterAuthentication) -> SystemObject {
    let mut data = JsonObject::new();
    if let Some(ca) = &cluster_authentication.client_ca {
        data.insert(CLIENT_CA_KEY.to_owned(), ca.as_str().into());
    }
    if let Some((ca, FrontProxy { allowed_names, headers })) = &cluster_authentication.front_proxy {
        data.insert(FRONT_PROXY_CA_KEY.to_owned(), ca.as_str().into());
        for (key, list) in [
            ("requestheader-username-headers", &headers.user),
            ("requestheader-uid-headers", &headers.uid),
            ("requestheader-group-headers", &headers.group),
            ("requestheader-extra-headers-prefix", &headers.extra_prefix),
            ("requestheader-allowed-names", allowed_names),
        ] {
            data.insert(key.to_owned(), json!(list).to_string().into());
        }
    }
    let metadata = json!({"name": "extension-apiserver-authentication", "namespace": "kube-system"});
    let mut system = SystemObject::new("", "configmaps", [("metadata", metadata), ("data", data.clone().into())]);
    system.update_existing = Box::new(move |stored| add_missing_data(stored, &data));
    system
}

/// The stored ConfigMap with the missing certificates and list entries added; `None` if nothing is missing.
fn add_missing_data(stored: &StoredObject, desired: &JsonObject) -> Option<JsonObject> {
    let mut object = object_codec::decode_stored(stored);
    let data = object.entry("data").or_insert_with(|| json!({}));
    let before = data.clone();
    for (key, wanted) in desired {
        let (existing, wanted) = (data[key].as_str().unwrap_or_default(), wanted.as_str().unwrap_or_default());
        let merged = match key.as_str() {
            CLIENT_CA_KEY | FRONT_PROXY_CA_KEY => merge_pem_bundles(existing, wanted),
            _ => merge_json_lists(existing, wanted),
        };
        data[key] = merged.into();
    }
    (*data != before).then_some(object)
}

fn merge_pem_bundles(existing: &str, added: &str) -> String {
    let blocks = |text: &str| -> Vec<String> {
        let blocks = text.split(PEM_BEGIN).skip(1);
        blocks.map(|block| format!("{PEM_BEGIN}\n{}\n", block.trim())).collect()
    };
    let mut all = blocks(existing);
    let missing: Vec<String> = blocks(added).into_iter().filter(|block| !all.contains(block)).collect();
    if missing.is_empty() {
        return existing.to_owned();
    }
    all.extend(missing);
    all.concat()
}

fn merge_json_lists(existing: &str, added: &str) -> String {
    let list = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
    let mut all = list(existing);
    let missing: Vec<Value> = list(added).into_iter().filter(|entry| !all.contains(entry)).collect();
    if missing.is_empty() && !existing.is_empty() {
        return existing.to_owned();
    }
    all.extend(missing);
    Value::from(all).to_string()
}

#[cfg(test)]
mod tests {
    use access::authentication::FrontProxyHeaderNames;
    use expect_test::{Expect, expect};

    use super::*;

    fn pem(name: &str) -> String {
        format!("{PEM_BEGIN}\n{name}\n-----END CERTIFICATE-----\n")
    }

    #[track_caller]
    fn check(there: &Value, expected: &Expect) {
        let front_proxy = FrontProxy {
            allowed_names: vec!["front-proxy-client".to_owned()],
            headers: FrontProxyHeaderNames::standard(),
        };
        let ours = ClusterAuthentication { client_ca: Some(pem("A")), front_proxy: Some((pem("F"), front_proxy)) };
        let stored = json!({"metadata": {"name": "x"}, "data": there}).to_string();
        let stored = StoredObject::from_storage(stored.as_bytes(), 7).unwrap();
        let next = authentication_config_map(&ours).next_state(Some(&stored));
        expected.assert_eq(&next.map_or("stays".to_owned(), |object| format!("{:#}", object["data"])));
    }

    #[test]
    fn authentication_config_map_is_extended_and_never_reduced() {
        check(
            &json!({"client-ca-file": pem("B"), "requestheader-allowed-names": "[\"aggregator\"]", "other": "kept"}),
            &expect![[r#"
                {
                  "client-ca-file": "-----BEGIN CERTIFICATE-----\nB\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n",
                  "other": "kept",
                  "requestheader-allowed-names": "[\"aggregator\",\"front-proxy-client\"]",
                  "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----\nF\n-----END CERTIFICATE-----\n",
                  "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
                  "requestheader-group-headers": "[\"X-Remote-Group\"]",
                  "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
                  "requestheader-username-headers": "[\"X-Remote-User\"]"
                }"#]],
        );
        check(
            &json!({
                "client-ca-file": pem("A"),
                "requestheader-allowed-names": "[\"front-proxy-client\"]",
                "requestheader-client-ca-file": pem("F"),
                "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
                "requestheader-group-headers": "[\"X-Remote-Group\"]",
                "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
                "requestheader-username-headers": "[\"X-Remote-User\"]"
            }),
            &expect!["stays"],
        );
    }
}
