//! What the server does to an object's metadata, and to its status, on the way into storage.
//!
//! Nothing here checks that names and labels are well-formed: that is [`crate::validate`], which runs on what comes out.

use std::cmp::Ordering;
use std::collections::HashSet;

use api::FieldError;
use api::time::Time;
use serde_json::{Map, Value};

use crate::access::{self, get, metadata_mut, metadata_text};
use crate::refusal::{Refusal, Subject};
use crate::rules::{Generation, KindRules, StatusPart};

/// What a new object is given.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// Now.
    pub now: Time,
    /// A fresh uid.
    pub uid: &'a str,
    /// Chance, for a generated name.
    pub random: u64,
}

/// The longest `generateName` that is used in full: a DNS label less the suffix.
const GENERATED_BASE_LENGTH_MAX: usize = 63 - GENERATED_SUFFIX_LENGTH;
const GENERATED_SUFFIX_LENGTH: usize = 5;
/// Without vowels and look-alikes, so that no name spells a word.
const GENERATED_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Makes an object new: name, uid, times and generation are the server's, the status is not the client's.
pub fn prepare_create(object: &mut Map<String, Value>, rules: &KindRules, stamp: &Stamp<'_>) -> Result<(), Refusal> {
    if metadata_text(object, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0) {
        return Err(Refusal::Unclassified("resourceVersion should not be set on objects to be created".to_owned()));
    }
    if rules.status != StatusPart::None {
        object.remove("status");
    }
    let metadata = metadata_mut(object);
    for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    metadata.insert("creationTimestamp".to_owned(), stamp.now.to_string().into());
    metadata.insert("uid".to_owned(), stamp.uid.into());
    if rules.generation != Generation::Absent {
        metadata.insert("generation".to_owned(), 1.into());
    }
    let base = access::text(metadata, &["generateName"]);
    if access::text(metadata, &["name"]).is_empty() && !base.is_empty() {
        let name = generate_name(base, stamp.random);
        metadata.insert("name".to_owned(), name.into());
    }
    Ok(())
}

/// Another name from the same base, for when the first was taken.
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

/// Makes the object of a PUT or patch the next state of `old`: the server's fields stay, the status stays where it has its own
/// subresource, and the generation counts.
///
/// `old` carries its resourceVersion; `new` leaves with that one. Refused when `new` names another resourceVersion or uid.
pub fn prepare_update(
    old: &Map<String, Value>,
    new: &mut Map<String, Value>,
    rules: &KindRules,
) -> Result<(), Refusal> {
    match_current(old, new, rules)?;
    if rules.status != StatusPart::None {
        access::set(new, "status", old.get("status").cloned());
    }
    keep_system_fields(old, new);
    let has_changed = match rules.generation {
        Generation::Absent => false,
        Generation::Counted => !has_same_desire(old, new, rules),
        Generation::CountedWithAnnotations => {
            let annotations = ["metadata", "annotations"];
            !has_same_desire(old, new, rules) || get(old, &annotations) != get(new, &annotations)
        }
    };
    if has_changed {
        let generation = access::integer(old, &["metadata", "generation"]).unwrap_or_default();
        metadata_mut(new).insert("generation".to_owned(), generation.saturating_add(1).into());
    }
    Ok(())
}

/// Makes the object of a write to `status` the next state of `old`: all but the status is taken from `old`, except what
/// [`StatusPart`] lets through.
///
/// Managed fields stay as `new` has them: [`crate::managed_fields`] decides about them.
pub fn prepare_status_update(
    old: &Map<String, Value>,
    new: &mut Map<String, Value>,
    rules: &KindRules,
) -> Result<(), Refusal> {
    match_current(old, new, rules)?;
    let status = new.remove("status");
    let mut metadata = new.remove("metadata");
    *new = old.clone();
    access::set(new, "status", status);
    match rules.status {
        StatusPart::WithMetadata => access::set(new, "metadata", metadata),
        StatusPart::None | StatusPart::Only => {
            let managed =
                metadata.as_mut().and_then(Value::as_object_mut).and_then(|from| from.remove("managedFields"));
            access::set(metadata_mut(new), "managedFields", managed);
        }
    }
    keep_system_fields(old, new);
    Ok(())
}

