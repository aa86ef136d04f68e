use serde_json::json;

use super::*;
use crate::envelope::Envelope;

/// 32 bytes of `k`, and 32 bytes of `o`, in base64.
const KEY: &str = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=";
const OTHER_KEY: &str = "b29vb29vb29vb29vb29vb29vb29vb29vb29vb29vb28=";

fn config(provider: &str, name: &str, secret: &str) -> Result<EncryptionConfig, EncryptionConfigError> {
    EncryptionConfig::from_value(&json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{
            "resources": ["secrets", "*.apps"],
            "providers": [{provider: {"keys": [{"name": name, "secret": secret}]}}, {"identity": {}}],
        }],
    }))
}

#[track_caller]
fn check_config(provider: &str, name: &str, secret: &str, expected: &str) {
    let shown = config(provider, name, secret).map_or_else(|error| error.to_string(), |config| format!("{config:?}"));
    assert_eq!(shown, expected);
}

#[test]
fn configuration_is_validated_without_showing_secrets() {
    check_config(
        "aescbc",
        "k1",
        KEY,
        r#"EncryptionConfig { entries: [ResourceKeys { patterns: ["secrets", "*.apps"], write_key: "aescbc:v1:k1", keys: [EncryptionKey { provider: AesCbc, name: "k1" }] }] }"#,
    );
    check_config("aesgcm", "", KEY, r#"resources[0]: key "" of aesgcm has no name"#);
    check_config("aesgcm", "k1", "!", r#"resources[0]: key "k1" of aesgcm has a secret that is not base64"#);
    check_config("secretbox", "k1", "AAAA", r#"resources[0]: key "k1" of secretbox has a secret of the wrong length"#);
    check_config(
        "rot13",
        "k1",
        KEY,
        r#"resources[0].providers: "rot13" is not one of aescbc, aesgcm, secretbox, kms, identity"#,
    );
    let wrong = EncryptionConfig::from_value(&json!({"kind": "Config"})).unwrap_err();
    assert_eq!(wrong, EncryptionConfigError::WrongKind);
}

#[test]
fn resource_patterns_match_as_in_kube_apiserver() {
    let covers = |pattern: &str, group: &str, resource: &str| {
        ResourceKeys { patterns: vec![pattern.to_owned()], write_key: String::new(), keys: Vec::new() }
            .covers(group, resource)
    };
    assert!(covers("secrets", "", "secrets"));
    assert!(!covers("secrets", "example.com", "secrets"));
    assert!(covers("deployments.apps", "apps", "deployments"));
    assert!(covers("*.apps", "apps", "deployments") && !covers("*.apps", "", "pods"));
    assert!(covers("*.", "", "pods") && !covers("*.", "apps", "deployments"));
    assert!(covers("*.*", "", "pods") && covers("*.*", "example.com", "widgets"));
}

/// Values that were sealed with [`KEY`] as a kube-apiserver does; the plain text is `{}` for each.
fn sealed(provider: &str) -> Vec<u8> {
    let secret = STANDARD.decode(KEY).unwrap();
    let mut value = format!("k8s:enc:{provider}:v1:k1:").into_bytes();
    match provider {
        "aescbc" => {
            let key = UnboundCipherKey::new(&cipher::AES_256, &secret).unwrap();
            let key = cipher::PaddedBlockEncryptingKey::cbc_pkcs7(key).unwrap();
            let mut text = b"{}".to_vec();
            let context = key.encrypt(&mut text).unwrap();
            let DecryptionContext::Iv128(iv) = context else { panic!("CBC has an IV of 128 bits") };
            value.extend_from_slice(iv.as_ref());
            value.extend(text);
        }
        "aesgcm" => {
            let key = LessSafeKey::new(UnboundKey::new(&aead::AES_256_GCM, &secret).unwrap());
            let mut text = b"{}".to_vec();
            let aad = Aad::from(b"/registry/secrets/default/a");
            key.seal_in_place_append_tag(Nonce::assume_unique_for_key([7; 12]), aad, &mut text).unwrap();
            value.extend([7; 12]);
            value.extend(text);
        }
        _ => {
            let nonce = [9; SECRETBOX_NONCE_BYTES];
            let key = XSalsa20Poly1305::new_from_slice(&secret).unwrap();
            value.extend(nonce);
            value.extend(key.encrypt(&nonce.into(), &b"{}"[..]).unwrap());
        }
    }
    value
}

fn decrypt(config: &EncryptionConfig, group: &str, value: &[u8], key: &str) -> Result<Vec<u8>, DecryptError> {
    let Envelope::Encrypted(encrypted) = Envelope::parse(value) else { panic!("it is encrypted") };
    config.decrypt(group, "secrets", &encrypted, key.as_bytes())
}

const STORAGE_KEY: &str = "/registry/secrets/default/a";

#[test]
fn write_key_is_the_first_key_of_the_first_provider() {
    let keys = |names: &[&str]| {
        let key = |name: &&str| json!({"name": name, "secret": "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="});
        json!({"keys": names.iter().map(key).collect::<Vec<_>>()})
    };
    let config = EncryptionConfig::from_value(&json!({
        "kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1", "resources": [
            {"resources": ["secrets"], "providers": [{"aescbc": keys(&["new", "old"])}, {"identity": {}}]},
            {"resources": ["configmaps"], "providers": [{"identity": {}}, {"aesgcm": keys(&["k"])}]},
            {"resources": ["*.apps"], "providers": [{"kms": {"apiVersion": "v2", "name": "vault"}}]},
        ],
    }))
    .unwrap();
    let shown = [("", "secrets"), ("", "configmaps"), ("apps", "deployments"), ("", "pods")]
        .map(|(group, resource)| config.write_key(group, resource).to_owned());
    assert_eq!(shown, ["aescbc:v1:new", "", "kms:v2:vault", ""]);
}

#[test]
fn every_cipher_opens_its_own_values() {
    for provider in ["aescbc", "aesgcm", "secretbox"] {
        let value = sealed(provider);
        let right = config(provider, "k1", KEY).unwrap();
        assert_eq!(decrypt(&right, "", &value, STORAGE_KEY).as_deref(), Ok(&b"{}"[..]), "{provider}");
        assert_eq!(decrypt(&right, "other", &value, STORAGE_KEY), Err(DecryptError::KeyNotConfigured), "{provider}");
        let renamed = config(provider, "k", KEY).unwrap();
        assert_eq!(decrypt(&renamed, "", &value, STORAGE_KEY), Err(DecryptError::KeyNotConfigured), "{provider}");
    }
}

#[test]
fn authenticated_ciphers_reject_wrong_keys_and_moved_values() {
    for provider in ["aesgcm", "secretbox"] {
        let wrong = config(provider, "k1", OTHER_KEY).unwrap();
        assert_eq!(decrypt(&wrong, "", &sealed(provider), STORAGE_KEY), Err(DecryptError::Failed), "{provider}");
    }
    let right = config("aesgcm", "k1", KEY).unwrap();
    assert_eq!(decrypt(&right, "", &sealed("aesgcm"), "/registry/secrets/default/b"), Err(DecryptError::Failed));
}

#[test]
fn short_payloads_and_kms_are_not_decrypted() {
    for provider in ["aescbc", "aesgcm", "secretbox"] {
        let right = config(provider, "k1", KEY).unwrap();
        let value = format!("k8s:enc:{provider}:v1:k1:short");
        assert_eq!(decrypt(&right, "", value.as_bytes(), STORAGE_KEY), Err(DecryptError::Failed), "{provider}");
        assert_eq!(decrypt(&right, "", b"k8s:enc:kms:v2:k1:x", STORAGE_KEY), Err(DecryptError::Kms));
    }
}

/// Values that kube-apiserver 1.36.4 stored, sealed with [`KEY`] under the name `k1`: provider, storage key, base64, content.
const RECORDED: [(&str, &str, &str, &str); 3] = [
    (
        "aescbc",
        "/registry/secrets/default/a",
        "azhzOmVuYzphZXNjYmM6djE6azE6udDSzqwhHiv5KE2DY39BoPXk6thuIwwRfX2FAMnN5fpgdObbjBJwBnrGUHE8i3xzb9RjzwxiyNhU4qp1feAQvIdOFtane6swAwzcdWCaMFOZzIu9w7igv59+hyilDiRNNQBLdhrOG1jY6+G47gTaZkc4Fc45ZrmaLxCUkjavxM3oGkroCxi/ToZ2S+cz4R3vrt18Tk0eoE0P9J5zexFnessTCjYitGhDrWmuINlZ8+LI4fal6Ei0Vhnmhkh1n5Zj",
        "v1 Secret",
    ),
    (
        "aesgcm",
        "/registry/configmaps/default/a",
        "azhzOmVuYzphZXNnY206djE6azE6vUzlG94KB/2wReGtfdA1FTQ1arB+MSqRkLtAdI6G2jxmE1sGRZobT9Q7khCXOigVWG3OIv7x8yIbftLg4YOLfOaE6H20xFDmjiwM5sZeZLrdwkHsAxcf7G+a9MIPgJTCJ/pFqzc8i2VJTNJbnUbyuA+nHgOSvlEHDrbcmH0=",
        "v1 ConfigMap",
    ),
    (
        "secretbox",
        "/registry/leases/default/a",
        "azhzOmVuYzpzZWNyZXRib3g6djE6azE6fqvh9DiahEqtJLhin87uBz/rf1EVYf//HWVR0vNy+UpVk22gcIcxKY7a+GZ5h3eIXJoyJgi+dS6crD7AIEp2r8RlmvWOYmwJhXEN0EvFntW47kQGJOrIwfPG7MACldWld+NY6XwW4F5MkVOyGY7FZeSGTBu0IxCEkfDL02Y2v1IkQKNp5EavLi+MZ3Fynjxyc2hfC4cCQW3ldMY=",
        "coordination.k8s.io/v1 Lease",
    ),
];

#[test]
fn values_of_a_real_kube_apiserver_are_decrypted() {
    for (provider, storage_key, recorded, expected) in RECORDED {
        let value = STANDARD.decode(recorded).unwrap();
        let right = config(provider, "k1", KEY).unwrap();
        let plain = decrypt(&right, "", &value, storage_key).unwrap();
        let Envelope::Object { api_version, kind, .. } = Envelope::parse(&plain) else { panic!("{provider}") };
        assert_eq!(format!("{api_version} {kind}"), expected);
    }
}
