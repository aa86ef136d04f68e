//! Certificates and CAs that are replaced under a running server.

use cluster_tests::client::ClientCredentials;
use cluster_tests::{WatchReader, wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use transport::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};

use crate::*;

const NAMESPACES_PATH: &str = "/api/v1/namespaces";
/// Used for HEAD, which kube-apiserver rejects for resources.
const DISCOVERY: &str = "/api";

/// Replaces a file atomically.
fn replace_file(old: &Path, new: &Path) {
    let beside = old.with_extension("new");
    std::fs::copy(new, &beside).unwrap();
    std::fs::rename(beside, old).unwrap();
}

async fn fetch_serving_certificate(client: &Client) -> Vec<u8> {
    let stream = client.tls_stream(None).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Sends HEAD on an open connection and returns the status.
async fn request_status_on(stream: &mut TlsStream<TcpStream>) -> String {
    let request = format!("HEAD {DISCOVERY} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn replaced_serving_certificate_is_used_for_new_connections() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (client, pki) = (server.admin(), server.pki());
    block_on(async {
        let before = fetch_serving_certificate(&client).await;
        let mut old = client.tls_stream(None).await.unwrap();
        assert_eq!(request_status_on(&mut old).await, "200");
        let mut watch = WatchReader::open(&client, &format!("{CONFIG_MAPS_PATH}?watch=1&resourceVersion=0")).await;
        let purpose = CertificateUsage::Serving { addresses: vec![], names: vec![] };
        let next = CertificateAuthority::open_or_create(&pki, "ca")
            .unwrap()
            .open_or_issue("next", "kube-apiserver", None, &purpose)
            .unwrap();
        // A certificate without its key is not used: the old pair stays until both files are replaced.
        replace_file(&pki.join("apiserver.crt"), &next.certificate);
        replace_file(&pki.join("apiserver.key"), &next.key);
        wait::eventually("the new certificate is used", async || match fetch_serving_certificate(&client).await {
            shown if shown != before => Ok(()),
            _ => Err("the old certificate is shown".to_owned()),
        })
        .await;
        assert_eq!(request_status_on(&mut old).await, "200");
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        assert_eq!(watch.next_event_summary().await, "ADDED a");
    });
}

#[test]
fn replaced_client_ca_applies_to_open_connections() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let other = CertificateAuthority::open_or_create(&folder.path().join("other"), "ca").unwrap();
    let CertificateFiles { certificate, key } =
        other.open_or_issue("admin", "other", Some("system:masters"), &CertificateUsage::Client).unwrap();
    let (ours, theirs) = (server.admin(), server.client_with(ClientCredentials::Certificate { certificate, key }));
    block_on(async {
        let mut old = ours.tls_stream(None).await.unwrap();
        assert_eq!(request_status_on(&mut old).await, "200");
        assert_eq!(theirs.get(NAMESPACES_PATH).await.status, 401, "their CA is not trusted yet");
        replace_file(&server.pki().join("ca.crt"), other.certificate());
        wait::eventually("clients of the new CA are authenticated", async || match theirs.get(NAMESPACES_PATH).await {
            answer if answer.status == 200 => Ok(()),
            answer => Err(answer.summary()),
        })
        .await;
        assert_eq!(ours.get(NAMESPACES_PATH).await.status, 401);
        assert_eq!(request_status_on(&mut old).await, "401", "an open connection is verified again");
    });
}

#[test]
fn invalid_ca_bundle_is_not_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let other = CertificateAuthority::open_or_create(&folder.path().join("other"), "ca").unwrap();
    let CertificateFiles { certificate, key } =
        other.open_or_issue("admin", "other", Some("system:masters"), &CertificateUsage::Client).unwrap();
    let (ours, theirs) =
        (server.admin(), server.client_with(ClientCredentials::Certificate { certificate: certificate.clone(), key }));
    block_on(async {
        // The client certificate is not a CA: in the bundle it would verify itself and whatever its key signs.
        replace_file(&server.pki().join("ca.crt"), &certificate);
        let refused = "certificate 1 (subject \"O=system:masters, CN=other\") is not a certificate authority";
        wait::eventually("the log names the rejected certificate", async || {
            let log = server.log().replace('\\', "");
            if log.contains(refused) && log.contains("keeping the former ones") { Ok(()) } else { Err(log) }
        })
        .await;
        assert_eq!(ours.get(NAMESPACES_PATH).await.status, 200);
        assert_eq!(theirs.get(NAMESPACES_PATH).await.status, 401);
    });
}

#[test]
fn clients_of_an_expired_authority_are_unauthorized() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    (authority.not_before, authority.not_after) = (rcgen::date_time_ymd(2000, 1, 1), rcgen::date_time_ymd(2020, 1, 1));
    authority.distinguished_name.push(rcgen::DnType::CommonName, "expired root");
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let expired = authority.self_signed(&authority_key).unwrap().pem();
    let mut leaf = rcgen::CertificateParams::default();
    leaf.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::from_params(&authority, &authority_key);
    let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap().pem();
    let [certificate, key, bundle] = ["leaf.crt", "leaf.key", "bundle.crt"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, leaf).unwrap();
    std::fs::write(&key, leaf_key.serialize_pem()).unwrap();
    std::fs::write(&bundle, std::fs::read_to_string(server.pki().join("ca.crt")).unwrap() + &expired).unwrap();
    let (ours, theirs) = (server.admin(), server.client_with(ClientCredentials::Certificate { certificate, key }));
    block_on(async {
        replace_file(&server.pki().join("ca.crt"), &bundle);
        wait::eventually("the log names the expired authority", async || {
            let log = server.log();
            if log.contains("expired root") && log.contains("position=2") { Ok(()) } else { Err(log) }
        })
        .await;
        assert_eq!(theirs.get(NAMESPACES_PATH).await.status, 401);
        assert_eq!(ours.get(NAMESPACES_PATH).await.status, 200, "the valid CA in the bundle still works");
    });
}
