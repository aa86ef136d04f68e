//! Server-side changes to metadata and status before an object is stored.
//!
//! This module does not check the syntax of names and labels; [`crate::validate`] runs on its result.

use std::cmp::Ordering;
use std::collections::HashSet;

use api::FieldError;
use api::time::Time;
use serde_json::{Map, Value};

use crate::rejection::{Rejection, RejectionSubject};
use crate::rules::{GenerationRule, KindRules, StatusSubresource};
use crate::unstructured::{self, get, metadata_mut, metadata_string};

/// Values that the server assigns to a new object.
#[derive(Clone, Copy, Debug)]
pub struct CreateContext<'a> {
    /// Creation time.
    pub now: Time,
    /// New unique uid.
    pub uid: &'a str,
    /// Random number for the suffix of a generated name.
    pub random: u64,
}

/// Bytes of `generateName` that are used; the suffix completes a DNS label.
const GENERATED_BASE_LENGTH_MAX: usize = 63 - GENERATED_SUFFIX_LENGTH;
const GENERATED_SUFFIX_LENGTH: usize = 5;
/// Kubernetes' alphabet: without vowels, so that no suffix spells a word, and without characters that look alike.
const GENERATED_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Rejects an object to be created that names a revision.
pub fn reject_resource_version(object: &Map<String, Value>) -> Result<(), Rejection> {
    if metadata_string(object, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0) {
        return Err(Rejection::Unclassified("resourceVersion should not be set on objects to be created".to_owned()));
    }
    Ok(())
}

/// Prepares an object for creation: sets name, uid, creation time and generation, and drops a status that has a
/// subresource.
pub fn prepare_create(object: &mut Map<String, Value>, rules: &KindRules, context: &CreateContext<'_>) {
    if rules.status != StatusSubresource::None {
        object.remove("status");
    }
    let metadata = metadata_mut(object);
    for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    metadata.insert("creationTimestamp".to_owned(), context.now.to_string().into());
    metadata.insert("uid".to_owned(), context.uid.into());
    if rules.generation != GenerationRule::Absent {
        metadata.insert("generation".to_owned(), 1.into());
    }
    let base = unstructured::text(metadata, &["generateName"]);
    if unstructured::text(metadata, &["name"]).is_empty() && !base.is_empty() {
        let name = generate_name(base, context.random);
        metadata.insert("name".to_owned(), name.into());
    }
}

/// Appends a random suffix to `base`. Callers retry with another number if the name is taken.
pub fn generate_name(base: &str, random: u64) -> String {
    let length = base.floor_char_boundary(GENERATED_BASE_LENGTH_MAX);
    let mut name = base[..length].to_owned();
    let mut rest = random;
    for _ in 0..GENERATED_SUFFIX_LENGTH {
        let letters = GENERATED_ALPHABET.len() as u64;
        let at = usize::try_from(rest % letters).expect("a remainder of 27 fits");
        name.push(char::from(GENERATED_ALPHABET[at]));
        rest /= letters;
    }
    name
}

/// Prepares an update from a PUT or patch: keeps server-owned fields, keeps a status that has a subresource, and
/// increments the generation if the desired state changed.
///
/// `old` must carry its resourceVersion; `new` ends up with the same one. Fails if `new` has another resourceVersion.
pub fn prepare_update(
    old: &Map<String, Value>,
    new: &mut Map<String, Value>,
    rules: &KindRules,
) -> Result<(), Rejection> {
    check_optimistic_lock(old, new, rules)?;
    if rules.status != StatusSubresource::None {
        unstructured::set_or_remove(new, "status", old.get("status").cloned());
    }
    keep_system_fields(old, new);
    let has_changed = match rules.generation {
        GenerationRule::Absent | GenerationRule::Constant => false,
        GenerationRule::Counted => !has_same_desired_state(old, new, rules),
        GenerationRule::CountedWithAnnotations => {
            let annotations = ["metadata", "annotations"];
            !has_same_desired_state(old, new, rules) || get(old, &annotations) != get(new, &annotations)
        }
        GenerationRule::CountedWithLabels => {
            let labels = ["metadata", "labels"];
            !has_same_desired_state(old, new, rules) || get(old, &labels) != get(new, &labels)
        }
    };
    if has_changed {
        let generation = unstructured::integer(old, &["metadata", "generation"]).unwrap_or_default();
        metadata_mut(new).insert("generation".to_owned(), generation.saturating_add(1).into());
    }
    Ok(())
}

/// Prepares an update of the `status` subresource: everything but the status, and the metadata that
/// [`StatusSubresource`] allows, comes from `old`.
///
/// `managedFields` stay as in `new`: they were recorded before.
pub fn prepare_status_update(
    old: &Map<String, Value>,
    new: &mut Map<String, Value>,
    rules: &KindRules,
) -> Result<(), Rejection> {
    check_optimistic_lock(old, new, rules)?;
    let status = new.remove("status");
    let mut metadata = new.remove("metadata");
    *new = old.clone();
    unstructured::set_or_remove(new, "status", status);
    match rules.status {
        StatusSubresource::WithMetadata => unstructured::set_or_remove(new, "metadata", metadata),
        StatusSubresource::None | StatusSubresource::StatusOnly => {
            let managed =
                metadata.as_mut().and_then(Value::as_object_mut).and_then(|from| from.remove("managedFields"));
            unstructured::set_or_remove(metadata_mut(new), "managedFields", managed);
        }
    }
    keep_system_fields(old, new);
    Ok(())
}

