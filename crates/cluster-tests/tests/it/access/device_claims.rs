//! Claims of devices: what the namespace must allow, and what the writer of a status needs beyond its permission.

use super::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const DRIVER: &str = "drv.example.com";

fn claim(name: &str, admin_access: bool) -> Value {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "x", "adminAccess": admin_access}});
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})
}

fn allocated(admin_access: bool) -> Value {
    let result = json!({"request": "r", "driver": DRIVER, "pool": "p", "device": "d", "adminAccess": admin_access});
    json!({"allocation": {"devices": {"results": [result]}}})
}

fn with_state(drivers: &[&str]) -> Value {
    let mut status = allocated(false);
    let state = |driver: &&str| json!({"driver": driver, "pool": "p", "device": "d"});
    status["devices"] = drivers.iter().map(state).collect();
    status
}

async fn label_default_namespace(client: &Client, label: &str, value: Option<&str>) {
    let patch = json!({"metadata": {"labels": {label: value}}}).to_string();
    let sent =
        client.send_body(Method::PATCH, "/api/v1/namespaces/default", "application/merge-patch+json", patch.into());
    assert_eq!(sent.await.status, 200);
}

async fn put_status(admin: &Client, writer: &Client, status: Value) -> FullResponse {
    let mut claim = admin.get(CLAIM).await.json();
    claim["status"] = status;
    writer.update(&format!("{CLAIM}/status"), &claim).await
}

#[test]
fn admin_access_to_devices_needs_the_label_of_the_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--emulated-version=1.36"]);
    let admin = server.admin();
    block_on(async {
        let refused = |field: &str| {
            format!(
                "{field}: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` \
                 label on the containing namespace"
            )
        };
        let in_spec = refused("spec.devices.requests[0].adminAccess");
        let created = admin.create(CLAIMS, &claim("c", true)).await;
        assert_eq!(created.summary(), format!("422 ResourceClaim.resource.k8s.io \"c\" is invalid: {in_spec}"));
        let template = json!({"metadata": {"name": "t"}, "spec": {"spec": claim("c", true)["spec"]}});
        let created = admin.create(TEMPLATES, &template).await;
        assert_eq!(created.summary(), format!("422 ResourceClaimTemplate.resource.k8s.io \"t\" is invalid: {in_spec}"));
        assert_eq!(admin.create(CLAIMS, &claim("c", false)).await.status, 201);
        let in_status = refused("status.allocation.devices.results[0].adminAccess");
        let granted = put_status(&admin, &admin, allocated(true)).await;
        assert_eq!(granted.summary(), format!("422 ResourceClaim.resource.k8s.io \"c\" is invalid: {in_status}"));

        label_default_namespace(&admin, "resource.kubernetes.io/admin-access", Some("true")).await;
        assert_eq!(admin.create(CLAIMS, &claim("d", true)).await.status, 201);
        assert_eq!(admin.create(TEMPLATES, &template).await.status, 201);
        assert_eq!(put_status(&admin, &admin, allocated(true)).await.status, 200);
        label_default_namespace(&admin, "resource.kubernetes.io/admin-access", None).await;
        assert_eq!(admin.create(CLAIMS, &claim("e", true)).await.status, 422);
        let mut reserved = allocated(true);
        reserved["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
        assert_eq!(put_status(&admin, &admin, reserved).await.status, 200, "what was granted stays");
    });
}

#[test]
fn parts_of_a_claims_status_need_permissions_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--emulated-version=1.36"]);
    let (admin, jane) = (server.admin(), server.client_with(issue_client_certificate(&server, "jane", None)));
    block_on(async {
        assert_eq!(admin.create(CLAIMS, &claim("c", false)).await.status, 201);
        let group = json!(["resource.k8s.io"]);
        let status = json!({
            "verbs": ["get", "update"], "apiGroups": group, "resources": ["resourceclaims", "resourceclaims/status"],
        });
        grant_cluster_role(&admin, &jane, "jane", &json!([status])).await;
        let refused = put_status(&admin, &jane, allocated(false)).await;
        assert_eq!(
            refused.summary(),
            "422 ResourceClaim.resource.k8s.io \"c\" is invalid: status.allocation: Forbidden: changing \
             status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" \
             permission: resourceclaims.resource.k8s.io is forbidden: User \"jane\" cannot update resource \
             \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
        );
        assert_eq!(put_status(&admin, &admin, allocated(false)).await.status, 200);
        let refused = put_status(&admin, &jane, with_state(&[DRIVER])).await;
        assert_eq!(
            refused.summary(),
            "422 ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices: Forbidden: changing status.devices \
             requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:update]\" permission: \
             resourceclaims.resource.k8s.io \"drv.example.com\" is forbidden: User \"jane\" cannot \
             arbitrary-node:update resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the \
             namespace \"default\""
        );
        let driver = json!({
            "verbs": ["arbitrary-node:update"], "apiGroups": group, "resources": ["resourceclaims/driver"],
            "resourceNames": [DRIVER],
        });
        let role = json!({"metadata": {"name": "jane"}, "rules": [status, driver]});
        assert_eq!(admin.update(&format!("{CLUSTER_ROLES}/jane"), &role).await.status, 200);
        wait_until(async || put_status(&admin, &jane, with_state(&[DRIVER])).await.status == 200).await;
        let others = put_status(&admin, &jane, with_state(&["b.example.com"])).await;
        assert!(others.summary().contains("\"b.example.com\" is forbidden"), "{}", others.summary());
        // The states of devices end with their allocation.
        let mut status = with_state(&[DRIVER]);
        status.as_object_mut().unwrap().remove("allocation");
        let released = put_status(&admin, &admin, status).await;
        assert_eq!(released.json()["status"], json!({}), "{}", released.summary());
    });
}
