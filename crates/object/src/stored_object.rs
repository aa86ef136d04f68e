//! An object as stored and cached: encoded JSON and the metadata that selection needs.
//!
//! Storage holds an object without its resourceVersion, because that is the revision of the write itself. On read, the
//! revision is inserted into the bytes once; get, list and watch responses share these bytes without parsing them
//! again.

mod form_memo;
mod type_fields;
mod valid_json;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::json::JsonObject;
use api::wire::null_is_default;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

pub use form_memo::FormMemo;
use type_fields::TypeFields;
use valid_json::ValidJson;

/// An encoded object with its resourceVersion, and the metadata that selectors need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The object as JSON, with resourceVersion, without a trailing newline.
    pub body: Bytes,
    /// Revision of the write, equal to the resourceVersion; 0 for a dry run.
    pub revision: u64,
    /// `apiVersion` of the stored object.
    pub api_version: Arc<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// `metadata.uid`; empty if absent.
    pub uid: Box<str>,
    /// Labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// What is known about [`Self::body`] under the schema of a custom resource.
    pub form: FormMemo,
    /// Where [`Self::body`] has `apiVersion` and `kind`; `None` if unknown.
    type_fields: Option<TypeFields>,
}

/// Why stored bytes cannot be decoded. Such an object is neither skipped nor overwritten: every read of it fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredObjectError {
    /// Kubernetes' protobuf encoding.
    #[error(
        "it is stored as protobuf; run the servers that share this storage with --storage-media-type=application/json"
    )]
    Protobuf,
    /// An encryption provider's envelope.
    #[error("it is encrypted at rest")]
    Encrypted,
    /// Invalid JSON, or a JSON value other than an object.
    #[error("it is no JSON object: {reason}")]
    NotAnObject {
        /// Parser error with its position.
        reason: Box<str>,
    },
}

impl StoredObject {
    /// Decodes a stored value and inserts its revision as resourceVersion, unless it is 0, which means a dry run, and the
    /// value has none.
    pub fn from_storage(value: &[u8], revision: u64) -> Result<Self, StoredObjectError> {
        let value = value.trim_ascii_end();
        reject_other_encodings(value)?;
        let ValidJson = parse_object(value)?;
        let envelope: StoredEnvelope<'_> = parse_object(value)?;
        let metadata_text = envelope.metadata.map_or("{}", RawValue::get);
        let metadata: StoredMetadata<'_> = parse_object(metadata_text.as_bytes())?;
        let type_fields = envelope.type_fields(value);
        let (body, type_fields) = match envelope.metadata {
            _ if revision == 0 && !metadata.has_resource_version => (Bytes::copy_from_slice(value), type_fields),
            Some(raw) if !metadata.has_resource_version => {
                let (body, position) = insert_resource_version(value, raw.get(), revision);
                let inserted = body.len() - value.len();
                (body, type_fields.and_then(|fields| fields.after_insertion(position, inserted)))
            }
            _ => {
                let body = set_resource_version(value, revision)?;
                let type_fields = find_type_fields(&body)?;
                (body, type_fields)
            }
        };
        Ok(Self {
            body,
            revision,
            api_version: text_of(envelope.api_version)?.into(),
            name: metadata.name.into(),
            namespace: metadata.namespace.into(),
            uid: metadata.uid.into(),
            labels: metadata.labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
            form: FormMemo::default(),
            type_fields,
        })
    }

    /// The object with another resourceVersion, such as the revision of its deletion in a watch event.
    pub fn with_revision(&self, revision: u64) -> Self {
        let body = set_resource_version(&self.body, revision).expect("the bytes were parsed when they were read");
        let type_fields = find_type_fields(&body).expect("the bytes were just encoded");
        Self { body, revision, form: FormMemo::default(), type_fields, ..self.clone() }
    }

    /// [`Self::body`] without `apiVersion` and `kind`, in parts; some may be empty.
    pub fn body_without_type(&self) -> [Bytes; 3] {
        if let Some(fields) = &self.type_fields {
            return fields.cut_from(&self.body);
        }
        let mut object = self.to_object();
        remove_type(&mut object);
        [api::json::to_go_json(&object).into(), Bytes::new(), Bytes::new()]
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(name, _)| name.as_ref().cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Parses the whole object.
    pub fn to_object(&self) -> JsonObject {
        serde_json::from_slice(&self.body).expect("the bytes were parsed when they were read")
    }

    /// Parses the metadata alone: an object with the field `metadata`.
    pub fn to_metadata_object(&self) -> JsonObject {
        let envelope: StoredEnvelope<'_> = parse_object(&self.body).expect("the bytes were parsed when they were read");
        let metadata = envelope.metadata.map(|raw| serde_json::from_str(raw.get()).unwrap_or_default());
        metadata.map(|metadata| ("metadata".to_owned(), metadata)).into_iter().collect()
    }

    /// Approximate memory in bytes, for the size accounting of caches.
    pub fn memory_bytes(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len() + 32).sum();
        self.body.len() + labels + self.name.len() + self.namespace.len() + self.uid.len() + size_of::<Self>()
    }
}

