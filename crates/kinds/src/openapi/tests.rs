use expect_test::{Expect, expect};

use serde_json::{Map, Value};

use super::*;
use crate::feature_gates::FeatureGates;
use crate::release::Release;
use crate::runtime_config::RuntimeConfig;

fn documents(release: Release, gates: &str, config: &str) -> OpenApi {
    let gates = FeatureGates::parse(release, gates).unwrap();
    OpenApi::new(Arc::new(ServedResources::new(&gates, &RuntimeConfig::parse(release, config).unwrap())))
}

fn everything(release: Release) -> OpenApi {
    documents(release, "AllAlpha=true,AllBeta=true,OpenAPIEnums=false", "api/all=true")
}

fn parse(document: &OpenApiDocument) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

#[track_caller]
fn check(document: &Value, pointer: &str, expected: &Expect) {
    let part = document.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}"));
    expected.assert_eq(&part.to_string());
}

#[test]
fn openapi_index_lists_every_group_version() {
    let documents = documents(Release::R36, "", "");
    let index = parse(documents.index());
    let paths = index["paths"].as_object().unwrap();
    for (path, address) in paths {
        let hash = &documents.version(path).unwrap().hash;
        assert_eq!(address["serverRelativeURL"], format!("/openapi/v3/{path}?hash={hash}"));
    }
    let listed: Vec<_> = paths.keys().take(5).map(String::as_str).collect();
    assert_eq!(
        listed,
        [".well-known/openid-configuration", "api", "api/v1", "apis", "apis/admissionregistration.k8s.io"]
    );
    assert!(documents.version("apis/apps/v2").is_none());
}

#[test]
fn index_hash_does_not_depend_on_build_order() {
    let (before, after) = (documents(Release::R36, "", ""), documents(Release::R36, "", ""));
    before.version("apis/apps/v1").unwrap();
    assert_eq!(before.index(), after.index());
    assert_ne!(before.index(), documents(Release::R35, "", "").index());
    assert_eq!(before.index().hash.len(), 128);
}

