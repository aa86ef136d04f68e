//! Kinds that random sequences of writes use: for each a minimal object, and fragments that requests merge into it.

use serde_json::{Value, json};

/// A kind with the parts that requests write.
pub(crate) struct CorpusKind {
    pub(crate) collection: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// What makes an object of the kind valid, without metadata.
    pub(crate) base: Value,
    /// Fields that any writer may send.
    pub(crate) fragments: Vec<Value>,
    /// Fields that a writer may remove, as JSON pointers.
    pub(crate) removable: &'static [&'static str],
    /// Fragments of the subresource `status`; empty without one.
    pub(crate) status_fragments: Vec<Value>,
    pub(crate) has_scale: bool,
}

impl CorpusKind {
    pub(crate) fn is_custom(&self) -> bool {
        self.kind == "Widget"
    }
}

pub(crate) const WIDGETS_CRD: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"widgets.apply.example.com"},"spec":{"group":"apply.example.com","scope":"Namespaced",
"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},
"scale":{"specReplicasPath":".spec.size.count","statusReplicasPath":".status.count"}},
"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","properties":{
"color":{"type":"string","default":"red"},
"size":{"type":"object","properties":{"count":{"type":"integer"},"depth":{"type":"integer"}}},
"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name","side"],
"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"side":{"type":"string","default":"left"},"weight":{"type":"number"},"notes":{"type":"object","additionalProperties":{"type":"string"}}}}},
"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
"steps":{"type":"array","items":{"type":"object","properties":{"run":{"type":"string"}}}},
"options":{"type":"object","additionalProperties":{"type":"string"}},
"pin":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"},"b":{"type":"string"}}},
"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
"port":{"x-kubernetes-int-or-string":true},
"nick":{"type":"string","nullable":true}}},
"status":{"type":"object","properties":{"count":{"type":"integer"},"phase":{"type":"string"},
"conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
"items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"status":{"type":"string"}}}}}}}}}}]}}"#;

const METADATA_FRAGMENTS: &str = r#"[
{"metadata":{"labels":{"x":"1"}}},{"metadata":{"labels":{"x":"2"}}},{"metadata":{"labels":{"y":"1"}}},
{"metadata":{"annotations":{"a":"1"}}},{"metadata":{"annotations":{"b":""}}},
{"metadata":{"finalizers":["example.com/one"]}},{"metadata":{"finalizers":["example.com/two"]}},
{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u1"}]}},{"metadata":{"labels":{}}}]"#;

const METADATA_REMOVABLE: &[&str] =
    &["/metadata/labels", "/metadata/labels/x", "/metadata/annotations", "/metadata/finalizers"];

fn parse(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("the corpus is JSON")
}

fn kind(
    collection: &'static str,
    api_version: &'static str,
    kind: &'static str,
    base: &str,
    fragments: &str,
    removable: &'static [&'static str],
) -> CorpusKind {
    let mut all = parse(fragments);
    all.extend(parse(METADATA_FRAGMENTS));
    CorpusKind {
        collection,
        api_version,
        kind,
        base: serde_json::from_str(base).expect("the corpus is JSON"),
        fragments: all,
        removable,
        status_fragments: Vec::new(),
        has_scale: false,
    }
}

pub(crate) fn metadata_removable() -> &'static [&'static str] {
    METADATA_REMOVABLE
}

fn workloads() -> Vec<CorpusKind> {
    let template = r#"{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let pod_fragments = parse(
        r#"[{"spec":{"containers":[{"name":"c","image":"j"}]}},
{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80}]}]}},
{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"UDP","name":"u"}]}]}},
{"spec":{"containers":[{"name":"c","env":[{"name":"E","value":"1"}]}]}},
{"spec":{"containers":[{"name":"c","env":[{"name":"E","value":"2"},{"name":"F","value":"1"}]}]}},
{"spec":{"containers":[{"name":"c","command":["a","b"]}]}},
{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1000m"}}}]}},
{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"2"},"requests":{"memory":"1Gi"}}}]}},
{"spec":{"containers":[{"name":"d","image":"i"}]}},
{"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v","mountPath":"/v"}]}],"volumes":[{"name":"v","emptyDir":{}}]}},
{"spec":{"containers":[{"name":"c","livenessProbe":{"httpGet":{"path":"/","port":80}}}]}},
{"spec":{"nodeSelector":{"a":"b"}}},{"spec":{"nodeSelector":{"c":"d"}}},
{"spec":{"tolerations":[{"key":"k","operator":"Exists"}]}},
{"spec":{"securityContext":{"runAsUser":7}}},{"spec":{"hostAliases":[{"ip":"1.2.3.4","hostnames":["h"]}]}},
{"spec":{"imagePullSecrets":[{"name":"s"}]}},{"spec":{"terminationGracePeriodSeconds":5}}]"#,
    );
    let mut deployment = kind(
        "/apis/apps/v1/namespaces/default/deployments",
        "apps/v1",
        "Deployment",
        &format!(r#"{{"spec":{{"selector":{{"matchLabels":{{"app":"a"}}}},"template":{template}}}}}"#),
        r#"[{"spec":{"replicas":2}},{"spec":{"replicas":3}},{"spec":{"replicas":0}},{"spec":{"paused":true}},
{"spec":{"minReadySeconds":3}},{"spec":{"strategy":{"type":"Recreate"}}},{"spec":{"strategy":{"rollingUpdate":{"maxSurge":"20%"}}}},
{"spec":{"replicas":null}}]"#,
        &[
            "/spec/replicas",
            "/spec/paused",
            "/spec/strategy",
            "/spec/template/spec/containers/0/env",
            "/spec/template/spec/volumes",
        ],
    );
    deployment.fragments.extend(pod_fragments.into_iter().map(|fragment| json!({"spec": {"template": fragment}})));
    deployment.has_scale = true;
    deployment.status_fragments = parse(
        r#"[{"status":{"replicas":1}},{"status":{"observedGeneration":2}},{"metadata":{"annotations":{"s":"1"}}},
{"status":{"conditions":[{"type":"Available","status":"True"}]}},{"status":{"conditions":[{"type":"Progressing","status":"False"}]}}]"#,
    );
    let job_template = format!(
        r#"{{"spec":{{"template":{}}}}}"#,
        template.replace(r#""spec":{"#, r#""spec":{"restartPolicy":"Never","#)
    );
    let cron_job = kind(
        "/apis/batch/v1/namespaces/default/cronjobs",
        "batch/v1",
        "CronJob",
        &format!(r#"{{"spec":{{"schedule":"* * * * *","jobTemplate":{job_template}}}}}"#),
        r#"[{"spec":{"suspend":true}},{"spec":{"schedule":"1 * * * *"}},{"spec":{"concurrencyPolicy":"Forbid"}},
{"spec":{"jobTemplate":{"spec":{"backoffLimit":2}}}},{"spec":{"jobTemplate":{"metadata":{"labels":{"j":"1"}}}}},
{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"k"}]}}}}}}]"#,
        &["/spec/suspend", "/spec/concurrencyPolicy", "/spec/jobTemplate/spec/backoffLimit"],
    );
    vec![deployment, cron_job]
}