/// Removes `apiVersion` and `kind`, which kube-apiserver omits from list items of built-in kinds.
pub fn remove_type(object: &mut JsonObject) {
    object.remove("apiVersion");
    object.remove("kind");
}

#[derive(Deserialize)]
struct StoredEnvelope<'a> {
    #[serde(rename = "apiVersion", borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl StoredEnvelope<'_> {
    fn type_fields(&self, body: &[u8]) -> Option<TypeFields> {
        TypeFields::find(body, [self.api_version?.get(), self.kind?.get()])
    }
}

fn find_type_fields(body: &[u8]) -> Result<Option<TypeFields>, StoredObjectError> {
    let envelope: StoredEnvelope<'_> = parse_object(body)?;
    Ok(envelope.type_fields(body))
}

/// Parses a string; empty if absent.
fn text_of(value: Option<&RawValue>) -> Result<Cow<'_, str>, StoredObjectError> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let Some(value) = value else { return Ok(Cow::Borrowed("")) };
    let text: Text<'_> = serde_json::from_str(value.get()).map_err(not_an_object)?;
    Ok(text.0)
}

#[derive(Deserialize)]
struct StoredMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(default, deserialize_with = "null_is_default")]
    labels: BTreeMap<String, String>,
    #[serde(rename = "resourceVersion", default, deserialize_with = "is_present")]
    has_resource_version: bool,
}

/// True for any value; serde calls it only if the field is present, including null.
fn is_present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(from).map(|_| true)
}

fn reject_other_encodings(value: &[u8]) -> Result<(), StoredObjectError> {
    if value.starts_with(b"k8s\0") {
        return Err(StoredObjectError::Protobuf);
    }
    if value.starts_with(b"k8s:enc:") {
        return Err(StoredObjectError::Encrypted);
    }
    Ok(())
}

/// Parses a JSON object. The brace is checked first, because serde also reads a struct from an array.
fn parse_object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, StoredObjectError> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(not_an_object("it does not begin with a brace"));
    }
    serde_json::from_slice(text).map_err(not_an_object)
}

fn not_an_object(reason: impl std::fmt::Display) -> StoredObjectError {
    StoredObjectError::NotAnObject { reason: reason.to_string().into() }
}

