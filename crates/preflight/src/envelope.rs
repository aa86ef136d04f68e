//! The envelope of a stored value: media type, apiVersion and kind, or the prefix of an encryption provider.
//!
//! Nothing below the envelope is decoded. Any bytes give a result; nothing panics or allocates more than the names in it.

mod cbor;

use std::borrow::Cow;

use serde::Deserialize;

/// What Kubernetes' protobuf encoding begins with.
const PROTOBUF_PREFIX: &[u8] = b"k8s\0";
/// What values that the servers encrypted begin with.
const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";
/// The self-described CBOR tag, with which Kubernetes begins its CBOR encoding.
const CBOR_PREFIX: &[u8] = &[0xd9, 0xd9, 0xf7];
/// The longest provider, scheme or key name that is taken for one.
const NAME_BYTES_MAX: usize = 1_024;

/// What a stored value says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// A plain object.
    Object {
        /// How the object is encoded.
        media_type: StoredMediaType,
        /// `v1`, `apps/v1`.
        api_version: Cow<'a, str>,
        /// The kind.
        kind: Cow<'a, str>,
    },
    /// A value that a server encrypted.
    Encrypted(EncryptedValue<'a>),
    /// Bytes in which no envelope is recognized.
    Undecodable(UndecodableReason),
}

/// The encoding of a stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoredMediaType {
    /// `application/cbor`.
    Cbor,
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// The parts of `k8s:enc:PROVIDER:SCHEME:KEY:PAYLOAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptedValue<'a> {
    /// `aescbc`, `aesgcm`, `secretbox` or `kms`.
    pub provider: &'a str,
    /// `v1` or `v2`: how the payload is laid out.
    pub scheme: &'a str,
    /// The name of the key, or of the KMS plugin.
    pub key: &'a str,
    /// Everything after the scheme, beginning with the key's name: a name with a colon in it is told apart only by
    /// comparison with the configured names.
    pub after_scheme: &'a [u8],
}

/// Why no version can be read from a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UndecodableReason {
    /// A value of no bytes.
    #[error("the value is empty")]
    Empty,
    /// None of the known beginnings.
    #[error("the value is neither JSON nor Kubernetes protobuf")]
    UnknownEncoding,
    /// It begins like JSON and is not.
    #[error("the JSON is malformed or names no apiVersion and kind")]
    MalformedJson,
    /// It begins like protobuf and is not.
    #[error("the protobuf envelope is malformed or names no apiVersion and kind")]
    MalformedProtobuf,
    /// It begins like CBOR and is not.
    #[error("the CBOR is malformed or names no apiVersion and kind")]
    MalformedCbor,
    /// It begins like an encrypted value and names no key.
    #[error("the encryption prefix is malformed")]
    MalformedEncryptionPrefix,
    /// The configured key does not decrypt it.
    #[error("the configured key does not decrypt the value")]
    DecryptionFailed,
    /// The given configuration lacks the key that the value names.
    #[error("the encryption configuration has no such key for this resource")]
    KeyNotConfigured,
}

impl StoredMediaType {
    /// The value of kube-apiserver's `--storage-media-type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cbor => "application/cbor",
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of a stored value.
    pub fn parse(value: &'a [u8]) -> Self {
        if let Some(message) = value.strip_prefix(PROTOBUF_PREFIX) {
            return parse_protobuf(message);
        }
        if let Some(rest) = value.strip_prefix(ENCRYPTED_PREFIX) {
            let malformed = Self::Undecodable(UndecodableReason::MalformedEncryptionPrefix);
            return parse_encrypted(rest).map_or(malformed, Self::Encrypted);
        }
        if let Some(map) = value.strip_prefix(CBOR_PREFIX) {
            return parse_cbor(map);
        }
        match value.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => parse_json(value),
            Some(_) => Self::Undecodable(UndecodableReason::UnknownEncoding),
            None => Self::Undecodable(UndecodableReason::Empty),
        }
    }
}

/// `runtime.Unknown` without its payload, which is skipped.
#[derive(Clone, PartialEq, prost::Message)]
struct UnknownEnvelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<ProtobufTypeMeta>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProtobufTypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

fn parse_protobuf(message: &[u8]) -> Envelope<'static> {
    match <UnknownEnvelope as prost::Message>::decode(message).map(|unknown| unknown.type_meta) {
        Ok(Some(ProtobufTypeMeta { api_version, kind })) if !api_version.is_empty() && !kind.is_empty() => {
            let media_type = StoredMediaType::Protobuf;
            Envelope::Object { media_type, api_version: api_version.into(), kind: kind.into() }
        }
        Ok(_) | Err(_) => Envelope::Undecodable(UndecodableReason::MalformedProtobuf),
    }
}

fn parse_cbor(map: &[u8]) -> Envelope<'_> {
    match cbor::type_meta(map) {
        Some([api_version, kind]) if !api_version.is_empty() && !kind.is_empty() => {
            Envelope::Object { media_type: StoredMediaType::Cbor, api_version, kind }
        }
        Some(_) | None => Envelope::Undecodable(UndecodableReason::MalformedCbor),
    }
}

#[derive(Deserialize)]
struct JsonTypeMeta<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

fn parse_json(value: &[u8]) -> Envelope<'_> {
    match serde_json::from_slice::<JsonTypeMeta<'_>>(value) {
        Ok(JsonTypeMeta { api_version, kind }) if !api_version.is_empty() && !kind.is_empty() => {
            Envelope::Object { media_type: StoredMediaType::Json, api_version, kind }
        }
        Ok(_) | Err(_) => Envelope::Undecodable(UndecodableReason::MalformedJson),
    }
}

fn parse_encrypted(rest: &[u8]) -> Option<EncryptedValue<'_>> {
    let (provider, rest) = split_name(rest)?;
    let (scheme, after_scheme) = split_name(rest)?;
    let (key, _) = split_name(after_scheme)?;
    Some(EncryptedValue { provider, scheme, key, after_scheme })
}

fn split_name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().take(NAME_BYTES_MAX).position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&bytes[..colon]).ok().filter(|name| !name.is_empty())?;
    Some((name, &bytes[colon + 1..]))
}

#[cfg(test)]
mod tests;