/// True if a write changes nothing, so that the object keeps its resourceVersion. Ignores the times in managed fields,
/// and treats empty and absent managed fields as equal.
pub fn is_no_op(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let are_equal_outside = |name: &str| old.get(name) == new.get(name);
    old.keys().chain(new.keys()).filter(|name| *name != "metadata").all(|name| are_equal_outside(name))
        && has_same_metadata(old, new)
}

/// Drops duplicate owner references; returns Kubernetes' warning for the client if there were any.
pub fn dedup_owner_references(object: &mut Map<String, Value>) -> Option<String> {
    let references = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = HashSet::new();
    let mut duplicate_uids = Vec::new();
    references.retain(|reference| {
        let is_new = seen.insert(reference.to_string());
        if !is_new {
            duplicate_uids.push(reference.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        is_new
    });
    (!duplicate_uids.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicate_uids.join(", ")
        )
    })
}

/// The precondition of a PUT: the uid of `new`, if set, must equal that of `old`. A patch that changes the uid fails
/// validation instead.
pub fn ensure_uid_matches(old: &Map<String, Value>, new: &Map<String, Value>) -> Result<(), Rejection> {
    let (uid, wanted) = (metadata_string(old, "uid"), metadata_string(new, "uid"));
    if wanted.is_empty() || wanted == uid {
        return Ok(());
    }
    Err(Rejection::conflict(format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}")))
}

/// Optimistic concurrency: the resourceVersion of `new`, if set, must equal that of `old`.
fn check_optimistic_lock(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    rules: &KindRules,
) -> Result<(), Rejection> {
    let (current, wanted) = (parse_resource_version(old)?, parse_resource_version(new)?);
    if wanted == 0 && rules.allows_unconditional_update {
        return Ok(());
    }
    if wanted == 0 {
        let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(Rejection::Invalid { subject: RejectionSubject::Resource, errors: vec![error] });
    }
    match wanted.cmp(&current) {
        Ordering::Equal => Ok(()),
        Ordering::Less | Ordering::Greater => Err(Rejection::conflict(
            "the object has been modified; please apply your changes to the latest version and try again",
        )),
    }
}

fn parse_resource_version(object: &Map<String, Value>) -> Result<u64, Rejection> {
    match metadata_string(object, "resourceVersion") {
        "" => Ok(0),
        text => text
            .parse()
            .map_err(|_| Rejection::Unclassified(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))),
    }
}

/// Copies server-owned metadata from `old`. Fields that only `new` has stay, so that validation rejects them.
fn keep_system_fields(old: &Map<String, Value>, new: &mut Map<String, Value>) {
    let field = |name: &str| get(old, &["metadata", name]).cloned();
    let metadata = metadata_mut(new);
    metadata.remove("selfLink");
    unstructured::set_or_remove(metadata, "generation", field("generation"));
    unstructured::set_or_remove(metadata, "resourceVersion", field("resourceVersion"));
    if let Some(uid) = field("uid").filter(|_| unstructured::text(metadata, &["uid"]).is_empty()) {
        metadata.insert("uid".to_owned(), uid);
    }
    for name in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = field(name) {
            metadata.insert(name.to_owned(), value);
        }
    }
    if let Some(grace) = field("deletionGracePeriodSeconds") {
        metadata.entry("deletionGracePeriodSeconds").or_insert(grace);
    }
}

/// True if the states are equal outside of metadata and of a status that has a subresource.
fn has_same_desired_state(old: &Map<String, Value>, new: &Map<String, Value>, rules: &KindRules) -> bool {
    let is_desire = |name: &str| match name {
        "apiVersion" | "kind" | "metadata" => false,
        "status" => rules.status == StatusSubresource::None,
        _ => true,
    };
    old.keys().chain(new.keys()).filter(|name| is_desire(name)).all(|name| old.get(name) == new.get(name))
}

fn has_same_metadata(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let empty = Map::new();
    let old = unstructured::nested_object(old, &["metadata"]).unwrap_or(&empty);
    let new = unstructured::nested_object(new, &["metadata"]).unwrap_or(&empty);
    let is_equal = |name: &str| match name {
        "resourceVersion" => true,
        "managedFields" => has_same_managed_fields(unstructured::list(old, &[name]), unstructured::list(new, &[name])),
        _ => old.get(name) == new.get(name),
    };
    old.keys().chain(new.keys()).all(|name| is_equal(name))
}

fn has_same_managed_fields(old: &[Value], new: &[Value]) -> bool {
    let timeless = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
        entry
    };
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| timeless(old) == timeless(new))
}

#[cfg(test)]
mod tests;
