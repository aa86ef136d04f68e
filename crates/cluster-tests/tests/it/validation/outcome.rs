//! What a server made of a case, in a form that is compared and recorded.

use std::collections::BTreeSet;
use std::fmt;

use cluster_tests::client::FullResponse;
use serde_json::{Map, Value};

use super::mutation::child;

/// Longer messages are recorded as their beginning and a hash of the whole.
const RECORDED_BYTES_MAX: usize = 300;
/// A run of letters at least this long is written as its length.
const RUN_MIN: usize = 40;
/// Set by every server for itself.
const SERVER_METADATA: [&str; 4] = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];
/// Chosen by the server from a range.
const ALLOCATED: [&str; 5] = ["clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "token"];
/// Lists whose order kube-apiserver takes from a map.
const UNORDERED: [&str; 2] = ["resourceRules", "nonResourceRules"];
/// `11111111-2222-3333-4444-555555555555`
const IDENTITY_LENGTH: usize = 36;
/// `2026-01-02T03:04:05Z`
const TIME_LENGTH: usize = 20;
/// Before the hash of the client's certificate, which is another in every run.
const CREDENTIAL_PREFIX: &str = "X509SHA256=";
/// Letters that the server appends to `generateName`.
const GENERATED_SUFFIX_LENGTH: usize = 5;

/// A response without what differs from run to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// How the object in the response differs from the one that was sent.
    Accepted {
        changes: String,
    },
    Refused {
        code: u16,
        reason: String,
        causes: Vec<String>,
        message: String,
    },
}

/// How two outcomes differ, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// Both accept; defaults or other server-set fields differ.
    Object,
    Message,
    /// Status code, reason, or the fields and reasons of the causes.
    Causes,
    FalseRefusal,
    FalseAccept,
}

impl Difference {
    pub(crate) const ALL: [Difference; 5] = [
        Difference::FalseAccept,
        Difference::FalseRefusal,
        Difference::Causes,
        Difference::Message,
        Difference::Object,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Difference::Object => "object",
            Difference::Message => "message",
            Difference::Causes => "causes",
            Difference::FalseRefusal => "false-refusal",
            Difference::FalseAccept => "false-accept",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Difference> {
        Difference::ALL.into_iter().find(|difference| difference.word() == word)
    }
}

impl Outcome {
    pub(crate) fn of_response(sent: &Value, response: &FullResponse) -> Outcome {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        if response.status.is_success() {
            return Outcome::Accepted { changes: changes_between(sent, &body) };
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut message = text(&body["message"]);
        let mut causes = Vec::new();
        for cause in body["details"]["causes"].as_array().into_iter().flatten() {
            causes.push(format!("{} {}", text(&cause["reason"]), text(&cause["field"])));
            let of_cause = text(&cause["message"]);
            if !message.contains(&of_cause) {
                message += &format!("; cause: {of_cause}");
            }
        }
        // Real servers repeat a cause once for each layer that finds it.
        causes.sort();
        causes.dedup();
        let message = collapse_runs(&mask_message(sent, &message));
        Outcome::Refused { code: response.status.as_u16(), reason: text(&body["reason"]), causes, message }
    }

    /// The worst difference; none if the outcomes agree.
    pub(crate) fn difference_from(&self, real: &Outcome) -> Option<Difference> {
        let same_refusal = |(code, reason, causes): (&u16, &String, &Vec<String>),
                            other: (&u16, &String, &Vec<String>)| {
            code == other.0 && reason == other.1 && causes == other.2
        };
        match (self, real) {
            (Outcome::Accepted { changes }, Outcome::Accepted { changes: expected }) => {
                (changes != expected).then_some(Difference::Object)
            }
            (Outcome::Accepted { .. }, Outcome::Refused { .. }) => Some(Difference::FalseAccept),
            (Outcome::Refused { .. }, Outcome::Accepted { .. }) => Some(Difference::FalseRefusal),
            (
                Outcome::Refused { code, reason, causes, message },
                Outcome::Refused { code: code2, reason: reason2, causes: causes2, message: expected },
            ) => {
                if same_refusal((code, reason, causes), (code2, reason2, causes2)) {
                    (message != expected).then_some(Difference::Message)
                } else {
                    Some(Difference::Causes)
                }
            }
        }
    }

    /// The outcome as it is recorded: with a long message cut.
    pub(crate) fn cut(self) -> Outcome {
        match self {
            Outcome::Refused { code, reason, causes, message } => {
                Outcome::Refused { code, reason, causes, message: cut(&message) }
            }
            accepted @ Outcome::Accepted { .. } => accepted,
        }
    }

    /// True if the server did not respond.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Outcome::Refused { code: 0, .. })
    }