/// Whether a write would change nothing, so that the object keeps its resourceVersion. When managed fields were written is
/// not a change by itself, nor is an empty list of them against none.
pub fn is_no_op(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let are_equal_outside = |name: &str| old.get(name) == new.get(name);
    old.keys().chain(new.keys()).filter(|name| *name != "metadata").all(|name| are_equal_outside(name))
        && has_same_metadata(old, new)
}

/// Drops owner references that come twice. The warning for the client, if there were any.
pub fn dedup_owner_references(object: &mut Map<String, Value>) -> Option<String> {
    let references = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = HashSet::new();
    let mut doubles = Vec::new();
    references.retain(|reference| {
        let is_new = seen.insert(reference.to_string());
        if !is_new {
            doubles.push(reference.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        is_new
    });
    (!doubles.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubles.join(", ")
        )
    })
}

/// Optimistic concurrency: the uid and the resourceVersion of `new`, where it names them, are those of `old`.
fn match_current(old: &Map<String, Value>, new: &Map<String, Value>, rules: &KindRules) -> Result<(), Refusal> {
    let (uid, wanted) = (metadata_text(old, "uid"), metadata_text(new, "uid"));
    if !wanted.is_empty() && wanted != uid {
        return Err(Refusal::conflict(format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
        )));
    }
    let (current, wanted) = (parse_version(old)?, parse_version(new)?);
    if wanted == 0 && rules.unconditional_update {
        return Ok(());
    }
    if wanted == 0 {
        let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(Refusal::Invalid { subject: Subject::Resource, errors: vec![error] });
    }
    match wanted.cmp(&current) {
        Ordering::Equal => Ok(()),
        Ordering::Less | Ordering::Greater => Err(Refusal::conflict(
            "the object has been modified; please apply your changes to the latest version and try again",
        )),
    }
}

fn parse_version(object: &Map<String, Value>) -> Result<u64, Refusal> {
    match metadata_text(object, "resourceVersion") {
        "" => Ok(0),
        text => text
            .parse()
            .map_err(|_| Refusal::Unclassified(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))),
    }
}

/// Carries over what no client may change. What a client adds that was never there is left for validation to refuse.
fn keep_system_fields(old: &Map<String, Value>, new: &mut Map<String, Value>) {
    let field = |name: &str| get(old, &["metadata", name]).cloned();
    let metadata = metadata_mut(new);
    metadata.remove("selfLink");
    access::set(metadata, "generation", field("generation"));
    access::set(metadata, "resourceVersion", field("resourceVersion"));
    for name in ["uid", "creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = field(name) {
            metadata.insert(name.to_owned(), value);
        }
    }
    if let Some(grace) = field("deletionGracePeriodSeconds") {
        metadata.entry("deletionGracePeriodSeconds").or_insert(grace);
    }
}

/// Whether two states ask for the same: equal outside of metadata and of a status that has its own subresource.
fn has_same_desire(old: &Map<String, Value>, new: &Map<String, Value>, rules: &KindRules) -> bool {
    let is_desire = |name: &str| match name {
        "apiVersion" | "kind" | "metadata" => false,
        "status" => rules.status == StatusPart::None,
        _ => true,
    };
    old.keys().chain(new.keys()).filter(|name| is_desire(name)).all(|name| old.get(name) == new.get(name))
}

fn has_same_metadata(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let empty = Map::new();
    let old = access::part(old, &["metadata"]).unwrap_or(&empty);
    let new = access::part(new, &["metadata"]).unwrap_or(&empty);
    let is_equal = |name: &str| match name {
        "resourceVersion" => true,
        "managedFields" => has_same_managers(access::list(old, &[name]), access::list(new, &[name])),
        _ => old.get(name) == new.get(name),
    };
    old.keys().chain(new.keys()).all(|name| is_equal(name))
}

fn has_same_managers(old: &[Value], new: &[Value]) -> bool {
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
