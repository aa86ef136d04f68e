mod keys;
mod legacy;
mod test_vectors;
mod token_request;
mod verification;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{EcdsaKeyPair, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc";

/// 2026-01-01T00:00:00Z, in Unix seconds.
const NOW: i64 = 1_767_225_600;

fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An in-memory set of bound objects.
#[derive(Clone, Default)]
struct FakeBoundObjects(BTreeMap<(BoundObjectKind, String, String), Value>);

impl FakeBoundObjects {
    /// Contains the account dev/builder, one of its pods, the pod's node, and a secret.
    fn new() -> Self {
        let mut cluster = Self::default();
        cluster.put(BoundObjectKind::ServiceAccount, "dev", "builder", json!({"metadata": {"uid": "sa-uid"}}));
        let spec = json!({"serviceAccountName": "builder", "nodeName": "n1"});
        cluster.put(BoundObjectKind::Pod, "dev", "p1", json!({"metadata": {"uid": "pod-uid"}, "spec": spec}));
        cluster.put(BoundObjectKind::Node, "", "n1", json!({"metadata": {"uid": "node-uid"}}));
        cluster.put(BoundObjectKind::Secret, "dev", "s1", json!({"metadata": {"uid": "secret-uid"}}));
        cluster
    }

    fn put(&mut self, kind: BoundObjectKind, namespace: &str, name: &str, object: Value) {
        self.0.insert((kind, namespace.to_owned(), name.to_owned()), object);
    }

    fn remove(&mut self, kind: BoundObjectKind, namespace: &str, name: &str) {
        self.0.remove(&(kind, namespace.to_owned(), name.to_owned())).unwrap();
    }

    fn metadata_mut(&mut self, kind: BoundObjectKind, namespace: &str, name: &str) -> &mut Value {
        &mut self.0.get_mut(&(kind, namespace.to_owned(), name.to_owned())).unwrap()["metadata"]
    }
}

impl BoundObjects for FakeBoundObjects {
    fn get_json(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>> {
        let object = self.0.get(&(kind, namespace.to_owned(), name.to_owned()))?;
        Some(object.to_string().into_bytes().into())
    }
}

fn encode_pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> = body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn ecdsa_pem(algorithm: &'static aws_lc_rs::signature::EcdsaSigningAlgorithm) -> String {
    encode_pem("PRIVATE KEY", EcdsaKeyPair::generate(algorithm).unwrap().to_pkcs8v1().unwrap().as_ref())
}

/// The key that the tests sign with.
fn key_pem() -> &'static str {
    static KEY: OnceLock<String> = OnceLock::new();
    KEY.get_or_init(|| ecdsa_pem(&aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING))
}

fn rsa_pem() -> &'static str {
    static KEY: OnceLock<String> = OnceLock::new();
    KEY.get_or_init(|| {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        encode_pem("PRIVATE KEY", AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).unwrap().as_ref())
    })
}

fn signing_key() -> SigningKey {
    SigningKey::from_pem(key_pem()).unwrap()
}

fn verifier() -> TokenVerifier {
    TokenVerifier::new(vec![ISSUER.to_owned()], vec![ISSUER.to_owned()], VerifyingKey::all_from_pem(key_pem()).unwrap())
}

fn issuer() -> TokenIssuer {
    let (name, audiences) = (ISSUER.to_owned(), vec![ISSUER.to_owned()]);
    TokenIssuer {
        issuer: name,
        signing_key: signing_key(),
        audiences,
        max_expiration_seconds: None,
        extend_expiration: true,
    }
}

/// Issues a token for dev/builder.
fn issue_token(spec: &Value, cluster: &FakeBoundObjects) -> String {
    let body = json!({"spec": spec}).to_string();
    let request =
        TokenRequest { namespace: "dev", name: "builder", body: body.as_bytes(), now: timestamp(NOW), random: [7; 16] };
    let issued = issuer().issue(&request, cluster).unwrap();
    let response: Value = serde_json::from_slice(&issued.body).unwrap();
    response["status"]["token"].as_str().unwrap().to_owned()
}

/// Decodes a token's claims without verifying the signature.
fn claims_of(token: &str) -> Value {
    let payload = jwt::parse(token).unwrap().payload;
    serde_json::from_slice(&payload).unwrap()
}
