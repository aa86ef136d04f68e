//! The columns of each kind.

use api::json::JsonObject;
use api::metadata::ListMeta;
use expect_test::{Expect, expect};
use object::table::{ColumnDefinitions, IncludeObject, TableOptions, build_table};
use serde_json::{Value, json};

use crate::groups::strategy_of;

mod kinds;

fn options(group: &'static str, kind: &'static str) -> TableOptions<'static> {
    let strategy = strategy_of(group, kind).unwrap_or(&crate::KindStrategy::DEFAULT);
    TableOptions {
        columns: strategy.columns,
        row_condition: strategy.row_condition,
        api_version: "meta.k8s.io/v1",
        include_object: IncludeObject::None,
        column_definitions: ColumnDefinitions::Included,
        now: "2026-01-11T00:00:00Z".parse().expect("it is a time"),
    }
}

/// Prints each column with its cell; wide columns have a leading bar. Every object is ten days old.
#[track_caller]
fn check(group: &'static str, kind: &'static str, object: Value, expected: &Expect) {
    let mut object = object;
    let metadata = object.as_object_mut().unwrap().entry("metadata").or_insert_with(|| json!({}));
    metadata["name"] = "a".into();
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    let options = options(group, kind);
    let table = build_table([object.as_object().unwrap()], &ListMeta::default(), &options);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(cells.len(), columns.len());
    let pairs = columns.iter().zip(cells).map(|(column, cell)| {
        let bar = if column["priority"] == 1 { "| " } else { "" };
        format!("{bar}{}: {cell}", column["name"].as_str().unwrap())
    });
    expected.assert_eq(&pairs.collect::<Vec<_>>().join(", "));
}

/// The columns ready, status and restarts of a pod.
#[track_caller]
fn check_pod(pod: &Value, expected: &str) {
    let table = build_table([pod.as_object().unwrap()], &ListMeta::default(), &options("", "Pod"));
    let cells: Vec<&str> = (1..4).map(|at| table["rows"][0]["cells"][at].as_str().unwrap()).collect();
    assert_eq!(cells.join(" "), expected);
}

macro_rules! pod {
    ($spec:expr, $status:expr, $expected:expr $(,)?) => {
        check_pod(&json!({"spec": $spec, "status": $status}), $expected)
    };
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "web", "image": "nginx:1"}, {"name": "log", "image": "tail:2"}], "nodeSelector": {"disk": "ssd"}}})
}