fn services() -> Vec<CorpusKind> {
    let mut service = kind(
        "/api/v1/namespaces/default/services",
        "v1",
        "Service",
        r#"{"spec":{"clusterIP":"None","clusterIPs":["None"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":80}]}}"#,
        r#"[{"spec":{"ports":[{"port":80,"targetPort":8080}]}},{"spec":{"ports":[{"port":80,"name":"web"},{"port":81,"name":"b","protocol":"UDP"}]}},
{"spec":{"ports":[{"port":443,"name":"tls"}]}},{"spec":{"selector":{"a":"b"}}},{"spec":{"selector":{"c":"d"}}},
{"spec":{"sessionAffinity":"ClientIP"}},{"spec":{"publishNotReadyAddresses":true}}]"#,
        &["/spec/selector", "/spec/ports/0/targetPort", "/spec/sessionAffinity"],
    );
    service.status_fragments = parse(
        r#"[{"status":{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}},{"status":{"conditions":[{"type":"Ready","status":"True","reason":"r","message":"m","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}]"#,
    );
    let ingress = kind(
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        "networking.k8s.io/v1",
        "Ingress",
        r#"{"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}"#,
        r#"[{"spec":{"ingressClassName":"n"}},{"spec":{"tls":[{"hosts":["h"],"secretName":"s"}]}},
{"spec":{"rules":[{"host":"a.example.com","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}},
{"spec":{"defaultBackend":{"service":{"name":"t"}}}}]"#,
        &["/spec/ingressClassName", "/spec/tls", "/spec/rules"],
    );
    let endpoint_slice = kind(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        "discovery.k8s.io/v1",
        "EndpointSlice",
        r#"{"addressType":"IPv4","endpoints":[{"addresses":["1.2.3.5"]}]}"#,
        r#"[{"endpoints":[{"addresses":["1.2.3.4"],"conditions":{"ready":true}}]},{"ports":[{"name":"","port":80}]},{"ports":[{"name":"a","port":81,"protocol":"UDP"}]}]"#,
        &["/ports", "/endpoints/0/conditions"],
    );
    vec![service, ingress, endpoint_slice]
}

fn policies() -> Vec<CorpusKind> {
    let autoscaler = kind(
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        r#"{"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}"#,
        r#"[{"spec":{"minReplicas":2}},{"spec":{"maxReplicas":5}},{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}},
{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":60}}}}]"#,
        &["/spec/minReplicas", "/spec/metrics", "/spec/behavior"],
    );
    let role = kind(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        "rbac.authorization.k8s.io/v1",
        "Role",
        "{}",
        r#"[{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]},{"rules":[{"apiGroups":["apps"],"resources":["*"],"verbs":["list"]}]}]"#,
        &["/rules"],
    );
    let budget = kind(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "policy/v1",
        "PodDisruptionBudget",
        r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#,
        r#"[{"spec":{"minAvailable":1}},{"spec":{"minAvailable":"10%"}},{"spec":{"selector":{"matchLabels":{"c":"d"}}}},{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}]"#,
        &["/spec/minAvailable"],
    );
    let network_policy = kind(
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        "networking.k8s.io/v1",
        "NetworkPolicy",
        r#"{"spec":{"podSelector":{}}}"#,
        r#"[{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}},{"spec":{"policyTypes":["Ingress","Egress"]}},{"spec":{"ingress":[{"from":[{"podSelector":{}}],"ports":[{"port":80}]}]}}]"#,
        &["/spec/policyTypes", "/spec/ingress"],
    );
    let service_account = kind(
        "/api/v1/namespaces/default/serviceaccounts",
        "v1",
        "ServiceAccount",
        "{}",
        r#"[{"secrets":[{"name":"a"}]},{"secrets":[{"name":"b","namespace":"n"}]},{"imagePullSecrets":[{"name":"a"}]},{"automountServiceAccountToken":false}]"#,
        &["/secrets", "/automountServiceAccountToken"],
    );
    vec![autoscaler, role, budget, network_policy, service_account]
}

/// All kinds, in a fixed order.
pub(crate) fn corpus() -> Vec<CorpusKind> {
    let config_map = kind(
        "/api/v1/namespaces/default/configmaps",
        "v1",
        "ConfigMap",
        "{}",
        r#"[{"data":{"a":"1"}},{"data":{"a":"2"}},{"data":{"b":"1","c":""}},{"binaryData":{"x":"AAEC"}},{"immutable":false},{"data":{}},{"data":null},{"data":{"a":null}}]"#,
        &["/data", "/data/a", "/binaryData"],
    );
    let mut widget = kind(
        "/apis/apply.example.com/v1/namespaces/default/widgets",
        "apply.example.com/v1",
        "Widget",
        "{}",
        r#"[{"spec":{"color":"blue"}},{"spec":{"size":{"count":2}}},{"spec":{"size":{"count":3,"depth":1}}},{"spec":{"size":{}}},
{"spec":{"parts":[{"name":"a"}]}},{"spec":{"parts":[{"name":"a","weight":1.5}]}},{"spec":{"parts":[{"name":"a","side":"right","notes":{"k":"v"}}]}},
{"spec":{"parts":[{"name":"b","notes":{"k":"w"}}]}},{"spec":{"tags":["x"]}},{"spec":{"tags":["y","z"]}},{"spec":{"tags":["z","x"]}},
{"spec":{"steps":[{"run":"a"}]}},{"spec":{"steps":[{"run":"a"},{"run":"b"}]}},{"spec":{"options":{"o":"1"}}},{"spec":{"options":{"p":"1"}}},
{"spec":{"pin":{"a":"1"}}},{"spec":{"pin":{"b":"1"}}},{"spec":{"free":{"any":{"deep":[1,2]}}}},{"spec":{"free":{"other":1}}},{"spec":{"port":80}},{"spec":{"port":"http"}},
{"spec":{"nick":"n"}},{"spec":{"nick":null}},{"spec":{"options":null}},{"spec":{"unknown":1}},{"spec":{"parts":[]}},{"status":{"phase":"x"}}]"#,
        &["/spec/color", "/spec/size", "/spec/parts", "/spec/tags", "/spec/options", "/spec/free", "/spec"],
    );
    widget.has_scale = true;
    widget.status_fragments = parse(
        r#"[{"status":{"phase":"a"}},{"status":{"phase":"b","count":1}},{"status":{"conditions":[{"type":"R","status":"True"}]}},{"metadata":{"labels":{"s":"1"}},"status":{"count":2}}]"#,
    );
    let mut all = vec![config_map, widget];
    all.extend(workloads());
    all.extend(services());
    all.extend(policies());
    all
}
