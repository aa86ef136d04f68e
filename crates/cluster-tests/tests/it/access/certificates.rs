//! User attributes from client certificates, by release.

use super::*;

/// OID of Kubernetes' subject attribute for the user's uid.
const UID_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// Issues a client certificate of the server's CA with a uid in its subject.
fn issue_with_uid(pki: &Path, name: &str, uid: &str) -> ClientCredentials {
    let authority = std::fs::read_to_string(pki.join("ca.key")).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "unskew-ca");
    let issuer = rcgen::Issuer::new(parameters.clone(), rcgen::KeyPair::from_pem(&authority).unwrap());
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    parameters.distinguished_name.push(rcgen::DnType::from_oid(UID_OID), uid);
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let signed = parameters.signed_by(&key, &issuer).unwrap();
    let [certificate, key_file] = ["crt", "key"].map(|ending| pki.join(format!("{name}.{ending}")));
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    ClientCredentials::Certificate { certificate, key: key_file }
}

#[test]
fn certificate_uid_and_credential_id_depend_on_release() {
    let without = "--feature-gates=AllowParsingUserUIDFromCertAuth=false";
    for (flags, uid, has_credential_id) in [
        (vec!["--emulated-version=1.31"], Value::Null, false),
        (vec!["--emulated-version=1.32"], Value::Null, true),
        (vec!["--emulated-version=1.33"], json!("u-7"), true),
        (vec!["--emulated-version=1.37"], json!("u-7"), true),
        (vec!["--emulated-version=1.37", without], Value::Null, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = start_on_sqlite(folder.path(), &flags);
        let jane = server.client_with(issue_with_uid(&server.pki(), "jane", "u-7"));
        block_on(async {
            let review = post_with_headers(&jane, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}), &[])
                .await
                .json();
            let user = &review["status"]["userInfo"];
            assert_eq!(user["uid"], uid, "{flags:?}: {user}");
            let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
            assert_eq!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, has_credential_id, "{flags:?}: {user}");
        });
    }
}
