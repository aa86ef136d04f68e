//! Encryption at rest: the keys of an `EncryptionConfiguration`, and decryption of single values with them.
//!
//! Formats after kube-apiserver: aescbc is IV + PKCS#7-padded CBC, aesgcm is nonce + ciphertext + tag with the storage key
//! as additional data, secretbox is nonce + NaCl secretbox. KMS is named and never called.

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{self, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crypto_secretbox::aead::Aead as _;
use crypto_secretbox::{KeyInit as _, XSalsa20Poly1305};
use serde_json::Value;

use crate::envelope::EncryptedValue;

const CBC_IV_BYTES: usize = 16;
const GCM_NONCE_BYTES: usize = aead::NONCE_LEN;
const SECRETBOX_NONCE_BYTES: usize = 24;

/// The keys of an `EncryptionConfiguration`.
#[derive(Debug)]
pub struct EncryptionConfig {
    entries: Vec<ResourceKeys>,
}

#[derive(Debug)]
struct ResourceKeys {
    /// `secrets`, `deployments.apps`, `*.apps`, `*.` or `*.*`.
    patterns: Vec<String>,
    /// Provider, scheme and name of the first key; empty if the first provider is `identity`.
    write_key: String,
    keys: Vec<EncryptionKey>,
}

struct EncryptionKey {
    provider: CipherProvider,
    name: String,
    secret: Vec<u8>,
}

/// Shows no secret.
impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionKey").field("provider", &self.provider).field("name", &self.name).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CipherProvider {
    AesCbc,
    AesGcm,
    Secretbox,
}

/// An unusable `EncryptionConfiguration`. No text contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptionConfigError {
    /// Another kind of file.
    #[error("it is not an EncryptionConfiguration of apiserver.config.k8s.io/v1")]
    WrongKind,
    /// No list of resources.
    #[error("resources: there is no list")]
    NoResources,
    /// A provider that no kube-apiserver knows.
    #[error("resources[{index}].providers: {name:?} is not one of aescbc, aesgcm, secretbox, kms, identity")]
    UnknownProvider {
        /// The index in `resources`.
        index: usize,
        /// The name as given.
        name: String,
    },
    /// A key without a name, or whose secret is not base64 of a length that the cipher has.
    #[error("resources[{index}]: key {key:?} of {provider} {problem}")]
    InvalidKey {
        /// The index in `resources`.
        index: usize,
        /// The provider.
        provider: &'static str,
        /// The key's name as given.
        key: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Why a value stays encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecryptError {
    /// Encrypted through a KMS plugin, which is not called.
    Kms,
    /// The configuration has no such key for the resource.
    KeyNotConfigured,
    /// The key is there, and does not fit.
    Failed,
}

impl CipherProvider {
    const ALL: [Self; 3] = [Self::AesCbc, Self::AesGcm, Self::Secretbox];

    const fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aescbc",
            Self::AesGcm => "aesgcm",
            Self::Secretbox => "secretbox",
        }
    }

    const fn has_key_length(self, bytes: usize) -> bool {
        match self {
            Self::AesCbc | Self::AesGcm => matches!(bytes, 16 | 24 | 32),
            Self::Secretbox => bytes == 32,
        }
    }
}

