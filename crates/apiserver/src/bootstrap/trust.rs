//! `extension-apiserver-authentication`: by which an extension server knows whom this server lets in, and whom it speaks for.
//!
//! Several servers share the object, and each adds what it has: an extension server must believe all of them.

use access::authenticate::FrontProxy;
use object::Stored;
use serde_json::{Value, json};

use super::objects::SystemObject;
use crate::forms::{self, Object};

/// What this server says about certificates.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The authorities of users, PEM.
    pub client_ca: Option<String>,
    /// The authorities of front proxies, PEM, and what counts from them.
    pub front_proxy: Option<(String, FrontProxy)>,
}

const CLIENT_CA: &str = "client-ca-file";
const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";
const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";

pub(super) fn config_map(trust: &Trust) -> SystemObject {
    let mut data = Object::new();
    if let Some(ca) = &trust.client_ca {
        data.insert(CLIENT_CA.to_owned(), ca.as_str().into());
    }
    if let Some((ca, FrontProxy { allowed_names, headers })) = &trust.front_proxy {
        data.insert(FRONT_PROXY_CA.to_owned(), ca.as_str().into());
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
    let mut system = SystemObject::new("", "configmaps", json!({"metadata": metadata, "data": data}));
    system.update = Box::new(move |stored| complete(stored, &data));
    system
}

/// What is there with ours added; `None` if it has all of it.
fn complete(stored: &Stored, ours: &Object) -> Option<Object> {
    let mut object = forms::stored_object(stored);
    let data = object.entry("data").or_insert_with(|| json!({}));
    let before = data.clone();
    for (key, wanted) in ours {
        let (there, wanted) = (data[key].as_str().unwrap_or_default(), wanted.as_str().unwrap_or_default());
        let both = match key.as_str() {
            CLIENT_CA | FRONT_PROXY_CA => union_of_bundles(there, wanted),
            _ => union_of_lists(there, wanted),
        };
        data[key] = both.into();
    }
    (*data != before).then_some(object)
}

fn union_of_bundles(there: &str, ours: &str) -> String {
    let blocks = |text: &str| -> Vec<String> {
        let blocks = text.split(PEM_BEGIN).skip(1);
        blocks.map(|block| format!("{PEM_BEGIN}\n{}\n", block.trim())).collect()
    };
    let mut all = blocks(there);
    let missing: Vec<String> = blocks(ours).into_iter().filter(|block| !all.contains(block)).collect();
    if missing.is_empty() {
        return there.to_owned();
    }
    all.extend(missing);
    all.concat()
}

fn union_of_lists(there: &str, ours: &str) -> String {
    let list = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
    let mut all = list(there);
    let missing: Vec<Value> = list(ours).into_iter().filter(|entry| !all.contains(entry)).collect();
    if missing.is_empty() && !there.is_empty() {
        return there.to_owned();
    }
    all.extend(missing);
    Value::from(all).to_string()
}

#[cfg(test)]
mod tests {
    use access::authenticate::HeaderNames;
    use expect_test::{Expect, expect};

    use super::*;

    fn pem(name: &str) -> String {
        format!("{PEM_BEGIN}\n{name}\n-----END CERTIFICATE-----\n")
    }

    #[track_caller]
    fn check(there: &Value, expected: &Expect) {
        let front_proxy =
            FrontProxy { allowed_names: vec!["front-proxy-client".to_owned()], headers: HeaderNames::standard() };
        let ours = Trust { client_ca: Some(pem("A")), front_proxy: Some((pem("F"), front_proxy)) };
        let stored = json!({"metadata": {"name": "x"}, "data": there}).to_string();
        let stored = Stored::from_storage(stored.as_bytes(), 7).unwrap();
        let next = config_map(&ours).next(Some(&stored));
        expected.assert_eq(&next.map_or("stays".to_owned(), |object| format!("{:#}", object["data"])));
    }

    #[test]
    fn what_is_there_is_completed_and_never_reduced() {
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