    /// True if the response names several causes, whose order may come from a map.
    pub(crate) fn has_several_causes(&self) -> bool {
        matches!(self, Outcome::Refused { causes, .. } if causes.len() > 1)
    }

    /// Reads the form that `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Outcome> {
        let mut parts = text.splitn(4, '\t');
        let first = parts.next()?;
        if first == "ok" {
            return Some(Outcome::Accepted { changes: parts.next().unwrap_or_default().to_owned() });
        }
        let (reason, causes) = (parts.next()?.to_owned(), parts.next()?);
        let causes = causes.split(", ").filter(|cause| !cause.is_empty()).map(str::to_owned).collect();
        let message = parts.next()?.replace("\\n", "\n").replace("\\t", "\t");
        Some(Outcome::Refused { code: first.parse().ok()?, reason, causes, message })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Accepted { changes } => write!(f, "ok\t{changes}"),
            Outcome::Refused { code, reason, causes, message } => {
                let message = message.replace('\n', "\\n").replace('\t', "\\t");
                write!(f, "{code}\t{reason}\t{}\t{message}", causes.join(", "))
            }
        }
    }
}

/// The fields that the server added, changed or removed, sorted by pointer.
fn changes_between(sent: &Value, received: &Value) -> String {
    let mut entries = Vec::new();
    add_changes("", &without_server_metadata(sent), &without_server_metadata(received), &mut entries);
    entries.join(" ; ")
}

fn without_server_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        SERVER_METADATA.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    object
}

fn add_changes(pointer: &str, sent: &Value, received: &Value, entries: &mut Vec<String>) {
    match (sent, received) {
        (Value::Object(sent), Value::Object(received)) => {
            for key in sent.keys().chain(received.keys()).collect::<BTreeSet<_>>() {
                let pointer = child(pointer, key);
                match (non_null(sent, key), non_null(received, key)) {
                    (Some(sent), Some(received)) => add_changes(&pointer, sent, received, entries),
                    (None, Some(received)) => entries.push(entry(&pointer, key, received)),
                    (Some(_), None) => entries.push(format!("-{pointer}")),
                    (None, None) => (),
                }
            }
        }
        (Value::Array(sent), Value::Array(received)) if sent.len() == received.len() => {
            for (index, (sent, received)) in sent.iter().zip(received).enumerate() {
                add_changes(&format!("{pointer}/{index}"), sent, received, entries);
            }
        }
        _ if sent == received => (),
        _ => entries.push(entry(pointer, pointer.rsplit('/').next().unwrap_or_default(), received)),
    }
}

/// Null is the same as absent for every client.
fn non_null<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn entry(pointer: &str, key: &str, received: &Value) -> String {
    if pointer == "/metadata/name" {
        return format!("{pointer}=<generated>");
    }
    format!("{pointer}={}", mask_value(key, received))
}

/// The value with sorted keys, without times, identities and what was allocated.
fn mask_value(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let present = fields.iter().filter(|(_, value)| !value.is_null());
            let masked: Map<String, Value> =
                present.map(|(key, value)| (key.clone(), mask_value(key, value))).collect();
            masked.into()
        }
        Value::Array(items) if ALLOCATED.contains(&key) => vec!["<allocated>"; items.len()].into(),
        Value::Array(items) => {
            let mut masked: Vec<Value> = items.iter().map(|item| mask_value("", item)).collect();
            if UNORDERED.contains(&key) {
                masked.sort_by_key(Value::to_string);
            }
            masked.into()
        }
        Value::String(text) if text.is_empty() || text == "None" => value.clone(),
        Value::Number(_) | Value::String(_) if ALLOCATED.contains(&key) => "<allocated>".into(),
        Value::String(text) if is_time(text) => "<time>".into(),
        Value::String(text) if is_identity(text) => "<uid>".into(),
        Value::String(text) if text.starts_with(CREDENTIAL_PREFIX) => "<credential>".into(),
        Value::String(text) => collapse_runs(text).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= TIME_LENGTH && bytes[4] == b'-' && bytes[10] == b'T' && bytes.ends_with(b"Z")
}

