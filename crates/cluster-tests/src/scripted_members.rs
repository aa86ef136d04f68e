//! Members of a control plane whose responses a test scripts.
//!
//! Our servers see them as stock kube-apiservers: they have an identity lease and an endpoint record, and serve
//! discovery.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use store::etcd::EtcdStore;
use store::sqlite::SqliteStore;
use store::{Key, Op, Transaction};
use tasks::Tasks;
use transport::testing::{ReceivedRequest, ScriptedConnection, ScriptedPeer, TestCertificates};

use crate::{Client, ControlPlane, TestStore};

/// Collection of the identity leases.
pub const IDENTITY_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Starts scripted peers and writes the leases and endpoint records that make them members.
pub struct ScriptedMembers {
    store: Arc<dyn store::Store>,
    /// Runs until the test's runtime ends.
    tasks: Tasks,
    certificates: TestCertificates,
}

impl ScriptedMembers {
    /// Connects to the store of a control plane and uses its certificates. At least one server must have been started.
    pub async fn connect(plane: &ControlPlane<'_>) -> Self {
        let tasks = Tasks::new();
        let data = plane.folder().join("unskew-data");
        let store: Arc<dyn store::Store> = match plane.store() {
            TestStore::Sqlite => {
                let config = store::sqlite::Config::new(data.join("store.db"));
                Arc::new(SqliteStore::open(config, &tasks).await.expect("a server has created the store"))
            }
            TestStore::Etcd(etcd) => {
                let config = store::etcd::Config::new(vec![etcd.url().to_owned()]);
                Arc::new(EtcdStore::open(&config, tasks.clone()).await.expect("etcd is running"))
            }
        };
        Self { store, tasks, certificates: TestCertificates::new(&data.join("pki")) }
    }

    /// Starts a peer that runs `script` on every connection, with a trusted certificate. It is not a member until
    /// `add_member`.
    pub async fn start_peer<Play, Playing>(&self, script: Play) -> ScriptedPeer
    where
        Play: Fn(ScriptedConnection) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        ScriptedPeer::start(self.certificates.server_config(), &self.tasks, script).await
    }

    /// Like `start_peer`, but with certificates that the servers do not trust.
    pub async fn start_untrusted_peer<Play, Playing>(
        &self,
        certificates: &TestCertificates,
        script: Play,
    ) -> ScriptedPeer
    where
        Play: Fn(ScriptedConnection) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        ScriptedPeer::start(certificates.server_config(), &self.tasks, script).await
    }

    /// Makes the peer at `address` a member by writing its endpoint record and then its lease.
    pub async fn add_member(&self, admin: &Client, identity: &str, address: SocketAddr) {
        self.write_endpoint_record(identity, address).await;
        create_identity_lease(admin, identity).await;
    }

    /// Writes the endpoint record of a member, without expiry.
    pub async fn write_endpoint_record(&self, identity: &str, address: SocketAddr) {
        let record = json!({
            "kind": "Endpoints", "apiVersion": "v1",
            "metadata": {"generation": 1, "labels": {"apiserverIdentity": identity}},
            "subsets": [{
                "addresses": [{"ip": address.ip()}],
                "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
            }],
        });
        let key = Key::from(format!("/registry/peerserverleases/{identity}"));
        let put = Op::Put { key, value: record.to_string().into(), ttl: None };
        let written = self.store.commit(Transaction { compares: Vec::new(), ops: vec![put] }).await;
        written.expect("storage takes the record");
    }
}

/// Creates the identity lease of a member.
pub async fn create_identity_lease(admin: &Client, identity: &str) {
    let created = admin.create(IDENTITY_LEASES, &identity_lease(identity)).await;
    assert_eq!(created.status, 201, "{}", created.summary());
}

/// Returns the identity lease of a member, valid for an hour from a fixed renew time.
pub fn identity_lease(identity: &str) -> Value {
    json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": identity, "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
        },
        "spec": {
            "holderIdentity": format!("{identity}_1"),
            "leaseDurationSeconds": 3600,
            "renewTime": "2026-11-15T00:00:00.000000Z",
        },
    })
}

/// Discovery documents of a scripted member.
#[derive(Clone, Debug, Default)]
pub struct ScriptedDiscovery {
    core: Vec<Value>,
    apis: Vec<Value>,
}

impl ScriptedDiscovery {
    /// Adds a resource with all verbs and these subresources.
    #[must_use]
    pub fn with_resource(mut self, group: &str, version: &str, resource: &str, subresources: &[&str]) -> Self {
        let kind = json!({"group": "", "version": "", "kind": "Thing"});
        let subresources: Vec<Value> = subresources
            .iter()
            .map(|name| json!({"subresource": name, "verbs": ["create", "get"], "responseKind": kind}))
            .collect();
        let listed = json!({
            "metadata": {"name": group},
            "versions": [{
                "version": version, "freshness": "Current",
                "resources": [{
                    "resource": resource, "responseKind": kind,
                    "scope": if group.is_empty() { "Namespaced" } else { "Cluster" }, "singularResource": "",
                    "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                    "subresources": subresources,
                }],
            }],
        });
        if group.is_empty() {
            self.core.push(listed)
        } else {
            self.apis.push(listed)
        }
        self
    }

    /// Returns the response to a discovery request; `None` for any other request.
    pub fn respond(&self, received: &ReceivedRequest) -> Option<String> {
        let items = match received.request_line.as_str() {
            "GET /api HTTP/1.1" => &self.core,
            "GET /apis HTTP/1.1" => &self.apis,
            _ => return None,
        };
        let document = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        });
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        Some(http_response("200 OK", kind, &document.to_string()))
    }
}

/// Formats a whole HTTP/1.1 response.
pub fn http_response(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}")
}
