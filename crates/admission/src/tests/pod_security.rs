//! Pod security: levels, versions, warnings.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{Case, Fixture, Objects};
use crate::Operation;

fn namespace(labels: &Value) -> Value {
    let full: serde_json::Map<String, Value> = labels
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value.clone()))
        .collect();
    json!({"metadata": {"name": "n", "labels": full}})
}

fn pod(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec})
}

/// Shows the verdict, warnings and audit annotations.
fn check(labels: &Value, objects: Objects, case: &Case, expected: &Expect) {
    let objects = objects.with("namespaces", namespace(labels));
    let fixture = Fixture { objects, ..Fixture::with_plugins(&["PodSecurity"]) };
    let (result, notes) = fixture.run(case, &|name, _| panic!("{name}"));
    let verdict = result.err().map_or_else(|| "admitted".to_owned(), |it| format!("{} {}", it.code, it.message));
    expected.assert_eq(&format!("{verdict}\n{:#?}\n{:#?}\n", notes.warnings(), notes.annotations()));
}

#[test]
fn pod_is_refused_warned_about_and_audited() {
    let case = Case::create_pod(pod("p", json!({"hostPID": true, "containers": [{"name": "c"}]})));
    let labels =
        json!({"enforce": "baseline", "enforce-version": "v1.30", "audit": "restricted", "warn": "restricted"});
    check(
        &labels,
        Objects::default(),
        &case,
        &expect![[r#"
        403 pods "p" is forbidden: violates PodSecurity "baseline:v1.30": host namespaces (hostPID=true)
        []
        {
            "pod-security.kubernetes.io/audit-violations": "would violate PodSecurity \"restricted:latest\": host namespaces (hostPID=true), allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
            "pod-security.kubernetes.io/enforce-policy": "baseline:v1.30",
        }
    "#]],
    );
    check(
        &json!({"warn": "baseline"}),
        Objects::default(),
        &case,
        &expect![[r#"
        admitted
        [
            "would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)",
        ]
        {
            "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        }
    "#]],
    );
    check(
        &json!({}),
        Objects::default(),
        &case,
        &expect![[r#"
        admitted
        []
        {
            "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        }
    "#]],
    );
    // A level that cannot be read is the strictest one.
    check(
        &json!({"enforce": "nonsense"}),
        Objects::default(),
        &case,
        &expect![[r#"
        403 pods "p" is forbidden: violates PodSecurity "restricted:latest": host namespaces (hostPID=true), allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
        []
        {
            "pod-security.kubernetes.io/enforce-policy": "restricted:latest",
            "pod-security.kubernetes.io/error": "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"nonsense\": must be one of privileged, baseline, restricted",
        }
    "#]],
    );
}

#[test]
fn update_counts_only_if_an_image_changes() {
    let spec = |image: &str| json!({"hostPID": true, "containers": [{"name": "c", "image": image}]});
    let update = |image: &str| Case {
        operation: Operation::Update,
        old_object: Some(pod("p", spec("a"))),
        ..Case::create_pod(pod("p", spec(image)))
    };
    let labels = json!({"enforce": "baseline"});
    check(
        &labels,
        Objects::default(),
        &update("a"),
        &expect![[r#"
        admitted
        []
        {}
    "#]],
    );
    check(
        &labels,
        Objects::default(),
        &update("b"),
        &expect![[r#"
        403 pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)
        []
        {
            "pod-security.kubernetes.io/enforce-policy": "baseline:latest",
        }
    "#]],
    );
    check(
        &labels,
        Objects::default(),
        &Case { subresource: "status", ..update("b") },
        &expect![[r#"
        admitted
        []
        {}
    "#]],
    );
}

#[test]
fn workload_gets_warnings_and_is_admitted() {
    let template = json!({"spec": {"hostNetwork": true, "containers": [{"name": "c"}]}});
    let deployment = json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {"template": template}});
    let case = Case { object: Some(deployment), ..Case::new(Operation::Create, "apps", "deployments", "Deployment") };
    check(
        &json!({"enforce": "baseline"}),
        Objects::default(),
        &case,
        &expect![[r#"
        admitted
        [
            "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)",
        ]
        {}
    "#]],
    );
}

#[test]
fn namespace_labels_are_checked_against_its_pods() {
    let update = |old: &Value, new: &Value| Case {
        object: Some(namespace(new)),
        old_object: Some(namespace(old)),
        ..Case::new(Operation::Update, "", "namespaces", "Namespace")
    };
    let host = json!({"hostPID": true});
    let pods = Objects::default()
        .with("pods", pod("b", host.clone()))
        .with("pods", pod("a", host))
        .with("pods", pod("z", json!({"hostPID": true, "containers": [{"name": "c", "ports": [{"hostPort": 1}]}]})))
        .with("pods", pod("fine", json!({})));
    let (none, baseline) = (json!({}), json!({"enforce": "baseline"}));
    check(
        &none,
        pods.clone(),
        &update(&none, &baseline),
        &expect![[r#"
        admitted
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 1 other pod): host namespaces",
            "z: host namespaces, hostPort",
        ]
        {}
    "#]],
    );
    check(
        &none,
        pods.clone(),
        &update(&baseline, &none),
        &expect![[r#"
        admitted
        []
        {}
    "#]],
    );
    let bad = json!({"enforce": "strict", "warn-version": "1.2"});
    check(
        &none,
        pods.clone(),
        &update(&none, &bad),
        &expect![[r#"
        422 Namespace "n" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.2": must be "latest" or "v1.x"]
        []
        {}
    "#]],
    );
    check(
        &none,
        pods,
        &update(&bad, &bad),
        &expect![[r#"
        admitted
        []
        {}
    "#]],
    );
}
