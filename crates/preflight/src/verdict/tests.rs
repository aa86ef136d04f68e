use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::clients::ClientUseCounter;
use crate::flags::ServerFlags;
use crate::table::{render_plan, render_preflight};

fn target(to: Release, (feature_gates, runtime_config): (&str, &str)) -> (TargetServer, Vec<StartRefusal>) {
    let mut flags = ServerFlags::default();
    flags.push("feature-gates", feature_gates.to_owned());
    flags.push("runtime-config", runtime_config.to_owned());
    TargetServer::new(to, &flags)
}

fn preflight(to: Release, flags: (&str, &str), values: &[(&str, Value)], audit_lines: &[&str]) -> Preflight {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).into_bytes();
    let values: Vec<_> = values.iter().map(|(key, value)| (*key, text(value))).collect();
    preflight_of_bytes(to, flags, &values, audit_lines)
}

fn preflight_of_bytes(to: Release, flags: (&str, &str), values: &[(&str, Vec<u8>)], audit_lines: &[&str]) -> Preflight {
    let mut builder = PreflightBuilder::new("/registry", None, target(to, flags));
    for (key, value) in values {
        builder.add(format!("/registry/{key}").as_bytes(), value, 7);
    }
    let mut counter = ClientUseCounter::default();
    audit_lines.iter().for_each(|line| counter.add_audit_line(line.as_bytes()));
    builder.finish("x.db".to_owned(), 9, &counter.finish())
}

#[track_caller]
fn check(to: Release, flags: (&str, &str), values: &[(&str, Value)], expected: &Expect) {
    let result = preflight(to, flags, values, &[]);
    assert_eq!(result.safe, result.findings.is_empty());
    let findings: String = render_preflight(&result).split("Not looked at").next().unwrap_or_default().to_owned();
    expected.assert_eq(&findings);
}

fn class(version: &str) -> Value {
    json!({"kind": "VolumeAttributesClass", "apiVersion": format!("storage.k8s.io/{version}"), "driverName": "d"})
}