impl EncryptionConfig {
    /// Reads the file that kube-apiserver's `--encryption-provider-config` names.
    pub fn from_value(config: &Value) -> Result<Self, EncryptionConfigError> {
        if config["kind"] != "EncryptionConfiguration" || config["apiVersion"] != "apiserver.config.k8s.io/v1" {
            return Err(EncryptionConfigError::WrongKind);
        }
        let resources = config["resources"].as_array().ok_or(EncryptionConfigError::NoResources)?;
        let entries = resources.iter().enumerate().map(|(index, entry)| ResourceKeys::from_value(index, entry));
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Provider, scheme and key with which servers encrypt a resource that they write, `aescbc:v1:key1`; empty if they do
    /// not encrypt it. The key of a KMS plugin is its name.
    pub fn write_key(&self, group: &str, resource: &str) -> &str {
        self.entries.iter().find(|entry| entry.covers(group, resource)).map_or("", |entry| &entry.write_key)
    }

    /// Decrypts one value. `storage_key` is the full key, `/registry/secrets/default/a`, which aesgcm authenticates.
    pub fn decrypt(
        &self,
        group: &str,
        resource: &str,
        value: &EncryptedValue<'_>,
        storage_key: &[u8],
    ) -> Result<Vec<u8>, DecryptError> {
        if value.provider == "kms" {
            return Err(DecryptError::Kms);
        }
        let entries = self.entries.iter().filter(|entry| entry.covers(group, resource));
        let keys = entries.flat_map(|entry| &entry.keys).filter(|key| key.provider.name() == value.provider);
        let mut outcome = Err(DecryptError::KeyNotConfigured);
        for key in keys {
            let after_name = value.after_scheme.strip_prefix(key.name.as_bytes());
            let Some(payload) = after_name.and_then(|rest| rest.strip_prefix(b":")) else { continue };
            match key.open(payload, storage_key) {
                Some(plain) => return Ok(plain),
                None => outcome = Err(DecryptError::Failed),
            }
        }
        outcome
    }
}

impl ResourceKeys {
    fn from_value(index: usize, entry: &Value) -> Result<Self, EncryptionConfigError> {
        let patterns = entry["resources"].as_array().into_iter().flatten();
        let patterns = patterns.filter_map(|pattern| pattern.as_str().map(str::to_owned)).collect();
        let mut keys = Vec::new();
        let mut write_key = None;
        let providers = entry["providers"].as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
        for (name, provider) in providers {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            write_key.get_or_insert_with(|| match name.as_str() {
                "identity" => String::new(),
                "kms" => {
                    let scheme = provider["apiVersion"].as_str().unwrap_or("v1");
                    format!("kms:{scheme}:{}", text(&provider["name"]))
                }
                cipher => format!("{cipher}:v1:{}", text(&provider["keys"][0]["name"])),
            });
            if matches!(name.as_str(), "identity" | "kms") {
                continue;
            }
            let Some(known) = CipherProvider::ALL.into_iter().find(|known| known.name() == name) else {
                return Err(EncryptionConfigError::UnknownProvider { index, name: name.clone() });
            };
            for key in provider["keys"].as_array().into_iter().flatten() {
                keys.push(EncryptionKey::from_value(index, known, key)?);
            }
        }
        Ok(Self { patterns, write_key: write_key.unwrap_or_default(), keys })
    }

    fn covers(&self, group: &str, resource: &str) -> bool {
        self.patterns.iter().any(|pattern| {
            let (name, of_group) = pattern.split_once('.').unwrap_or((pattern, ""));
            pattern == "*.*" || ((name == "*" || name == resource) && of_group == group)
        })
    }
}

impl EncryptionKey {
    fn from_value(index: usize, provider: CipherProvider, key: &Value) -> Result<Self, EncryptionConfigError> {
        let name = key["name"].as_str().unwrap_or_default().to_owned();
        let invalid = |problem| {
            let (provider, key) = (provider.name(), name.clone());
            Err(EncryptionConfigError::InvalidKey { index, provider, key, problem })
        };
        if name.is_empty() {
            return invalid("has no name");
        }
        let Ok(secret) = STANDARD.decode(key["secret"].as_str().unwrap_or_default()) else {
            return invalid("has a secret that is not base64");
        };
        if !provider.has_key_length(secret.len()) {
            return invalid("has a secret of the wrong length");
        }
        Ok(Self { provider, name, secret })
    }

    fn open(&self, payload: &[u8], storage_key: &[u8]) -> Option<Vec<u8>> {
        match self.provider {
            CipherProvider::AesCbc => open_aes_cbc(&self.secret, payload),
            CipherProvider::AesGcm => open_aes_gcm(&self.secret, payload, storage_key),
            CipherProvider::Secretbox => open_secretbox(&self.secret, payload),
        }
    }
}

fn open_aes_cbc(secret: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match secret.len() {
        16 => &cipher::AES_128,
        24 => &cipher::AES_192,
        _ => &cipher::AES_256,
    };
    let (iv, sealed) = payload.split_first_chunk::<CBC_IV_BYTES>()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(algorithm, secret).ok()?).ok()?;
    let mut sealed = sealed.to_vec();
    let plain = key.decrypt(&mut sealed, DecryptionContext::Iv128(FixedLength::from(iv))).ok()?;
    Some(plain.to_vec())
}

fn open_aes_gcm(secret: &[u8], payload: &[u8], storage_key: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match secret.len() {
        16 => &aead::AES_128_GCM,
        24 => &aead::AES_192_GCM,
        _ => &aead::AES_256_GCM,
    };
    let (nonce, sealed) = payload.split_first_chunk::<GCM_NONCE_BYTES>()?;
    let key = LessSafeKey::new(UnboundKey::new(algorithm, secret).ok()?);
    let mut sealed = sealed.to_vec();
    let plain = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(storage_key), &mut sealed).ok()?;
    Some(plain.to_vec())
}

fn open_secretbox(secret: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = payload.split_first_chunk::<SECRETBOX_NONCE_BYTES>()?;
    XSalsa20Poly1305::new_from_slice(secret).ok()?.decrypt(nonce.into(), sealed).ok()
}

#[cfg(test)]
mod tests;