#[test]
fn openapi_types_match_kubernetes() {
    let document = parse(documents(Release::R36, "", "").version("apis/apps/v1").unwrap());
    let schemas = |name: &str| format!("/components/schemas/{name}");
    check(
        &document,
        &schemas("io.k8s.api.apps.v1.DeploymentSpec"),
        &expect![[
            r##"{"properties":{"minReadySeconds":{"format":"int32","type":"integer"},"paused":{"type":"boolean"},"progressDeadlineSeconds":{"format":"int32","type":"integer"},"replicas":{"format":"int32","type":"integer"},"revisionHistoryLimit":{"format":"int32","type":"integer"},"selector":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"},"strategy":{"allOf":[{"$ref":"#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}],"default":{},"x-kubernetes-patch-strategy":"retainKeys"},"template":{"allOf":[{"$ref":"#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}],"default":{}}},"required":["selector","template"],"type":"object"}"##
        ]],
    );
    check(
        &document,
        &schemas("io.k8s.api.core.v1.ContainerPort"),
        &expect![[
            r##"{"properties":{"containerPort":{"default":0,"format":"int32","type":"integer"},"hostIP":{"type":"string"},"hostPort":{"format":"int32","type":"integer"},"name":{"type":"string"},"protocol":{"default":"TCP","enum":["SCTP","TCP","UDP"],"type":"string"}},"required":["containerPort"],"type":"object"}"##
        ]],
    );
    check(
        &document,
        &schemas("io.k8s.api.core.v1.Container/properties/ports"),
        &expect![[
            r##"{"items":{"allOf":[{"$ref":"#/components/schemas/io.k8s.api.core.v1.ContainerPort"}],"default":{}},"type":"array","x-kubernetes-list-map-keys":["containerPort","protocol"],"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"containerPort","x-kubernetes-patch-strategy":"merge"}"##
        ]],
    );
    check(
        &document,
        &schemas("io.k8s.api.core.v1.PodSpec/properties/nodeSelector"),
        &expect![[
            r##"{"additionalProperties":{"default":"","type":"string"},"type":"object","x-kubernetes-map-type":"atomic"}"##
        ]],
    );
    check(
        &document,
        &schemas("io.k8s.apimachinery.pkg.api.resource.Quantity"),
        &expect![[r##"{"oneOf":[{"type":"string"},{"type":"number"}]}"##]],
    );
    check(
        &document,
        &schemas("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"),
        &expect![[
            r##"{"properties":{"matchExpressions":{"items":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement"}],"default":{}},"type":"array","x-kubernetes-list-type":"atomic"},"matchLabels":{"additionalProperties":{"default":"","type":"string"},"type":"object"}},"type":"object","x-kubernetes-map-type":"atomic"}"##
        ]],
    );
    check(
        &document,
        &schemas("io.k8s.api.apps.v1.Deployment/x-kubernetes-group-version-kind"),
        &expect![[r##"[{"group":"apps","kind":"Deployment","version":"v1"}]"##]],
    );
}

#[test]
fn openapi_operation_ids_match_kubernetes() {
    let document = parse(documents(Release::R36, "", "").version("apis/apps/v1").unwrap());
    let paths = document["paths"].as_object().unwrap();
    let lines = paths.iter().filter(|(path, _)| path.contains("deployments") || path.ends_with('/'));
    let lines = lines.flat_map(|(path, item)| {
        item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters").map(
            move |(method, operation)| {
                let kind = &operation["x-kubernetes-group-version-kind"]["kind"];
                let (name, action) = (&operation["operationId"], &operation["x-kubernetes-action"]);
                format!("{method} {path}: {name} {action} {kind}\n")
            },
        )
    });
    expect![[r#"
        get /apis/apps/v1/: "getAppsV1APIResources" null null
        get /apis/apps/v1/deployments: "listAppsV1DeploymentForAllNamespaces" "list" "Deployment"
        delete /apis/apps/v1/namespaces/{namespace}/deployments: "deleteAppsV1CollectionNamespacedDeployment" "deletecollection" "Deployment"
        get /apis/apps/v1/namespaces/{namespace}/deployments: "listAppsV1NamespacedDeployment" "list" "Deployment"
        post /apis/apps/v1/namespaces/{namespace}/deployments: "createAppsV1NamespacedDeployment" "post" "Deployment"
        delete /apis/apps/v1/namespaces/{namespace}/deployments/{name}: "deleteAppsV1NamespacedDeployment" "delete" "Deployment"
        get /apis/apps/v1/namespaces/{namespace}/deployments/{name}: "readAppsV1NamespacedDeployment" "get" "Deployment"
        patch /apis/apps/v1/namespaces/{namespace}/deployments/{name}: "patchAppsV1NamespacedDeployment" "patch" "Deployment"
        put /apis/apps/v1/namespaces/{namespace}/deployments/{name}: "replaceAppsV1NamespacedDeployment" "put" "Deployment"
        get /apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale: "readAppsV1NamespacedDeploymentScale" "get" "Scale"
        patch /apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale: "patchAppsV1NamespacedDeploymentScale" "patch" "Scale"
        put /apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale: "replaceAppsV1NamespacedDeploymentScale" "put" "Scale"
        get /apis/apps/v1/namespaces/{namespace}/deployments/{name}/status: "readAppsV1NamespacedDeploymentStatus" "get" "Deployment"
        patch /apis/apps/v1/namespaces/{namespace}/deployments/{name}/status: "patchAppsV1NamespacedDeploymentStatus" "patch" "Deployment"
        put /apis/apps/v1/namespaces/{namespace}/deployments/{name}/status: "replaceAppsV1NamespacedDeploymentStatus" "put" "Deployment"
        get /apis/apps/v1/watch/deployments: "watchAppsV1DeploymentListForAllNamespaces" "watchlist" "Deployment"
        get /apis/apps/v1/watch/namespaces/{namespace}/deployments: "watchAppsV1NamespacedDeploymentList" "watchlist" "Deployment"
        get /apis/apps/v1/watch/namespaces/{namespace}/deployments/{name}: "watchAppsV1NamespacedDeployment" "watch" "Deployment"
    "#]].assert_eq(&lines.collect::<String>());
}

#[test]
fn openapi_patch_operation_is_complete() {
    let document = parse(documents(Release::R36, "", "").version("apis/coordination.k8s.io/v1").unwrap());
    let path = "/paths/~1apis~1coordination.k8s.io~1v1~1namespaces~1{namespace}~1leases~1{name}";
    check(
        &document,
        &format!("{path}/patch"),
        &expect![[
            r##"{"operationId":"patchCoordinationV1NamespacedLease","parameters":[{"in":"query","name":"dryRun","schema":{"type":"string","uniqueItems":true}},{"in":"query","name":"fieldManager","schema":{"type":"string","uniqueItems":true}},{"in":"query","name":"fieldValidation","schema":{"type":"string","uniqueItems":true}},{"in":"query","name":"force","schema":{"type":"boolean","uniqueItems":true}}],"requestBody":{"content":{"application/apply-patch+yaml":{"schema":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"}},"application/json-patch+json":{"schema":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"}},"application/merge-patch+json":{"schema":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"}},"application/strategic-merge-patch+json":{"schema":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"}}},"required":true},"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/io.k8s.api.coordination.v1.Lease"}},"application/vnd.kubernetes.protobuf":{"schema":{"$ref":"#/components/schemas/io.k8s.api.coordination.v1.Lease"}},"application/yaml":{"schema":{"$ref":"#/components/schemas/io.k8s.api.coordination.v1.Lease"}}},"description":"OK"},"201":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/io.k8s.api.coordination.v1.Lease"}},"application/vnd.kubernetes.protobuf":{"schema":{"$ref":"#/components/schemas/io.k8s.api.coordination.v1.Lease"}},"application/yaml":{"schema":{"$ref":"#/components/schemas/io.k8s.api.coordination.v1.Lease"}}},"description":"Created"},"401":{"description":"Unauthorized"}},"tags":["coordination_v1"],"x-kubernetes-action":"patch","x-kubernetes-group-version-kind":{"group":"coordination.k8s.io","kind":"Lease","version":"v1"}}"##
        ]],
    );
    check(
        &document,
        &format!("{path}/parameters"),
        &expect![[
            r##"[{"in":"path","name":"name","required":true,"schema":{"type":"string","uniqueItems":true}},{"in":"path","name":"namespace","required":true,"schema":{"type":"string","uniqueItems":true}},{"in":"query","name":"pretty","schema":{"type":"string","uniqueItems":true}}]"##
        ]],
    );
}

#[test]
fn connect_and_log_operations_return_plain_strings() {
    let document = parse(documents(Release::R36, "", "").version("api/v1").unwrap());
    let path = "/paths/~1api~1v1~1namespaces~1{namespace}~1pods~1{name}";
    check(
        &document,
        &format!("{path}~1exec/post"),
        &expect![[
            r##"{"operationId":"connectCoreV1PostNamespacedPodExec","responses":{"200":{"content":{"*/*":{"schema":{"type":"string"}}},"description":"OK"},"401":{"description":"Unauthorized"}},"tags":["core_v1"],"x-kubernetes-action":"connect","x-kubernetes-group-version-kind":{"group":"","kind":"PodExecOptions","version":"v1"}}"##
        ]],
    );
    check(
        &document,
        &format!("{path}~1log/get/responses/200"),
        &expect![[
            r##"{"content":{"application/json":{"schema":{"type":"string"}},"application/vnd.kubernetes.protobuf":{"schema":{"type":"string"}},"application/yaml":{"schema":{"type":"string"}},"text/plain":{"schema":{"type":"string"}}},"description":"OK"}"##
        ]],
    );
}

#[test]
fn swagger_document_uses_v2_dialect() {
    let document = parse(documents(Release::R36, "", "").swagger());
    check(
        &document,
        "/definitions/io.k8s.api.apps.v1.DeploymentSpec/properties/strategy",
        &expect![[
            r##"{"$ref":"#/definitions/io.k8s.api.apps.v1.DeploymentStrategy","x-kubernetes-patch-strategy":"retainKeys"}"##
        ]],
    );
    check(
        &document,
        "/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        &expect![[r##"{"format":"int-or-string","type":"string"}"##]],
    );
    check(
        &document,
        "/paths/~1api~1v1~1namespaces/post",
        &expect![[
            r##"{"consumes":["*/*"],"operationId":"createCoreV1Namespace","parameters":[{"in":"query","name":"dryRun","type":"string","uniqueItems":true},{"in":"query","name":"fieldManager","type":"string","uniqueItems":true},{"in":"query","name":"fieldValidation","type":"string","uniqueItems":true},{"in":"body","name":"body","required":true,"schema":{"$ref":"#/definitions/io.k8s.api.core.v1.Namespace"}}],"produces":["application/json","application/yaml","application/vnd.kubernetes.protobuf"],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/io.k8s.api.core.v1.Namespace"}},"201":{"description":"Created","schema":{"$ref":"#/definitions/io.k8s.api.core.v1.Namespace"}},"202":{"description":"Accepted","schema":{"$ref":"#/definitions/io.k8s.api.core.v1.Namespace"}},"401":{"description":"Unauthorized"}},"schemes":["https"],"tags":["core_v1"],"x-kubernetes-action":"post","x-kubernetes-group-version-kind":{"group":"","kind":"Namespace","version":"v1"}}"##
        ]],
    );
}

/// kubectl relies on server-side field validation if the patch operation of a kind has this parameter.
#[test]
fn every_patch_operation_lists_field_validation_and_dry_run() {
    let documents = everything(Release::NEWEST);
    for path in documents.versions.keys() {
        let document = parse(documents.version(path).unwrap());
        for (path, item) in document["paths"].as_object().unwrap() {
            let Some(patch) = item.get("patch").filter(|patch| patch["x-kubernetes-action"] == "patch") else {
                continue;
            };
            for name in ["fieldValidation", "dryRun"] {
                let has = patch["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == name);
                assert!(has, "{path} {name}");
            }
        }
    }
}

#[test]
fn every_openapi_reference_resolves() {
    for release in Release::ALL {
        let documents = everything(release);
        for path in documents.versions.keys() {
            // Pages such as `version` have none.
            let is_group_version = path == "api/v1" || path.starts_with("apis/") && path.matches('/').count() == 2;
            let count = check_references(&parse(documents.version(path).unwrap()), &format!("{release} {path}"));
            assert!(count > 10 || !is_group_version, "{release} {path} has only {count} references");
        }
    }
    assert!(check_references(&parse(everything(Release::NEWEST).swagger()), "v2") > 10);
}

/// Returns the number of references.
#[track_caller]
fn check_references(document: &Value, place: &str) -> usize {
    let mut due = vec![document];
    let mut count = 0;
    while let Some(value) = due.pop() {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{place} {reference}");
            count += 1;
        }
        due.extend(value.as_array().into_iter().flatten());
        due.extend(value.as_object().into_iter().flat_map(Map::values));
    }
    count
}

/// The length-delimited fields of a protobuf message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (tag, length) = (varint(&mut bytes), varint(&mut bytes));
        assert_eq!(tag & 7, 2, "only fields with a length are written");
        let (value, rest) = bytes.split_at(usize::try_from(length).unwrap());
        fields.push((tag >> 3, value));
        bytes = rest;
    }
    fields
}

fn field(bytes: &[u8], number: u64) -> &[u8] {
    fields(bytes).into_iter().find(|(found, _)| *found == number).unwrap_or_else(|| panic!("no field {number}")).1
}

/// The value of a member of this name.
fn member<'a>(bytes: &'a [u8], number: u64, name: &str) -> &'a [u8] {
    let mut members = fields(bytes).into_iter().filter(|(found, _)| *found == number);
    let found = members.find(|(_, member)| field(member, 1) == name.as_bytes());
    field(found.unwrap_or_else(|| panic!("no {name}")).1, 2)
}

#[test]
fn swagger_protobuf_matches_json() {
    let documents = documents(Release::R36, "", "");
    let (json, protobuf) = (parse(documents.swagger()), documents.swagger_protobuf());
    let definitions = field(&protobuf.body, 9);
    let names: Vec<_> = fields(definitions).iter().map(|(_, member)| field(member, 1).to_vec()).collect();
    let expected: Vec<_> =
        json["definitions"].as_object().unwrap().keys().map(|name| name.as_bytes().to_vec()).collect();
    assert_eq!(names, expected);
    let deployment = member(definitions, 1, "io.k8s.api.apps.v1.Deployment");
    let kinds = member(deployment, 31, "x-kubernetes-group-version-kind");
    assert_eq!(field(kinds, 2), br#"[{"group":"apps","kind":"Deployment","version":"v1"}]"#);
    assert_eq!(field(field(deployment, 22), 1), b"object");
    let spec = member(field(deployment, 25), 1, "spec");
    assert_eq!(field(spec, 1), b"#/definitions/io.k8s.api.apps.v1.DeploymentSpec");
    let required = member(definitions, 1, "io.k8s.api.apps.v1.DeploymentSpec");
    assert_eq!(field(required, 19), b"selector");

    let path = member(field(&protobuf.body, 8), 2, "/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    let patch = field(path, 8);
    let parameters = fields(patch).into_iter().filter(|(number, _)| *number == 8);
    let parameters = parameters.map(|(_, item)| field(field(field(field(item, 1), 2), 3), 4));
    let parameters: Vec<_> = parameters.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(parameters, ["pretty", "dryRun", "fieldManager", "fieldValidation", "force"]);
    let kind = member(patch, 13, "x-kubernetes-group-version-kind");
    assert_eq!(field(kind, 2), br#"{"group":"apps","kind":"Deployment","version":"v1"}"#);
}
