//! Migrations that must not succeed because admission refuses an object.

use cluster_tests::ControlPlane;
use serde_json::{Value, json};

use super::{
    CLASSES, MIGRATIONS, STORED_CLASSES, class, create_migration, migration_state, migrator, stored_versions,
    wait_for_state,
};
use crate::block_on;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Denies updates of the class `frozen`.
fn freeze_policy() -> [Value; 2] {
    let rule = json!({"apiGroups": ["storage.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["volumeattributesclasses"]});
    let validation = json!({"expression": "object.metadata.name != 'frozen'", "message": "this class is frozen"});
    [
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "freeze"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "freeze"}, "spec": {"policyName": "freeze", "validationActions": ["Deny"]}}),
    ]
}

#[test]
fn migration_with_an_object_that_a_policy_refuses_never_succeeds_and_names_it() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.34"]);
        for name in ["frozen", "free"] {
            assert_eq!(block_on(plane.admin("a").create(CLASSES, &class(name))).status, 201);
        }
        plane.stop("a");
        plane.start("a", &migrator("--emulated-version=1.36"));
        let a = plane.admin("a");
        let [policy, binding] = freeze_policy();
        assert_eq!(block_on(a.create(POLICIES, &policy)).status, 201);
        assert_eq!(block_on(a.create(BINDINGS, &binding)).status, 201);
        block_on(create_migration(&a, "classes", "storage.k8s.io", "volumeattributesclasses"));
        let message = wait_for_state(&a, "classes", "Failed", "frozen");
        assert!(message.contains("this class is frozen"), "{message}");
        let object = block_on(a.get(&format!("{MIGRATIONS}/classes"))).json();
        let conditions = object["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().all(|condition| condition["type"] != "Succeeded"), "{object}");
        let stored = |name: &str, version: &str| (name.to_owned(), format!("storage.k8s.io/{version}"));
        let found = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert_eq!(found, [stored("free", "v1"), stored("frozen", "v1beta1")], "the others are moved");

        assert_eq!(block_on(a.delete(&format!("{BINDINGS}/freeze"))).status, 200);
        block_on(create_migration(&a, "again", "storage.k8s.io", "volumeattributesclasses"));
        wait_for_state(&a, "again", "Succeeded", "all 2 objects are stored as storage.k8s.io/v1 at");
        assert_eq!(block_on(migration_state(&a, "classes")).0, "Failed", "a retry is a new object");
    });
}
