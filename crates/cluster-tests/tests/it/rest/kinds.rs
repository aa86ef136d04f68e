//! Every built-in kind of every release: created, read in each version, patched, deleted.

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use cluster_tests::tools::{is_skipped, kubectl, python_with_long_timeout};
use http::Method;

use crate::validation::manifests::{Kind, load_kinds};
use crate::*;

const RELEASES: [&str; 7] = ["1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"];
const ALL_APIS_AND_GATES: [&str; 2] = ["--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"];
const DISCOVERY_V2_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Kinds whose objects keep the names of their manifests.
const KINDS_WITH_NAME_RULES: [&str; 4] = ["APIService", "CustomResourceDefinition", "IPAddress", "StorageVersion"];
static MANIFESTS: LazyLock<Vec<Kind>> = LazyLock::new(load_kinds);

/// A resource as discovery lists it.
pub(crate) struct ListedResource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) kind: String,
    pub(crate) is_namespaced: bool,
    /// Those that can be patched.
    pub(crate) subresources: Vec<String>,
}

impl ListedResource {
    pub(crate) fn path(&self) -> String {
        let base = match &*self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        let namespace = if self.is_namespaced { "/namespaces/default" } else { "" };
        format!("{base}{namespace}/{}", self.resource)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// A valid name for an object of this kind.
    pub(crate) fn name(&self) -> String {
        self.valid_object()["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// A valid object of this kind, for the namespace `default`.
    pub(crate) fn valid_object(&self) -> Value {
        let mut object = self.manifest().unwrap_or_else(|| self.object_without_manifest());
        object["apiVersion"] = self.api_version().into();
        self.use_fields_of_older_versions(&mut object);
        let metadata = object["metadata"].as_object_mut().unwrap();
        ["namespace", "finalizers", "ownerReferences"].iter().for_each(|field| drop(metadata.remove(*field)));
        if !KINDS_WITH_NAME_RULES.contains(&&*self.kind) {
            metadata.insert("name".to_owned(), "minimal".into());
        }
        object
    }

    /// The first manifest of this kind in this version, or in another version of the group.
    fn manifest(&self) -> Option<Value> {
        let group_of = |kind: &Kind| kind.api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let in_group = |kind: &&Kind| kind.kind == self.kind && group_of(kind) == self.group;
        let exact = MANIFESTS.iter().filter(in_group).find(|kind| kind.api_version == self.api_version());
        let found = exact.or_else(|| MANIFESTS.iter().find(in_group))?;
        Some(found.manifests[0].object.clone())
    }

    /// Older alpha and beta versions have other fields than the manifests, and the server would drop those of the manifests.
    fn use_fields_of_older_versions(&self, object: &mut Value) {
        if self.kind == "LeaseCandidate" && self.version == "v1alpha1" {
            let spec = object["spec"].as_object_mut().unwrap();
            let strategy = spec.remove("strategy").unwrap();
            spec.insert("preferredStrategies".to_owned(), json!([strategy]));
        }
        if self.group == "resource.k8s.io" && matches!(&*self.version, "v1alpha3" | "v1beta1") {
            let pointer = match &*self.kind {
                "ResourceClaim" => "/spec/devices/requests",
                "ResourceClaimTemplate" => "/spec/spec/devices/requests",
                _ => return,
            };
            // Only the first, since releases before 1.33 have no alternatives (`firstAvailable`).
            let request = object.pointer(pointer).unwrap()[0].clone();
            let mut flat = request["exactly"].clone();
            flat["name"] = request["name"].clone();
            *object.pointer_mut(pointer).unwrap() = json!([flat]);
        }
    }

    /// An object with the required fields of all versions of a kind that has no manifest.
    fn object_without_manifest(&self) -> Value {
        let pod = json!({"name": "pod", "uid": "1"});
        let (basic, reference) =
            (json!({"basic": {}}), json!({"workloadName": "workload", "templateName": "template"}));
        let spec = match &*self.kind {
            "ClusterTrustBundle" => json!({"trustBundle": certificate()}),
            "CompositePodGroup" => json!({"workloadRef": reference, "schedulingPolicy": basic}),
            "Eviction" => json!({"target": {"pod": pod}}),
            "EvictionRequest" => json!({"target": {"pod": pod}, "requester": "example.com", "intent": "Eviction"}),
            "PodCertificateRequest" => json!({
                "signerName": "example.com/signer", "podName": "pod", "podUID": "1", "nodeName": "node", "nodeUID": "2",
                "serviceAccountName": "default", "serviceAccountUID": "3",
                "pkixPublicKey": "eA==", "proofOfPossession": "eA==", "stubPKCS10Request": "eA==",
            }),
            "PodGroup" => json!({"schedulingPolicy": basic}),
            "PodSchedulingContext" => json!({"selectedNode": "node"}),
            "StorageVersionMigration" => {
                json!({"resource": {"group": "apps", "version": "v1", "resource": "deployments"}})
            }
            "Workload" => json!({
                "podGroups": [{"name": "group", "policy": basic}],
                "podGroupTemplates": [{"name": "group", "schedulingPolicy": basic}],
            }),
            kind => panic!("{kind} needs a manifest"),
        };
        json!({"kind": self.kind, "metadata": {}, "spec": spec})
    }
}

/// A valid certificate as PEM.
fn certificate() -> String {
    let service = MANIFESTS.iter().find(|kind| kind.kind == "APIService").unwrap();
    let encoded = service.manifests[0].object["spec"]["caBundle"].as_str().unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

/// Resources that can be created, read, patched and deleted.
pub(crate) async fn list_writable_resources(client: &Client) -> Vec<ListedResource> {
    let mut all = Vec::new();
    for page in ["/api", "/apis"] {
        let request = client.request_builder(Method::GET, page).header("accept", DISCOVERY_V2_ACCEPT);
        let document = client.send(request, bytes::Bytes::new()).await.json();
        for group in document["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    let verbs = resource["verbs"].as_array().unwrap();
                    if !["create", "get", "patch", "delete"].iter().all(|verb| verbs.contains(&(*verb).into())) {
                        continue;
                    }
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let subresources = resource["subresources"].as_array().into_iter().flatten();
                    let subresources =
                        subresources.filter(|it| it["verbs"].as_array().unwrap().contains(&"patch".into()));
                    all.push(ListedResource {
                        subresources: subresources.map(|it| text(&it["subresource"])).collect(),
                        group: text(&group["metadata"]["name"]),
                        version: text(&version["version"]),
                        resource: text(&resource["resource"]),
                        kind: text(&resource["responseKind"]["kind"]),
                        is_namespaced: resource["scope"] == "Namespaced",
                    });
                }
            }
        }
    }
    all
}

async fn check_kind(client: &Client, listed: &ListedResource, others: &[&ListedResource]) {
    let path = listed.path();
    let what = format!("{} {}", listed.api_version(), listed.kind);
    let created = client.create(&path, &listed.valid_object()).await;
    assert_eq!(created.status, 201, "{what}: {}", created.summary());
    for other in others {
        let read = client.get(&format!("{}/{}", other.path(), other.name())).await;
        assert_eq!(read.status, 200, "{what} as {}: {}", other.api_version(), read.summary());
        let object = read.json();
        assert_eq!((&object["apiVersion"], &object["kind"]), (&other.api_version().into(), &other.kind.clone().into()));
    }
    let patch = r#"{"metadata":{"labels":{"patched":"true"}}}"#;
    let one = format!("{path}/{}", listed.name());
    let patched = client.send_body(Method::PATCH, &one, "application/strategic-merge-patch+json", patch.into()).await;
    assert_eq!(patched.status, 200, "{what}: {}", patched.summary());
    assert_eq!(patched.json()["metadata"]["labels"]["patched"], "true", "{what}");
    assert_eq!(client.delete(&one).await.status, 200, "{what}");
    remove_finalizers_and_delete(client, &one).await;
}

/// Removes finalizers, as controllers of a full cluster would, and deletes the object.
pub(crate) async fn remove_finalizers_and_delete(client: &Client, path: &str) {
    let answer = client.get(path).await;
    if answer.status != 200 {
        return;
    }
    let mut object = answer.json();
    object["metadata"]["finalizers"] = json!([]);
    if object["kind"] == "Namespace" {
        object["spec"]["finalizers"] = json!([]);
        client.update(&format!("{path}/finalize"), &object).await;
        return;
    }
    client.update(path, &object).await;
    client.delete(&format!("{path}?gracePeriodSeconds=0")).await;
}

#[test]
fn every_kind_is_created_read_patched_and_deleted() {
    for release in RELEASES {
        let folder = tempfile::tempdir().unwrap();
        let version = format!("--emulated-version={release}");
        let server = start_on_sqlite(folder.path(), &[ALL_APIS_AND_GATES[0], ALL_APIS_AND_GATES[1], &version]);
        let client = server.admin();
        block_on(async {
            let all = list_writable_resources(&client).await;
            assert!(all.len() > 60, "{release} has {} resources", all.len());
            for one in &all {
                let same = |other: &&ListedResource| other.group == one.group && other.resource == one.resource;
                check_kind(&client, one, &all.iter().filter(same).collect::<Vec<_>>()).await;
            }
        });
    }
}

#[test]
fn kubectl_creates_labels_and_deletes_every_kind() {
    if is_skipped("kubectl") {
        return;
    }
    for release in RELEASES {
        let folder = tempfile::tempdir().unwrap();
        let version = format!("--emulated-version={release}");
        let server = start_on_sqlite(folder.path(), &[ALL_APIS_AND_GATES[0], ALL_APIS_AND_GATES[1], &version]);
        let all = block_on(list_writable_resources(&server.admin()));
        // One version of each resource, since all versions show the same objects.
        let mut seen = std::collections::HashSet::new();
        let once = all.iter().filter(|one| one.resource != "events" || one.group.is_empty());
        let items: Vec<Value> =
            once.filter(|one| seen.insert((&one.group, &one.resource))).map(ListedResource::valid_object).collect();
        let count = items.len();
        let file = folder.path().join("all.json");
        std::fs::write(&file, json!({"kind": "List", "apiVersion": "v1", "items": items}).to_string()).unwrap();
        let (kubeconfig, file) = (server.kubeconfig(), file.display().to_string());
        let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success().lines().count();
        assert_eq!(run(&["create", "--validate=false", "-f", &file]), count, "{release}");
        assert_eq!(run(&["label", "-f", &file, "seen=true"]), count, "{release}");
        assert_eq!(run(&["delete", "--wait=false", "-f", &file]), count, "{release}");
    }
}

/// Finds the typed classes by the annotations of their methods, and tries each whose resource the server offers.
const PYTHON_PROGRAM: &str = r#"
import inspect, json, pydantic, re, sys
from kubernetes import client, config

# Where a method's requests go: the group with the version, and the resource.
def target_of(api, method):
    source = inspect.getsource(getattr(api, "_%s_serialize" % method))
    path = re.search(r"'(/apis?/[^']*)'", source).group(1)
    base, _, resource = path.replace("/namespaces/{namespace}", "").rpartition("/")
    return base, resource

classes = []
for api_name in sorted(name for name in dir(client) if name.endswith("Api")):
    api = getattr(client, api_name)
    for method in sorted(name for name in dir(api) if name.startswith("create_")):
        if "_with_http_info" in method or "_without_preload" in method:
            continue
        model = re.search(r":type body: (\w+)", inspect.getdoc(getattr(api, method)) or "")
        rest = method[len("create_"):]
        methods = [method] + [verb + rest for verb in ("read_", "patch_", "delete_")]
        if model and hasattr(client, model.group(1)) and all(hasattr(api, name) for name in methods):
            classes.append((api, rest, target_of(api, method), getattr(client, model.group(1)), methods))

def offered_by_server():
    offered = {"/api/v1": client.CoreV1Api().get_api_resources()}
    for group in client.ApisApi().get_api_versions().groups:
        for version in group.versions:
            resources = client.CustomObjectsApi().get_api_resources(group.name, version.version)
            offered["/apis/" + version.group_version] = resources
    return {(base, resource.name) for base, resources in offered.items() for resource in resources.resources}

with open(sys.argv[1]) as file:
    # Of whole seconds, the client leaves out the fraction, without which no micro time is read.
    objects = json.loads(file.read().replace(".000000Z", ".000001Z"))
for kubeconfig in sys.argv[2:]:
    config.load_kube_config(kubeconfig)
    offered, tried, unreadable = offered_by_server(), 0, []
    for api, rest, target, model, methods in classes:
        if target not in offered:
            continue
        create, read, patch, delete = (getattr(api(), name) for name in methods)
        where = ["default"] if rest.startswith("namespaced_") else []
        base, resource = target
        body = objects[base.rpartition("/api/")[2].rpartition("/apis/")[2]][resource]
        name = body["metadata"]["name"]
        try:
            create(*where, body=model.from_dict(body))
        except client.ApiException as error:
            raise SystemExit("%s: %s" % (methods[0], error))
        except pydantic.ValidationError:
            # The class demands a field that the release does not have.
            unreadable.append(rest)
            continue
        assert read(name, *where).metadata.name == name, rest
        patched = patch(name, *where, {"metadata": {"labels": {"a": "b"}}})
        assert patched.metadata.labels["a"] == "b", rest
        delete(name, *where)
        tried += 1
    print(tried, *unreadable)
"#;

#[test]
fn python_client_reads_every_kind_with_typed_classes() {
    if is_skipped("python") {
        return;
    }
    let servers = RELEASES.map(|release| {
        let folder = tempfile::tempdir().unwrap();
        let version = format!("--emulated-version={release}");
        (start_on_sqlite(folder.path(), &[ALL_APIS_AND_GATES[0], ALL_APIS_AND_GATES[1], &version]), folder)
    });
    let kubeconfigs = servers.each_ref().map(|(server, _)| server.kubeconfig().display().to_string());
    let mut objects = json!({});
    for (server, _) in &servers {
        for one in block_on(list_writable_resources(&server.admin())) {
            objects[one.api_version()][&one.resource] = one.valid_object();
        }
    }
    let file = servers[0].1.path().join("objects.json");
    std::fs::write(&file, objects.to_string()).unwrap();
    let file = file.display().to_string();
    let args: Vec<&str> = std::iter::once(&file).chain(&kubeconfigs).map(String::as_str).collect();
    let said = python_with_long_timeout(PYTHON_PROGRAM, &args).expect_success();
    assert_eq!(said.lines().count(), RELEASES.len(), "{said}");
    for (release, line) in RELEASES.iter().zip(said.lines()) {
        println!("{release}: typed classes tried, and those that cannot read the release's objects: {line}");
        let mut words = line.split_whitespace();
        let tried: usize = words.next().unwrap().parse().unwrap();
        assert!(tried > if *release == "1.37" { 70 } else { 50 }, "{release}: {line}");
        let demanding = if *release == "1.37" { &[][..] } else { &["namespaced_pod_certificate_request"] };
        assert!(words.all(|kind| demanding.contains(&kind)), "{release} has kinds that cannot be read: {line}");
    }
}

#[test]
fn ga_and_deprecated_feature_gates_are_logged_as_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--emulated-version=1.33", "--feature-gates=MultiCIDRServiceAllocator=true,AllowDNSOnlyNodeCSR=false"];
    let server = start_on_sqlite(folder.path(), &flags);
    for warning in [
        "Setting GA feature gate MultiCIDRServiceAllocator=true. It will be removed in a future release.",
        "Setting deprecated feature gate AllowDNSOnlyNodeCSR=false. It will be removed in a future release.",
    ] {
        assert!(server.log().contains(warning), "{}", server.log());
    }
}
