//! CertificateSigningRequests: the server records the requester, and approval needs a permission.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster_tests::tools::{is_skipped, kubectl};

use super::*;

const CSR_PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A new certificate request, PEM in base64.
fn certificate_request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    BASE64_STANDARD.encode(request.pem().unwrap())
}

fn csr_object(name: &str) -> Value {
    let spec = json!({"request": certificate_request(), "signerName": "example.com/signer", "usages": ["client auth"],
        "username": "root", "groups": ["system:masters"]});
    json!({"metadata": {"name": name}, "spec": spec})
}

#[test]
fn csr_records_the_requester_and_requires_approve_permission() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, jane) = (server.admin(), server.client_with(issue_client_certificate(&server, "jane", None)));
    block_on(async {
        let rules = json!([{"verbs": ["create", "update", "get"], "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
                "certificatesigningrequests/status"]}]);
        grant_cluster_role(&admin, &jane, "jane", &rules).await;
        let created = jane.create(CSR_PATH, &csr_object("r")).await.json();
        assert_eq!(created["spec"]["username"], "jane", "{created}");
        assert_eq!(created["spec"]["groups"], json!(["system:authenticated"]));
        let one = format!("{CSR_PATH}/r");
        let mut changed = created.clone();
        changed["spec"]["username"] = json!("root");
        changed["spec"]["request"] = json!(certificate_request());
        assert_eq!(jane.update(&one, &changed).await.json()["spec"], created["spec"], "the spec is immutable");

        let mut approved = jane.get(&one).await.json();
        approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]});
        let refused = "403 certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to \
                       approve requests with signerName \"example.com/signer\"";
        assert_eq!(jane.update(&format!("{one}/approval"), &approved).await.summary(), refused);
        let through_status = admin.update(&format!("{one}/status"), &approved).await;
        assert!(through_status.summary().contains("updates may not add a condition of type \"Approved\""));
        let mut role = admin.get(&format!("{CLUSTER_ROLES}/jane")).await.json();
        let signers = json!({"verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
            "resourceNames": ["example.com/*"]});
        role["rules"].as_array_mut().unwrap().push(signers);
        assert_eq!(admin.update(&format!("{CLUSTER_ROLES}/jane"), &role).await.status, 200);
        wait_until(async || jane.update(&format!("{one}/approval"), &approved).await.status == 200).await;
        let now = jane.get(&one).await.json();
        assert_eq!(now["status"]["conditions"][0]["type"], "Approved", "{now}");
        assert!(now["status"]["conditions"][0]["lastUpdateTime"].is_string());
    });
}

#[test]
fn kubectl_approves_a_csr() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    block_on(async {
        assert_eq!(server.admin().create(CSR_PATH, &csr_object("r")).await.status, 201);
    });
    let kubeconfig = server.kubeconfig();
    kubectl(&kubeconfig, &["certificate", "approve", "r"]).expect_success();
    let listed = kubectl(&kubeconfig, &["get", "csr"]).expect_success();
    assert!(listed.contains("Approved"), "{listed}");
}
