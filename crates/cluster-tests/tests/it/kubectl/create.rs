//! `kubectl create` commands. A current kubectl sends protobuf and accepts JSON.

use std::path::Path;

use cluster_tests::client::ClientCredentials;
use cluster_tests::tools::{is_skipped, kubectl};

use crate::*;

/// A command, the path of its object, and expected field values.
struct CreateCase {
    create: &'static str,
    path: &'static str,
    fields: &'static [(&'static str, &'static str)],
}

const CASES: &[CreateCase] = &[
    CreateCase {
        create: "namespace shop",
        path: "/api/v1/namespaces/shop",
        fields: &[("/metadata/labels", r#"{"kubernetes.io/metadata.name":"shop"}"#), ("/status/phase", r#""Active""#)],
    },
    CreateCase {
        create: "configmap settings --from-literal=a=1 --from-literal=b=",
        path: "/api/v1/namespaces/default/configmaps/settings",
        fields: &[("/data", r#"{"a":"1","b":""}"#), ("/immutable", "null")],
    },
    CreateCase {
        create: "secret generic login --from-literal=password=hello",
        path: "/api/v1/namespaces/default/secrets/login",
        fields: &[("/data", r#"{"password":"aGVsbG8="}"#), ("/type", r#""Opaque""#)],
    },
    CreateCase {
        create: "deployment web --image=nginx:1 --replicas=0 --port=80",
        path: "/apis/apps/v1/namespaces/default/deployments/web",
        fields: &[
            ("/spec/replicas", "0"),
            ("/spec/minReadySeconds", "null"),
            ("/spec/selector", r#"{"matchLabels":{"app":"web"}}"#),
            ("/spec/template/spec/containers/0/image", r#""nginx:1""#),
            ("/spec/template/spec/containers/0/ports/0/containerPort", "80"),
        ],
    },
    CreateCase {
        create: "service clusterip web --tcp=80:8080",
        path: "/api/v1/namespaces/default/services/web",
        fields: &[
            ("/spec/ports", r#"[{"name":"80-8080","port":80,"protocol":"TCP","targetPort":8080}]"#),
            ("/spec/selector", r#"{"app":"web"}"#),
            ("/spec/type", r#""ClusterIP""#),
        ],
    },
    CreateCase {
        create: "job once --image=busybox -- date -u",
        path: "/apis/batch/v1/namespaces/default/jobs/once",
        fields: &[
            ("/spec/template/spec/containers/0/command", r#"["date","-u"]"#),
            ("/spec/template/spec/restartPolicy", r#""Never""#),
        ],
    },
    CreateCase {
        create: "cronjob often --image=busybox --schedule=0/5__*__*__*__* -- date",
        path: "/apis/batch/v1/namespaces/default/cronjobs/often",
        fields: &[
            ("/spec/schedule", r#""0/5 * * * *""#),
            ("/spec/jobTemplate/spec/template/spec/containers/0/name", r#""often""#),
        ],
    },
    CreateCase {
        create: "serviceaccount robot",
        path: "/api/v1/namespaces/default/serviceaccounts/robot",
        fields: &[("/automountServiceAccountToken", "null")],
    },
    CreateCase {
        create: "role reader --verb=get,list --resource=pods,deployments.apps --resource-name=a",
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/reader",
        fields: &[(
            "/rules",
            concat!(
                r#"[{"apiGroups":[""],"resourceNames":["a"],"resources":["pods"],"verbs":["get","list"]},"#,
                r#"{"apiGroups":["apps"],"resourceNames":["a"],"resources":["deployments"],"verbs":["get","list"]}]"#
            ),
        )],
    },
    CreateCase {
        create: "rolebinding readers --role=reader --user=ann --serviceaccount=default:robot",
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/readers",
        fields: &[
            ("/roleRef", r#"{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"}"#),
            ("/subjects/0", r#"{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"}"#),
            ("/subjects/1", r#"{"kind":"ServiceAccount","name":"robot","namespace":"default"}"#),
        ],
    },
    CreateCase {
        create: "clusterrole pages --verb=get --non-resource-url=/logs/*",
        path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/pages",
        fields: &[("/rules", r#"[{"nonResourceURLs":["/logs/*"],"verbs":["get"]}]"#)],
    },
    CreateCase {
        create: "quota small --hard=pods=3,cpu=1500m --scopes=NotBestEffort",
        path: "/api/v1/namespaces/default/resourcequotas/small",
        fields: &[("/spec", r#"{"hard":{"cpu":"1500m","pods":"3"},"scopes":["NotBestEffort"]}"#)],
    },
    CreateCase {
        create: "poddisruptionbudget web --selector=app=web --min-available=50%",
        path: "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web",
        fields: &[("/spec", r#"{"minAvailable":"50%","selector":{"matchLabels":{"app":"web"}}}"#)],
    },
    CreateCase {
        create: "priorityclass plain --value=0 --preemption-policy=Never",
        path: "/apis/scheduling.k8s.io/v1/priorityclasses/plain",
        fields: &[("/value", "0"), ("/preemptionPolicy", r#""Never""#), ("/globalDefault", "null")],
    },
    CreateCase {
        create: "ingress web --rule=example.com/shop*=web:80,tls=certificate",
        path: "/apis/networking.k8s.io/v1/namespaces/default/ingresses/web",
        fields: &[
            ("/spec/rules/0/host", r#""example.com""#),
            ("/spec/rules/0/http/paths/0/pathType", r#""Prefix""#),
            ("/spec/rules/0/http/paths/0/backend", r#"{"service":{"name":"web","port":{"number":80}}}"#),
            ("/spec/tls", r#"[{"hosts":["example.com"],"secretName":"certificate"}]"#),
        ],
    },
];

impl CreateCase {
    /// The command split into arguments; two underscores stand for a space within an argument.
    fn words(&self) -> Vec<String> {
        let words = self.create.split(' ').map(|word| word.replace("__", " "));
        std::iter::once("create".to_owned()).chain(words).collect()
    }

    fn run(&self, kubeconfig: &Path, flags: &[&str]) -> String {
        let words = self.words();
        // Arguments after `--` are not for kubectl.
        let split = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (command, rest) = words.split_at(split);
        let args: Vec<&str> = command
            .iter()
            .map(String::as_str)
            .chain(flags.iter().copied())
            .chain(rest.iter().map(String::as_str))
            .collect();
        kubectl(kubeconfig, &args).expect_success()
    }
}

#[test]
fn object_created_as_protobuf_equals_its_json_form() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (kubeconfig, client) = (server.kubeconfig(), server.admin());
    for case in CASES {
        assert!(case.run(&kubeconfig, &[]).contains("created"), "{}", case.create);
        let created = block_on(client.get(case.path)).json();
        for (field, value) in case.fields {
            let found = created.pointer(field).unwrap_or(&Value::Null);
            assert_eq!(found.to_string(), *value, "{field} of {}", case.create);
        }
        // Namespaces are deleted asynchronously, after their contents.
        if created["kind"] == "Namespace" {
            continue;
        }
        let text = case.run(&kubeconfig, &["--dry-run=client", "--output=json"]);
        let object: Value = serde_json::from_str(&text).unwrap();
        let collection = case.path.rsplit_once('/').unwrap().0;
        let again = block_on(async {
            assert_eq!(client.delete(case.path).await.status, 200);
            client.create(&format!("{collection}?fieldManager=kubectl-create"), &object).await
        });
        assert_eq!(
            without_per_creation_fields(&again.json()),
            without_per_creation_fields(&created),
            "{}",
            case.create
        );
    }
}

/// Removes fields that differ between two creations.
fn without_per_creation_fields(object: &Value) -> Value {
    // The selector of a Job contains its own uid.
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut object: Value = serde_json::from_str(&object.to_string().replace(&uid, "its uid")).unwrap();
    if let Some(spec) = object.get_mut("spec") {
        remove_allocated_values(spec);
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata.remove(field).is_some(), "{field}");
    }
    // A ServiceAccount has no managed fields.
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry.as_object_mut().unwrap().remove("time");
    }
    object
}

/// Addresses and node ports of a Service are chosen at random.
fn remove_allocated_values(spec: &mut Value) {
    let is_allocated = |ip: &Value| ip.as_str().is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_ok());
    if !is_allocated(&spec["clusterIP"]) {
        return;
    }
    spec["clusterIP"] = "allocated".into();
    let families = spec["clusterIPs"].as_array().map_or(0, Vec::len);
    spec["clusterIPs"] = families.into();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if let Some(node_port) = port.get_mut("nodePort") {
            *node_port = "allocated".into();
        }
    }
}

#[test]
fn kubectl_sends_protobuf_and_receives_json() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let said = kubectl(&server.kubeconfig(), &["create", "configmap", "a", "--v=8"]);
    let request = said.stderr.split("verb=\"POST\"").nth(1).unwrap_or_default();
    let (request, response) = request.split_once("\"Response\"").unwrap_or_default();
    assert!(request.contains("Content-Type: application/vnd.kubernetes.protobuf"), "{}", said.stderr);
    assert!(response.contains("Content-Type: application/json"), "{}", said.stderr);
    assert_eq!(said.expect_success(), "configmap/a created\n");
}

#[test]
fn kubectl_auth_whoami_and_can_i_work() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let kubeconfig = server.kubeconfig();
    let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
    assert_eq!(run(&["auth", "can-i", "delete", "nodes"]), "yes\n");
    assert!(run(&["auth", "whoami"]).contains("system:masters"));
    run(&["create", "serviceaccount", "robot"]);
    let token = run(&["create", "token", "robot", "--duration=20m"]);
    let robot = server.client_with(ClientCredentials::Token(token.trim().to_owned()));
    let answer = block_on(robot.get(CONFIG_MAPS_PATH)).summary();
    assert!(
        answer.starts_with(r#"403 configmaps is forbidden: User "system:serviceaccount:default:robot""#),
        "{answer}"
    );
}

#[test]
fn kubectl_run_scale_set_and_delete_work() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (kubeconfig, client) = (server.kubeconfig(), server.admin());
    let run = |args: &str| kubectl(&kubeconfig, &args.split(' ').collect::<Vec<_>>()).expect_success();
    let get = |path: &str| block_on(client.get(path));
    let deployment = "/apis/apps/v1/namespaces/default/deployments/web";

    run("create deployment web --image=nginx:1");
    assert_eq!(run("scale deployment web --replicas=0"), "deployment.apps/web scaled\n");
    assert_eq!(run("scale deployment web --replicas=4 --current-replicas=0"), "deployment.apps/web scaled\n");
    assert_eq!(run("set image deployment/web nginx=nginx:2"), "deployment.apps/web image updated\n");
    assert_eq!(run("rollout restart deployment web"), "deployment.apps/web restarted\n");
    let web = get(deployment).json();
    assert_eq!((&web["spec"]["replicas"], &web["metadata"]["generation"]), (&4.into(), &5.into()));
    let template = &web["spec"]["template"];
    assert_eq!(template["spec"]["containers"][0]["image"], "nginx:2");
    assert!(template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string());

    assert_eq!(run("expose deployment web --port=80"), "service/web exposed\n");
    assert_eq!(get("/api/v1/namespaces/default/services/web").json()["spec"]["selector"], json!({"app": "web"}));
    assert_eq!(run("run one --image=nginx --env=A=b"), "pod/one created\n");
    let container = &get("/api/v1/namespaces/default/pods/one").json()["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "A", "value": "b"}]));

    run("delete deployment,service web");
    assert_eq!(get(deployment).status, 404);
    run("delete pod one --now");
}

#[test]
fn kubectl_apply_creates_configures_and_prunes_fields() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (kubeconfig, client) = (server.kubeconfig(), server.admin());
    let file = folder.path().join("deployment.json");
    let apply = |labels: Value, containers: Value| {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
        let object = json!({
            "kind": "Deployment",
            "apiVersion": "apps/v1",
            "metadata": {"name": "web", "labels": labels},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        });
        std::fs::write(&file, object.to_string()).unwrap();
        kubectl(&kubeconfig, &["apply", "--validate=false", "-f", file.to_str().unwrap()]).expect_success()
    };
    let a = |image: &str| json!({"name": "a", "image": image});
    let b = json!({"name": "b", "image": "b:1"});
    assert_eq!(apply(json!({"x": "1", "y": "1"}), json!([a("a:1"), b])), "deployment.apps/web created\n");
    // Fields that another client writes and apply does not manage stay as they are.
    let scaled = kubectl(&kubeconfig, &["scale", "deployment", "web", "--replicas=3"]);
    scaled.expect_success();
    assert_eq!(apply(json!({"x": "2"}), json!([b, a("a:2")])), "deployment.apps/web configured\n");
    assert_eq!(apply(json!({"x": "2"}), json!([b, a("a:2")])), "deployment.apps/web unchanged\n");
    assert_eq!(apply(json!({"x": "2"}), json!([a("a:2")])), "deployment.apps/web configured\n");
    let web = block_on(client.get("/apis/apps/v1/namespaces/default/deployments/web")).json();
    assert_eq!(web["metadata"]["labels"], json!({"x": "2"}));
    assert_eq!(web["spec"]["replicas"], 3);
    let containers = web["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.iter().map(|container| &container["image"]).collect::<Vec<_>>(), ["a:2"]);
}