#[test]
fn build_table_has_columns_and_rows() {
    let pod = json!({"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2026-01-10T23:59:00Z"}, "status": {"phase": "Succeeded"}});
    let metadata = ListMeta { resource_version: "7".to_owned(), ..ListMeta::default() };
    let config_map = options("", "ConfigMap");
    let whole = build_table([pod.as_object().unwrap()], &metadata, &config_map);
    expect![[r#"{"apiVersion":"meta.k8s.io/v1","columnDefinitions":[{"description":"The name of the object.","format":"name","name":"Name","priority":0,"type":"string"},{"description":"How many keys it has.","format":"","name":"Data","priority":0,"type":"string"},{"description":"How long ago it was created.","format":"","name":"Age","priority":0,"type":"string"}],"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[{"cells":["a",0,"60s"]}]}"#]].assert_eq(&whole.to_string());

    let with_metadata = TableOptions {
        include_object: IncludeObject::Metadata,
        column_definitions: ColumnDefinitions::Omitted,
        ..options("", "Pod")
    };
    let row = build_table([pod.as_object().unwrap()], &metadata, &with_metadata);
    assert_eq!(row["columnDefinitions"], Value::Null);
    assert_eq!(row["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(row["rows"][0]["object"]["metadata"], pod["metadata"]);
    assert_eq!(row["rows"][0]["conditions"][0]["reason"], "Succeeded");
    let with_object = TableOptions { include_object: IncludeObject::Object, ..config_map };
    let row = build_table([pod.as_object().unwrap()], &metadata, &with_object);
    assert_eq!(row["rows"][0]["object"], pod);
    assert_eq!(row["rows"][0].get("conditions"), None);
}

#[test]
fn include_object_parse_accepts_three_values() {
    assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("None"), Ok(IncludeObject::None));
    assert_eq!(IncludeObject::parse("Object"), Ok(IncludeObject::Object));
    assert_eq!(
        IncludeObject::parse("All").unwrap_err().to_string(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty"
    );
}

#[test]
fn default_columns_are_name_and_created_at() {
    check(
        "rbac.authorization.k8s.io",
        "Role",
        json!({}),
        &expect![[r#"Name: "a", Created At: "2026-01-01T00:00:00Z""#]],
    );
    check(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        json!({}),
        &expect![[r#"Name: "a", Created At: "2026-01-01T00:00:00Z""#]],
    );
    let unborn = build_table([&JsonObject::new()], &ListMeta::default(), &options("x", "Y"));
    assert_eq!(unborn["rows"][0]["cells"], json!(["", "0001-01-01T00:00:00Z"]));
}

#[test]
fn pod_columns_of_running_pod() {
    check(
        "",
        "Pod",
        json!({
            "spec": {"containers": [{}, {}], "nodeName": "node-1", "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}], "conditions": [{"type": "x", "status": "True"}],
                "containerStatuses": [
                    {"ready": true, "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-10T23:00:00Z"}}},
                    {"ready": true, "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-10T23:30:00Z"}}},
                ]},
        }),
        &expect![[
            r#"Name: "a", Ready: "2/2", Status: "Running", Restarts: "3 (30m ago)", Age: "10d", | IP: "10.0.0.7", | Node: "node-1", | Nominated Node: "<none>", | Readiness Gates: "1/2""#
        ]],
    );
    check(
        "",
        "Pod",
        json!({}),
        &expect![[
            r#"Name: "a", Ready: "0/0", Status: "", Restarts: "0", Age: "10d", | IP: "<none>", | Node: "<none>", | Nominated Node: "<none>", | Readiness Gates: "<none>""#
        ]],
    );
}

#[test]
fn pod_status_shows_container_state() {
    let one = || json!({"containers": [{}]});
    let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
    pod!(one(), json!({"phase": "Pending"}), "0/1 Pending 0");
    pod!(one(), json!({"phase": "Failed", "reason": "Evicted"}), "0/1 Evicted 0");
    pod!(
        one(),
        json!({"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]}),
        "0/1 ImagePullBackOff 0",
    );
    pod!(
        one(),
        json!({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}),
        "0/1 Error 0",
    );
    pod!(
        one(),
        json!({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
        "0/1 ExitCode:3 0",
    );
    pod!(
        one(),
        json!({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"signal": 9}}}]}),
        "0/1 Signal:9 0",
    );
    pod!(
        one(),
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
        "0/1 SchedulingGated 0",
    );
    // The status of the first container applies.
    pod!(
        json!({"containers": [{}, {}]}),
        json!({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff"), waiting("ImagePullBackOff")]}),
        "0/2 CrashLoopBackOff 0",
    );
}

#[test]
fn pod_status_with_one_completed_container() {
    let done = || json!({"state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
    let running = || json!({"ready": true, "state": {"running": {}}});
    let failed = || json!({"state": {"terminated": {"reason": "Error", "exitCode": 1}}});
    let two = || json!({"containers": [{}, {}]});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    pod!(two(), json!({"phase": "Succeeded", "containerStatuses": [done(), done()]}), "0/2 Completed 0");
    pod!(
        two(),
        json!({"phase": "Running", "containerStatuses": [done(), running()], "conditions": ready}),
        "1/2 Running 0",
    );
    pod!(two(), json!({"phase": "Running", "containerStatuses": [done(), running()]}), "1/2 NotReady 0");
    pod!(two(), json!({"phase": "Failed", "containerStatuses": [done(), failed()]}), "0/2 Error 0");
}

#[test]
fn pod_status_while_terminating() {
    let deleted = || json!({"deletionTimestamp": "2026-01-10T00:00:00Z"});
    let one = || json!({"containers": [{}]});
    check_pod(
        &json!({"metadata": deleted(), "spec": one(), "status": json!({"phase": "Running"})}),
        "0/1 Terminating 0",
    );
    check_pod(
        &json!({"metadata": deleted(), "spec": one(), "status": json!({"phase": "Succeeded"})}),
        "0/1 Succeeded 0",
    );
    check_pod(
        &json!({"metadata": deleted(), "spec": one(), "status": json!({"phase": "Running", "reason": "NodeLost"})}),
        "0/1 Unknown 0",
    );
}

#[test]
fn pod_status_shows_init_container_progress() {
    let spec = || json!({"containers": [{}], "initContainers": [{"name": "x"}, {"name": "y"}, {"name": "side", "restartPolicy": "Always"}]});
    let status = |containers: Value| json!({"phase": "Pending", "initContainerStatuses": containers});
    let over = || json!({"name": "x", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}});
    pod!(spec(), status(json!([over(), {"name": "y", "state": {"running": {}}}])), "0/2 Init:1/3 3");
    pod!(
        spec(),
        status(json!([over(), {"name": "y", "state": {"terminated": {"exitCode": 7}}}])),
        "0/2 Init:ExitCode:7 3",
    );
    pod!(
        spec(),
        status(json!([over(), {"name": "y", "state": {"terminated": {"signal": 9, "exitCode": 137}}}])),
        "0/2 Init:Signal:9 3",
    );
    pod!(
        spec(),
        status(json!([over(), {"name": "y", "state": {"terminated": {"exitCode": 1, "reason": "OOMKilled"}}}])),
        "0/2 Init:OOMKilled 3",
    );
    pod!(
        spec(),
        status(json!([over(), {"name": "y", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])),
        "0/2 Init:CrashLoopBackOff 3",
    );
    pod!(
        spec(),
        status(json!([over(), {"name": "y", "state": {"waiting": {"reason": "PodInitializing"}}}])),
        "0/2 Init:1/3 3",
    );
    // A sidecar that has started counts as a container, and its restarts stay once the others run.
    let mut running = status(
        json!([over(), {"name": "side", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}}}]),
    );
    running["containerStatuses"] = json!([{"ready": true, "restartCount": 1, "state": {"running": {}}}]);
    running["phase"] = "Running".into();
    pod!(spec(), running, "2/2 Running 3");
}

#[test]
fn workload_columns() {
    let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
        {"key": "z", "operator": "NotIn", "values": ["2", "1"]}, {"key": "b", "operator": "In", "values": ["y", "x"]},
        {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"}]});
    let spec = json!({"replicas": 3, "template": template(), "selector": selector});
    check(
        "apps",
        "Deployment",
        json!({"spec": spec, "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
        &expect![[
            r#"Name: "a", Ready: "1/3", Up-to-date: 2, Available: 1, Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2", | Selector: "app=web,b in (x,y),c,!d,z notin (1,2)""#
        ]],
    );
    check(
        "apps",
        "ReplicaSet",
        json!({"spec": spec, "status": {"replicas": 2, "readyReplicas": 1}}),
        &expect![[
            r#"Name: "a", Desired: 3, Current: 2, Ready: 1, Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2", | Selector: "app=web,b in (x,y),c,!d,z notin (1,2)""#
        ]],
    );
    check(
        "apps",
        "StatefulSet",
        json!({"spec": {"template": template()}}),
        &expect![[r#"Name: "a", Ready: "0/1", Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2""#]],
    );
    check(
        "apps",
        "DaemonSet",
        json!({"spec": {"template": template()}, "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
            "updatedNumberScheduled": 2, "numberAvailable": 1}}),
        &expect![[
            r#"Name: "a", Desired: 5, Current: 4, Ready: 3, Up-to-date: 2, Available: 1, Node Selector: "disk=ssd", Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2", | Selector: "<none>""#
        ]],
    );
    check(
        "",
        "ReplicationController",
        json!({"spec": {"replicas": 2, "selector": {"app": "web"}, "template": template()}, "status": {"replicas": 1}}),
        &expect![[
            r#"Name: "a", Desired: 2, Current: 1, Ready: 0, Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2", | Selector: "app=web""#
        ]],
    );
    check(
        "apps",
        "ControllerRevision",
        json!({"revision": 4, "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": true}]}}),
        &expect![[r#"Name: "a", Controller: "daemonset.apps/d", Revision: 4, Age: "10d""#]],
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
        &expect![[r#"Name: "a", Min Available: "50%", Max Unavailable: "N/A", Allowed Disruptions: 1, Age: "10d""#]],
    );
    check(
        "",
        "PodTemplate",
        json!({"template": template()}),
        &expect![[r#"Name: "a", Containers: "web,log", Images: "nginx:1,tail:2", Pod Labels: "<none>""#]],
    );
}

#[test]
fn horizontal_pod_autoscaler_columns() {
    let reference = json!({"kind": "Deployment", "name": "web"});
    let metric =
        |source: &str, key: &str, target: Value| json!({"type": source, key: {"name": "cpu", "target": target}});
    let scaler = |metrics: Vec<Value>, current: Vec<Value>| {
        json!({"spec": {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 9, "metrics": metrics},
               "status": {"currentReplicas": 3, "currentMetrics": current}})
    };
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        scaler(
            vec![
                metric("Resource", "resource", json!({"averageUtilization": 80})),
                metric("Pods", "pods", json!({"averageValue": "10"})),
                metric("External", "external", json!({"value": "5"})),
            ],
            vec![json!({"type": "Resource", "resource": {"current": {"averageUtilization": 41}}})],
        ),
        &expect![[
            r#"Name: "a", Reference: "Deployment/web", Targets: "cpu: 41%/80%, <unknown>/10 + 1 more...", MinPods: "1", MaxPods: 9, Replicas: 3, Age: "10d""#
        ]],
    );
    let targets = |metrics: Vec<Value>| {
        let scaler = scaler(metrics, vec![]);
        let table = build_table(
            [scaler.as_object().unwrap()],
            &ListMeta::default(),
            &options("autoscaling", "HorizontalPodAutoscaler"),
        );
        table["rows"][0]["cells"][2].as_str().unwrap().to_owned()
    };
    assert_eq!(targets(vec![]), "<none>");
    assert_eq!(targets(vec![metric("Object", "object", json!({"averageValue": "3"}))]), "<unknown>/3 (avg)");
    assert_eq!(targets(vec![metric("ContainerResource", "containerResource", json!({}))]), "cpu: <unknown>/<auto>");
    assert_eq!(targets(vec![metric("Resource", "resource", json!({"averageValue": "1Gi"}))]), "cpu: <unknown>/1Gi");
    assert_eq!(targets(vec![json!({"type": "New"})]), "<unknown type>");
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": {"scaleTargetRef": reference, "maxReplicas": 9, "targetCPUUtilizationPercentage": 70}}),
        &expect![[
            r#"Name: "a", Reference: "Deployment/web", Targets: "cpu: <unknown>/70%", MinPods: "<unset>", MaxPods: 9, Replicas: 0, Age: "10d""#
        ]],
    );
}

#[test]
fn job_and_cron_job_columns() {
    check(
        "batch",
        "Job",
        json!({"spec": {"completions": 3, "template": template(), "selector": {"matchLabels": {"job": "a"}}},
               "status": {"succeeded": 3, "startTime": "2026-01-10T00:00:00Z", "completionTime": "2026-01-10T00:05:00Z",
                          "conditions": [{"type": "Complete", "status": "True"}]}}),
        &expect![[
            r#"Name: "a", Status: "Complete", Completions: "3/3", Duration: "5m", Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2", | Selector: "job=a""#
        ]],
    );
    check(
        "batch",
        "Job",
        json!({"spec": {"parallelism": 4}, "status": {"startTime": "2026-01-10T23:59:00Z"}}),
        &expect![[
            r#"Name: "a", Status: "Running", Completions: "0/1 of 4", Duration: "60s", Age: "10d", | Containers: "", | Images: "", | Selector: "<none>""#
        ]],
    );
    check(
        "batch",
        "CronJob",
        json!({"spec": {"schedule": "* * * * *", "suspend": false, "jobTemplate": {"spec": {"template": template()}}},
               "status": {"active": [{}], "lastScheduleTime": "2026-01-10T23:59:30Z"}}),
        &expect![[
            r#"Name: "a", Schedule: "* * * * *", Timezone: "<none>", Suspend: "False", Active: 1, Last Schedule: "30s", Age: "10d", | Containers: "web,log", | Images: "nginx:1,tail:2", | Selector: "<none>""#
        ]],
    );
}
