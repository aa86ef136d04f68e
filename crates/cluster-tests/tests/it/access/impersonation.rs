//! Impersonation needs a permission for each attribute of the impersonated identity.

use super::*;

#[test]
fn impersonation_requires_permission_for_each_attribute() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, jane) = (server.admin(), server.client_with(issue_client_certificate(&server, "jane", None)));
    block_on(async {
        let rules = json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["devs"]},
            {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "resourceNames": ["u-7"]},
            {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/team"]},
        ]);
        grant_cluster_role(&admin, &jane, "jane", &rules).await;
        let all = [
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "devs"),
            ("Impersonate-Uid", "u-7"),
            ("Impersonate-Extra-Team", "red"),
        ];
        assert_eq!(whoami(&jane, &all).await, "bob [devs system:authenticated]");
        let full = post_with_headers(&jane, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}), &all)
            .await
            .json();
        let user = &full["status"]["userInfo"];
        assert_eq!((&user["uid"], &user["extra"]), (&json!("u-7"), &json!({"team": ["red"]})));

        for (name, header, value, resource) in [
            ("carol", "Impersonate-Group", "devs", "users"),
            ("bob", "Impersonate-Group", "system:masters", "groups"),
            ("bob", "Impersonate-Uid", "u-8", "uids"),
            ("bob", "Impersonate-Extra-Role", "red", "userextras/role"),
        ] {
            let refused = whoami(&jane, &[("Impersonate-User", name), (header, value)]).await;
            let why = format!(r#"User "jane" cannot impersonate resource "{resource}""#);
            assert!(refused.starts_with("403 ") && refused.contains(&why), "{header}: {refused}");
        }
        let anonymous = whoami(&jane, &[("Impersonate-Group", "devs")]).await;
        assert_eq!(anonymous, "400 requested [{Group  devs    }] without impersonating a user");
    });
}

#[test]
fn impersonated_request_has_only_the_permissions_of_that_user() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        let list = async |headers: &[(&str, &str)]| {
            let mut request = admin.request_builder(Method::GET, CONFIG_MAPS_PATH);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            admin.send(request, Bytes::new()).await.status.as_u16()
        };
        assert_eq!(list(&[]).await, 200);
        assert_eq!(list(&[("Impersonate-User", "bob")]).await, 403);
        assert_eq!(list(&[("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters")]).await, 200);
        let account = [("Impersonate-User", "system:serviceaccount:default:x")];
        let expected = "system:serviceaccount:default:x \
                        [system:serviceaccounts system:serviceaccounts:default system:authenticated]";
        assert_eq!(whoami(&admin, &account).await, expected);
    });
}
