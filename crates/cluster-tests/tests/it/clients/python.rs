//! The official Python client.

use cluster_tests::tools::{is_skipped, python};

use crate::*;

/// Creates, lists, pages, patches, watches and deletes with the client's typed classes.
const PYTHON_PROGRAM: &str = r#"
import sys
from kubernetes import client, config, watch
config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
apps = client.AppsV1Api()

core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="py")))
for at in range(30):
    name = "m%02d" % at
    core.create_namespaced_config_map("py", client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"a": "1"}))

names, token = [], None
while True:
    page = core.list_namespaced_config_map("py", limit=7, _continue=token)
    names += [item.metadata.name for item in page.items]
    token = page.metadata._continue
    if not token:
        break
assert names == ["m%02d" % at for at in range(30)], names

before = core.list_namespaced_config_map("py").metadata.resource_version
core.delete_namespaced_config_map("m00", "py")
watcher = watch.Watch()
for event in watcher.stream(core.list_namespaced_config_map, "py", resource_version=before, timeout_seconds=20):
    assert (event["type"], event["object"].metadata.name) == ("DELETED", "m00"), event
    watcher.stop()

template = client.V1PodTemplateSpec(
    metadata=client.V1ObjectMeta(labels={"a": "b"}),
    spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="i")]),
)
spec = client.V1DeploymentSpec(replicas=1, selector=client.V1LabelSelector(match_labels={"a": "b"}), template=template)
apps.create_namespaced_deployment("py", client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec))
deployment = apps.read_namespaced_deployment("web", "py")
assert deployment.metadata.generation == 1 and deployment.spec.replicas == 1, deployment
deployment.spec.replicas = 2
assert apps.replace_namespaced_deployment("web", "py", deployment).metadata.generation == 2
apps.delete_namespaced_deployment("web", "py")
try:
    apps.read_namespaced_deployment("web", "py")
    raise SystemExit("the object still exists")
except client.ApiException as error:
    assert error.status == 404, error
print("done")
"#;

#[test]
fn python_client_creates_lists_watches_and_deletes() {
    if is_skipped("python") {
        return;
    }
    for_each_store(|server| {
        let kubeconfig = server.kubeconfig().display().to_string();
        assert_eq!(python(PYTHON_PROGRAM, &[&kubeconfig]).expect_success(), "done\n");
    });
}