/// Inserts the resourceVersion as first field of the metadata; also returns the position. `metadata` must be a subslice
/// of `value`.
fn insert_resource_version(value: &[u8], metadata: &str, revision: u64) -> (Bytes, usize) {
    let after_brace = metadata.as_ptr().addr() - value.as_ptr().addr() + 1;
    let is_empty = metadata[1..].trim_ascii_start().starts_with('}');
    let mut body = BytesMut::with_capacity(value.len() + r#""resourceVersion":"","#.len() + 20);
    body.put_slice(&value[..after_brace]);
    body.put_slice(format!(r#""resourceVersion":"{revision}""#).as_bytes());
    if !is_empty {
        body.put_u8(b',');
    }
    body.put_slice(&value[after_brace..]);
    (body.freeze(), after_brace)
}

/// Parses and re-encodes the object; needed if metadata is absent or already has a resourceVersion.
fn set_resource_version(value: &[u8], revision: u64) -> Result<Bytes, StoredObjectError> {
    let mut object: serde_json::Map<String, serde_json::Value> = parse_object(value)?;
    let metadata = object.entry("metadata").or_insert_with(|| serde_json::json!({}));
    metadata["resourceVersion"] = revision.to_string().into();
    Ok(api::json::to_go_json(&object).into())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[test]
    fn metadata_object_has_the_metadata_of_the_whole_object() {
        for value in [r#"{"kind":"A","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"b":1}}"#, r#"{"kind":"A"}"#] {
            let stored = StoredObject::from_storage(value.as_bytes(), 7).expect("test value is an object");
            let mut expected = stored.to_object();
            expected.retain(|name, _| name == "metadata");
            assert_eq!(stored.to_metadata_object(), expected);
        }
    }

    #[track_caller]
    fn check(value: &str, expected: &Expect) {
        let shown = match StoredObject::from_storage(value.as_bytes(), 7) {
            Ok(stored) => String::from_utf8(stored.body.to_vec()).expect("JSON is UTF-8"),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn from_storage_inserts_resource_version() {
        check(
            "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"},\"spec\":{}}\n",
            &expect![[r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a"},"spec":{}}"#]],
        );
        check(r#"{"metadata": { } }"#, &expect![[r#"{"metadata": {"resourceVersion":"7" } }"#]]);
    }

    #[test]
    fn body_without_type_has_all_other_fields() {
        for value in [
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"kind":"x"}}"#,
            r#"{"apiVersion":"v1","data":{"kind":"x"},"kind":"ConfigMap","metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"v1","data":{},"kind":"ConfigMap","metadata":{"resourceVersion":"3"}}"#,
            r#"{"metadata":{"name":"a"},"apiVersion":"v1","kind":"Pod","spec":{}}"#,
            r#"{"metadata":{"name":"a"},"apiVersion":"v1","kind":"Pod"}"#,
            r#"{"metadata":{}, "apiVersion": "v1", "kind": "Pod", "spec": {}}"#,
            r#"{"\u006bind":"Pod","apiVersion":"v1","metadata":{}}"#,
            r#"{"metadata":{}}"#,
        ] {
            for revision in [0, 7] {
                let stored = StoredObject::from_storage(value.as_bytes(), revision).unwrap();
                for stored in [stored.with_revision(123_456), stored] {
                    let mut expected = stored.to_object();
                    remove_type(&mut expected);
                    let found: JsonObject = serde_json::from_slice(&stored.body_without_type().concat()).unwrap();
                    assert_eq!(found, expected, "{value}");
                }
            }
        }
    }

    #[test]
    fn body_without_type_shares_bytes_of_compact_objects() {
        for value in [
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"v1","data":{},"kind":"ConfigMap","metadata":{"name":"a"}}"#,
        ] {
            let stored = StoredObject::from_storage(value.as_bytes(), 7).unwrap();
            let shared = stored.body.as_ptr_range();
            assert!(stored.body_without_type().iter().all(|part| shared.contains(&part.as_ptr())), "{value}");
        }
    }

    #[test]
    fn from_storage_at_revision_zero_adds_no_resource_version() {
        let value = r#"{"metadata":{"name":"a"}}"#;
        assert_eq!(StoredObject::from_storage(value.as_bytes(), 0).unwrap().body, value);
    }

    #[test]
    fn from_storage_replaces_stored_resource_version() {
        check(
            r#"{"metadata":{"name":"a","resourceVersion":"3"}}"#,
            &expect![[r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#]],
        );
        check(r#"{"kind":"Pod"}"#, &expect![[r#"{"kind":"Pod","metadata":{"resourceVersion":"7"}}"#]]);
    }

    #[test]
    fn from_storage_rejects_other_encodings() {
        check(
            "k8s\0\n\x0c",
            &expect![
                "error: it is stored as protobuf; run the servers that share this storage with --storage-media-type=application/json"
            ],
        );
        check("k8s:enc:aescbc:v1:", &expect!["error: it is encrypted at rest"]);
        check("[]", &expect!["error: it is no JSON object: it does not begin with a brace"]);
        check("{\"metadata\":[]}", &expect!["error: it is no JSON object: it does not begin with a brace"]);
        check(&"[".repeat(100_000), &expect!["error: it is no JSON object: it does not begin with a brace"]);
    }

    /// Decoding checks the whole object, so that `to_value` cannot fail on parts outside the metadata.
    #[test]
    fn from_storage_rejects_values_that_would_not_parse() {
        let in_spec = |text: &str| format!(r#"{{"metadata":{{}},"spec":{text}}}"#);
        check(
            &in_spec(r#""\ud800""#),
            &expect!["error: it is no JSON object: unexpected end of hex escape at line 1 column 30"],
        );
        check(&in_spec("1e400"), &expect!["error: it is no JSON object: number out of range at line 1 column 27"]);
        check(
            &in_spec(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))),
            &expect!["error: it is no JSON object: recursion limit exceeded at line 1 column 149"],
        );
        let not_text = StoredObject::from_storage(b"{\"metadata\":{},\"spec\":\"\xff\"}", 7);
        expect!["it is no JSON object: invalid unicode code point at line 1 column 24"]
            .assert_eq(&not_text.unwrap_err().to_string());
    }

    #[test]
    fn from_storage_replaces_null_resource_version() {
        check(r#"{"metadata":{"resourceVersion":null}}"#, &expect![[r#"{"metadata":{"resourceVersion":"7"}}"#]]);
    }

    #[test]
    fn label_returns_value_by_key() {
        let stored =
            StoredObject::from_storage(br#"{"metadata":{"labels":{"b":"2","a":"1"},"namespace":"n"}}"#, 1).unwrap();
        assert_eq!((stored.label("a"), stored.label("b"), stored.label("c")), (Some("1"), Some("2"), None));
        assert_eq!(&*stored.namespace, "n");
        assert!(StoredObject::from_storage(br#"{"metadata":{"labels":null}}"#, 1).unwrap().labels.is_empty());
    }
}