fn is_identity(text: &str) -> bool {
    text.len() == IDENTITY_LENGTH
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The message without times, identities and generated names.
fn mask_message(sent: &Value, message: &str) -> String {
    let mut masked = String::new();
    let mut rest = message;
    while let Some(next) = rest.chars().next() {
        if rest.get(..IDENTITY_LENGTH).is_some_and(is_identity) {
            masked += "<uid>";
            rest = &rest[IDENTITY_LENGTH..];
        } else if rest.get(..TIME_LENGTH).is_some_and(is_time) {
            masked += "<time>";
            rest = &rest[TIME_LENGTH..];
        } else {
            masked.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    let metadata = &sent["metadata"];
    match metadata["generateName"].as_str() {
        Some(prefix) if metadata["name"].as_str().is_none_or(str::is_empty) && !prefix.is_empty() => {
            mask_generated_name(prefix, &masked)
        }
        _ => masked,
    }
}

fn mask_generated_name(prefix: &str, message: &str) -> String {
    let start = format!("\"{prefix}");
    let mut parts = message.split(&start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |masked, part| match part.get(..GENERATED_SUFFIX_LENGTH) {
        Some(suffix) if suffix.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            masked + &start + "<generated>" + &part[GENERATED_SUFFIX_LENGTH..]
        }
        _ => masked + &start + part,
    })
}

/// Writes long runs of the letter that [`super::mutation::Change::SetLong`] repeats as a count.
fn collapse_runs(text: &str) -> String {
    let mut short = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(&"a".repeat(RUN_MIN)) {
        let run = rest[start..].bytes().take_while(|byte| *byte == b'a').count();
        short += &format!("{}<a*{run}>", &rest[..start]);
        rest = &rest[start + run..];
    }
    short + rest
}

fn cut(text: &str) -> String {
    if text.len() <= RECORDED_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=RECORDED_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}<{} bytes, hash {:08x}>", &text[..end], text.len(), hash(text) as u32)
}

/// FNV-1a: stable over releases of the compiler, unlike the hash of the standard library.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_name_added_changed_and_removed_fields() {
        let sent = json!({"metadata": {"generateName": "a-", "uid": "1"}, "spec": {"a": 1, "b": null, "c": [1, {}]}});
        let received = json!({
            "metadata": {"generateName": "a-", "name": "a-12345", "creationTimestamp": "now"},
            "spec": {"c": [1, {"d": "2026-01-02T03:04:05Z"}], "clusterIP": "10.0.0.1"},
        });
        assert_eq!(
            changes_between(&sent, &received),
            r#"/metadata/name=<generated> ; -/spec/a ; /spec/c/1/d="<time>" ; /spec/clusterIP="<allocated>""#
        );
    }

    #[test]
    fn message_is_masked_and_cut() {
        let sent = json!({"metadata": {"generateName": "base-"}});
        let message = format!(r#"pods "base-x1y2z": 11111111-2222-3333-4444-555555555555 {}"#, "a".repeat(50));
        assert_eq!(collapse_runs(&mask_message(&sent, &message)), r#"pods "base-<generated>": <uid> <a*50>"#);
        let twice = r#"Pod "base-x1y2z" is invalid: metadata.name: Invalid value: "base-x1y2z": bad"#;
        let masked = r#"Pod "base-<generated>" is invalid: metadata.name: Invalid value: "base-<generated>": bad"#;
        assert_eq!(mask_message(&sent, twice), masked);
        assert!(cut(&"ab".repeat(400)).ends_with("ab<800 bytes, hash 70d07045>"), "{}", cut(&"ab".repeat(400)));
    }

    #[test]
    fn outcome_text_round_trips() {
        for outcome in [
            Outcome::Accepted { changes: "#3".to_owned() },
            Outcome::Refused { code: 404, reason: "NotFound".to_owned(), causes: Vec::new(), message: String::new() },
            Outcome::Refused {
                code: 422,
                reason: "Invalid".to_owned(),
                causes: vec!["FieldValueInvalid a".to_owned(), "FieldValueRequired b[0]".to_owned()],
                message: "two\nlines\tand a tab".to_owned(),
            },
        ] {
            assert_eq!(Outcome::parse(&outcome.to_string()), Some(outcome));
        }
    }

    #[test]
    fn difference_is_the_worst_one() {
        let refused = |causes: &str, message: &str| Outcome::Refused {
            code: 422,
            reason: "Invalid".to_owned(),
            causes: vec![causes.to_owned()],
            message: message.to_owned(),
        };
        let accepted = |changes: &str| Outcome::Accepted { changes: changes.to_owned() };
        for (ours, real, expected) in [
            (accepted("a"), accepted("a"), None),
            (accepted("a"), accepted("b"), Some(Difference::Object)),
            (accepted("a"), refused("c", "m"), Some(Difference::FalseAccept)),
            (refused("c", "m"), accepted("a"), Some(Difference::FalseRefusal)),
            (refused("c", "m"), refused("d", "n"), Some(Difference::Causes)),
            (refused("c", "m"), refused("c", "n"), Some(Difference::Message)),
            (refused("c", "m"), refused("c", "m"), None),
        ] {
            assert_eq!(ours.difference_from(&real), expected, "{ours} and {real}");
        }
    }
}