#[test]
fn storage_that_the_release_reads_in_full_is_safe() {
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": []}});
    check(
        Release::R34,
        ("", ""),
        &[("pods/default/p", pod), ("volumeattributesclasses/a", class("v1"))],
        &expect![[r#"
        x.db to 1.34: nothing was found that makes it unsafe

    "#]],
    );
}

#[test]
fn rollback_names_unreadable_and_invisible_objects() {
    let values = [("volumeattributesclasses/a", class("v1")), ("volumeattributesclasses/b", class("v1beta1"))];
    check(
        Release::R33,
        ("", ""),
        &values,
        &expect![[r#"
            x.db to 1.33: NOT SAFE, 2 findings

            INVISIBLE volumeattributesclasses.storage.k8s.io
              1 object stored as storage.k8s.io/v1, the oldest written at revision 7; 1.33 with these flags does not serve the resource (1.31 to 1.37 can).
              Cure: Delete them before the change: that release cannot decode them even with the API turned on.

            INVISIBLE volumeattributesclasses.storage.k8s.io
              1 object stored as storage.k8s.io/v1beta1, the oldest written at revision 7; 1.33 with these flags does not serve the resource (1.31 to 1.37 can).
              Cure: Delete them before the change, or turn the API on there with --runtime-config and its gate.

        "#]],
    );
    check(
        Release::R33,
        ("", "storage.k8s.io/v1beta1=true"),
        &values,
        &expect![[r#"
            x.db to 1.33: NOT SAFE, 1 finding

            UNREADABLE volumeattributesclasses.storage.k8s.io
              1 object stored as storage.k8s.io/v1, the oldest written at revision 7; 1.33 cannot decode that, 1.34 to 1.37 can.
              Cure: Rewrite them in a version that 1.33 reads (it stores storage.k8s.io/v1beta1) before the change, or delete them.

        "#]],
    );
}

#[test]
fn dropped_fields_name_objects_and_managers() {
    let pod = |name: &str| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "managedFields": [
            {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:hostnameOverride": {}}}},
            {"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}},
        ]}, "spec": {"hostnameOverride": "h"}})
    };
    check(
        Release::R33,
        ("", ""),
        &[("pods/default/a", pod("a")), ("pods/default/b", pod("b"))],
        &expect![[r#"
            x.db to 1.33: NOT SAFE, 1 finding

            FIELDS DROPPED pods
              2 objects with spec.hostnameOverride, which a kube-apiserver of 1.33 does not have and drops at their next write.
                default/a (set by kubectl)
                default/b (set by kubectl)
              Cure: Have the owners remove the field, or accept the loss.

        "#]],
    );
}

#[test]
fn flags_and_undecodable_values_are_findings() {
    let values = [("pods/default/a", json!("garbage")), ("secrets/default/s", json!("k8s:enc:aescbc:v1:k:x"))];
    check(
        Release::R36,
        ("NoSuchGate=true", ""),
        &values,
        &expect![[r#"
            x.db to 1.36: NOT SAFE, 3 findings

            SERVER DOES NOT START
              --feature-gates: unrecognized feature gate: NoSuchGate.
              Cure: Change --feature-gates of the servers of that release.

            UNREADABLE pods
              1 value cannot be decoded by any release.
                /registry/pods/default/a: the value is neither JSON nor Kubernetes protobuf
              Cure: Restore or delete these keys in storage.

            CANNOT BE JUDGED secrets
              1 object with a version that encryption or encoding hides.
              Cure: Give --encryption-provider-config.

        "#]],
    );
}

#[test]
fn damaged_objects_are_unreadable_and_named() {
    let config_map = |name: &str, kind: &str, data: Value| {
        let object = json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name}, "data": data});
        (format!("configmaps/default/{name}"), object.to_string().into_bytes())
    };
    let values = [
        config_map("typed", "ConfigMap", json!({"a": 5})),
        config_map("misplaced", "Secret", json!({})),
        config_map("well", "ConfigMap", json!({"a": "5"})),
        ("configmaps/default/cut".to_owned(), b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x7f".to_vec()),
    ];
    let values: Vec<_> = values.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    let result = preflight_of_bytes(Release::R36, ("", ""), &values, &[]);
    expect![[r#"
        x.db to 1.36: NOT SAFE, 1 finding

        UNREADABLE configmaps
          3 objects that a kube-apiserver of 1.36 cannot decode.
            default/typed: json: cannot unmarshal number into Go struct field ConfigMap.data of type string
            default/misplaced: it is a Secret
            default/cut: unexpected end of the message
          Cure: Restore or delete these keys in storage.

    "#]]
    .assert_eq(render_preflight(&result).split("Not looked at").next().unwrap_or_default());
}

#[test]
fn kinds_of_one_old_release_are_read_in_protobuf() {
    let mut value = b"k8s\0\x0a\x26\x0a\x1ascheduling.k8s.io/v1alpha1\x12\x08Workload".to_vec();
    // Metadata with a name, and nothing else.
    value.extend(b"\x12\x05\x0a\x03\x0a\x01w");
    let read = |to, flags| preflight_of_bytes(to, flags, &[("workloads/default/w", value.clone())], &[]);
    let result = read(Release::R35, ("GenericWorkload=true", "scheduling.k8s.io/v1alpha1=true"));
    assert!(!result.not_looked_at.join(" ").contains("whose fields are not known"), "{:?}", result.not_looked_at);
    assert!(
        result.not_looked_at.join(" ").contains("Fields of objects stored as protobuf that releases before 1.37 had")
    );
}

#[test]
fn clients_of_versions_that_go_are_named() {
    let line = r#"{"stage":"ResponseComplete","objectRef":{"resource":"volumeattributesclasses","apiGroup":"storage.k8s.io","apiVersion":"v1"},"user":{"username":"jane"},"userAgent":"kubectl/v1.37"}"#;
    let custom =
        r#"{"stage":"ResponseComplete","objectRef":{"resource":"widgets","apiGroup":"example.com","apiVersion":"v1"}}"#;
    let result = preflight(Release::R33, ("", ""), &[], &[line, custom]);
    assert_eq!(result.findings.len(), 1);
    assert_eq!(
        result.findings[0].evidence,
        "1 request for storage.k8s.io/v1 by jane (kubectl/v1.37); 1.33 does not serve it"
    );
    assert!(preflight(Release::R34, ("", ""), &[], &[line]).safe);
}

fn widgets(versions: &[&str]) -> (&'static str, Value) {
    let versions: Vec<Value> = versions.iter().map(|name| json!({"name": name})).collect();
    let definition = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"plural": "widgets"}, "versions": versions},
    });
    ("apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", definition)
}

#[test]
fn custom_objects_need_a_definition_with_their_version() {
    let widget = || ("example.com/widgets/default/w", json!({"kind": "Widget", "apiVersion": "example.com/v1"}));
    check(
        Release::R36,
        ("", ""),
        &[widget(), widgets(&["v1beta1", "v2"])],
        &expect![[r#"
            x.db to 1.36: NOT SAFE, 1 finding

            UNREADABLE widgets.example.com
              1 object stored as example.com/v1, which the definition does not have; it has v1beta1, v2.
              Cure: Add the version to the definition with served: false, migrate the resource, then remove the version.

        "#]],
    );
    let absent = preflight(Release::R36, ("", ""), &[widget()], &[]);
    assert_eq!(absent.findings[0].evidence, "1 object without a definition");
    assert!(preflight(Release::R36, ("", ""), &[widget(), widgets(&["v1"])], &[]).safe);
}

#[test]
fn versions_of_custom_objects_in_cbor_and_behind_encryption_are_judged() {
    let widgets = |versions| {
        let (key, definition) = widgets(versions);
        (key, definition.to_string().into_bytes())
    };
    let found = |to, definition, value: &[u8]| {
        let values = [("example.com/widgets/default/w", value.to_vec()), definition];
        let result = preflight_of_bytes(to, ("", ""), &values, &[]);
        let shown = result.findings.iter().map(|found| format!("{:?}: {}", found.effect, found.evidence));
        shown.collect::<Vec<_>>().join("; ")
    };
    let cbor = b"\xd9\xd9\xf7\xa2DkindFWidgetJapiVersionNexample.com/v1";
    assert_eq!(found(Release::R36, widgets(&["v1"]), cbor), "");
    assert_eq!(
        found(Release::R36, widgets(&["v2"]), cbor),
        "Unreadable: 1 object stored as example.com/v1, which the definition does not have; it has v2"
    );
    assert_eq!(
        found(Release::R31, widgets(&["v1"]), cbor),
        "Unreadable: 1 object stored as CBOR, which servers before 1.32 cannot decode"
    );
    let sealed = b"k8s:enc:aescbc:v1:k:x";
    assert_eq!(
        found(Release::R36, widgets(&["v1"]), sealed),
        "Unjudged: 1 object with a version that encryption hides"
    );
    let (key, _) = widgets(&["v1"]);
    assert_eq!(
        found(Release::R36, (key, sealed.to_vec()), cbor),
        "Unjudged: 1 object with a version that encryption or encoding hides",
        "of the definition alone: it may have the version"
    );
}

#[test]
fn fields_that_the_release_lacks_are_not_shown_as_gated() {
    let group = json!({"podGroupName": "g"});
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"schedulingGroup": group}});
    let result = preflight(Release::R35, ("", ""), &[("pods/default/p", pod)], &[]);
    let found = result.findings.iter().map(|found| (found.effect, found.field.as_str()));
    let of_field: Vec<_> = found.filter(|(_, field)| field.contains("schedulingGroup")).collect();
    assert_eq!(of_field, [(FindingEffect::FieldsDropped, "spec.schedulingGroup")]);
}

#[test]
fn way_back_is_closed_by_resources_that_the_present_release_cannot_read() {
    let closes = |from: Release, to: Release| {
        let target = target(to, ("", "storage.k8s.io/v1beta1=true"));
        let mut builder = PreflightBuilder::new("/registry", None, target).coming_from(Some(from));
        builder.add(b"/registry/volumeattributesclasses/a", class("v1beta1").to_string().as_bytes(), 7);
        builder.finish("x.db".to_owned(), 9, &ClientUseCounter::default().finish()).closes_way_back
    };
    assert_eq!(closes(Release::R33, Release::R36), ["volumeattributesclasses.storage.k8s.io (storage.k8s.io/v1)"]);
    assert!(closes(Release::R34, Release::R36).is_empty());
    assert!(closes(Release::R33, Release::R35).is_empty(), "1.35 stores v1beta1");
}

#[test]
fn custom_and_unknown_resources_are_not_judged() {
    let widget = json!({"kind": "Widget", "apiVersion": "example.com/v1"});
    let policy = json!({"kind": "PodSecurityPolicy", "apiVersion": "policy/v1beta1"});
    let result = preflight(
        Release::R36,
        ("", ""),
        &[("example.com/widgets/default/w", widget), widgets(&["v1"]), ("podsecuritypolicy/p", policy)],
        &[],
    );
    assert!(result.safe);
    let said = result.not_looked_at.join("\n");
    assert!(said.contains("1 custom object:") && said.contains("1 object of podsecuritypolicy"), "{said}");
}

#[test]
fn plan_begins_with_the_cures() {
    let result = preflight(Release::R33, ("", ""), &[("volumeattributesclasses/a", class("v1"))], &[]);
    expect![[r#"
        Plan:
          1. volumeattributesclasses.storage.k8s.io: Delete them before the change: that release cannot decode them even with the API turned on.
          2. Run `unskew preflight --to 1.33` again, until it finds nothing.
          3. Back up storage: a copy of the SQLite file, or an etcd snapshot.
          4. Move one server to 1.33, and look at its /readyz, at lists and at logs.
          5. Move the other servers, one after another. Do not turn new APIs on yet.
          6. Run `unskew inventory` and `unskew preflight --to` the release before, to see whether the way back is open.
          7. Then turn new APIs on. What they store may close the way back: point of no return.
    "#]].assert_eq(&render_plan(&result));
}

fn service(distribution: &str) -> Value {
    json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "managedFields": [
        {"manager": "helm", "fieldsV1": {"f:spec": {"f:trafficDistribution": {}}}}]},
        "spec": {"clusterIP": "None", "clusterIPs": ["None"], "type": "ClusterIP", "sessionAffinity": "None",
                 "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                 "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "trafficDistribution": distribution}})
}

#[test]
fn values_unknown_to_the_release_are_refused() {
    let services = [("services/specs/default/a", service("PreferSameNode"))];
    check(
        Release::R32,
        ("", ""),
        &services,
        &expect![[r#"
        x.db to 1.32: NOT SAFE, 1 finding

        WRITES REFUSED services
          1 object that a kube-apiserver of 1.32 refuses at every write but those of the status: spec.trafficDistribution: Unsupported value: "PreferSameNode": supported values: "PreferClose".
            default/a (set by helm)
          Cure: Have the owners change the value.

    "#]],
    );
    check(
        Release::R33,
        ("", ""),
        &services,
        &expect![[r#"
        x.db to 1.33: NOT SAFE, 1 finding

        GATE DIFFERS services
          1 object that 1.33 would refuse as new, because the gate PreferSameTrafficDistribution is off there; stored ones keep the value: spec.trafficDistribution: Unsupported value: "PreferSameNode": supported values: "PreferClose".
            default/a (set by helm)
          Cure: Start the servers with --feature-gates=PreferSameTrafficDistribution=true, or have the owners change the value.

    "#]],
    );
    check(
        Release::R33,
        ("PreferSameTrafficDistribution=true", ""),
        &services,
        &expect![[r#"
        x.db to 1.33: nothing was found that makes it unsafe

    "#]],
    );
    assert!(preflight(Release::R36, ("", ""), &services, &[]).safe);
    let no_release = [("services/specs/default/a", service("Nonsense"))];
    assert!(
        preflight(Release::R32, ("", ""), &no_release, &[]).safe,
        "no release accepts it: not a matter of the change"
    );
}

#[test]
fn fields_of_gates_that_are_off_are_named() {
    let variable = json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}});
    let container = json!({"name": "c", "image": "i", "imagePullPolicy": "Always", "env": [variable],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {
        "containers": [container], "volumes": [{"name": "v", "emptyDir": {}}], "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30}});
    let pods = [("pods/default/p", pod)];
    check(
        Release::R34,
        ("", ""),
        &pods,
        &expect![[r#"
            x.db to 1.34: NOT SAFE, 2 findings

            GATE DIFFERS pods
              1 object that 1.34 would refuse as new, because the gate EnvFiles is off there; stored ones keep the value: spec.containers[].env[].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`.
                default/p
              Cure: Start the servers with --feature-gates=EnvFiles=true, or have the owners change the value.

            GATE DIFFERS pods
              1 object with fileKeyRef, a field of the gate EnvFiles, which is off in 1.34: stored objects keep it, new ones lose it.
                default/p
              Cure: Start the servers with --feature-gates=EnvFiles=true, or have the owners remove the field.

        "#]],
    );
    assert!(preflight(Release::R34, ("EnvFiles=true", ""), &pods, &[]).safe);
}
