//! A CustomResourceDefinition for tests.

use serde_json::{Value, json};

pub(crate) const CRD_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Collection of the custom resource.
pub(crate) const CARTS_PATH: &str = "/apis/shop.example.com/v1/namespaces/default/carts";

/// Definition of `carts.shop.example.com`.
pub(crate) fn carts_crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "carts.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}
