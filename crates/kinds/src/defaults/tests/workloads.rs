//! Defaults of kinds with pod templates.

use super::*;

pub(super) fn workload(kind: &str, spec: &Value) -> Value {
    let group = if kind.ends_with("Job") { "batch" } else { "apps" };
    json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec})
}

#[test]
fn apply_defaults_to_workloads() {
    check_added(
        &workload("Deployment", &json!({})),
        &expect![[r#"
            .metadata {}
            .spec.progressDeadlineSeconds 600
            .spec.replicas 1
            .spec.revisionHistoryLimit 10
            .spec.selector null
            .spec.strategy {"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
        "#]],
    );
    check_added(
        &workload("Deployment", &json!({"strategy": {"type": "Recreate"}, "replicas": 0})),
        &expect![[r#"
            .metadata {}
            .spec.progressDeadlineSeconds 600
            .spec.revisionHistoryLimit 10
            .spec.selector null
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
        "#]],
    );
    check_added(
        &workload("ReplicaSet", &json!({})),
        &expect![[r#"
            .metadata {}
            .spec.replicas 1
            .spec.selector null
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
        "#]],
    );
    check_added(
        &workload("DaemonSet", &json!({})),
        &expect![[r#"
            .metadata {}
            .spec.revisionHistoryLimit 10
            .spec.selector null
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
            .spec.updateStrategy {"rollingUpdate":{"maxSurge":0,"maxUnavailable":1},"type":"RollingUpdate"}
        "#]],
    );
}

#[test]
fn apply_defaults_to_stateful_sets() {
    check_added(
        &workload("StatefulSet", &json!({"volumeClaimTemplates": [{"spec": {}}]})),
        &expect![[r#"
            .metadata {}
            .spec.persistentVolumeClaimRetentionPolicy {"whenDeleted":"Retain","whenScaled":"Retain"}
            .spec.podManagementPolicy "OrderedReady"
            .spec.replicas 1
            .spec.revisionHistoryLimit 10
            .spec.selector null
            .spec.serviceName ""
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
            .spec.updateStrategy {"rollingUpdate":{"partition":0},"type":"RollingUpdate"}
            .spec.volumeClaimTemplates[0].apiVersion "v1"
            .spec.volumeClaimTemplates[0].kind "PersistentVolumeClaim"
            .spec.volumeClaimTemplates[0].metadata {}
            .spec.volumeClaimTemplates[0].spec.resources {}
            .spec.volumeClaimTemplates[0].spec.volumeMode "Filesystem"
            .spec.volumeClaimTemplates[0].status {"phase":"Pending"}
        "#]],
    );
    check_added(
        &workload("StatefulSet", &json!({"updateStrategy": {"type": "OnDelete"}})),
        &expect![[r#"
            .metadata {}
            .spec.persistentVolumeClaimRetentionPolicy {"whenDeleted":"Retain","whenScaled":"Retain"}
            .spec.podManagementPolicy "OrderedReady"
            .spec.replicas 1
            .spec.revisionHistoryLimit 10
            .spec.selector null
            .spec.serviceName ""
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
        "#]],
    );
    check_added(
        &workload("Deployment", &json!({"template": {"spec": {}}})),
        &expect![[r#"
            .metadata {}
            .spec.progressDeadlineSeconds 600
            .spec.replicas 1
            .spec.revisionHistoryLimit 10
            .spec.selector null
            .spec.strategy {"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}
            .spec.template.metadata {}
            .spec.template.spec.containers null
            .spec.template.spec.dnsPolicy "ClusterFirst"
            .spec.template.spec.restartPolicy "Always"
            .spec.template.spec.schedulerName "default-scheduler"
            .spec.template.spec.securityContext {}
            .spec.template.spec.terminationGracePeriodSeconds 30
        "#]],
    );
}

#[test]
fn apply_defaults_to_jobs() {
    check_added(
        &workload("Job", &json!({"template": {"metadata": {"labels": {"a": "b"}}}})),
        &expect![[r#"
            .metadata {}
            .spec.backoffLimit 6
            .spec.completionMode "NonIndexed"
            .spec.completions 1
            .spec.manualSelector false
            .spec.parallelism 1
            .spec.podReplacementPolicy "TerminatingOrFailed"
            .spec.suspend false
            .spec.template.spec {"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}
        "#]],
    );
    check_added(
        &workload("Job", &json!({"parallelism": 3, "backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": []}})),
        &expect![[r#"
            .metadata {}
            .spec.backoffLimit 2147483647
            .spec.completionMode "NonIndexed"
            .spec.manualSelector false
            .spec.podReplacementPolicy "Failed"
            .spec.suspend false
            .spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
        "#]],
    );
    check_added(
        &workload("CronJob", &json!({"jobTemplate": {"spec": {}}})),
        &expect![[r#"
            .metadata {}
            .spec.concurrencyPolicy "Allow"
            .spec.failedJobsHistoryLimit 1
            .spec.jobTemplate.metadata {}
            .spec.jobTemplate.spec.template {"metadata":{},"spec":{"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}
            .spec.schedule ""
            .spec.successfulJobsHistoryLimit 3
            .spec.suspend false
        "#]],
    );
}
