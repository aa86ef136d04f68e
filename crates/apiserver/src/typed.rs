//! The type of a built-in kind, put to use: bodies are checked by it, patches merge by it, and what another release has
//! stored is kept by it.

use api::{FieldError, GroupVersionKind, Status, query};
use catalogue::schema::{Place, Struct, cannot_be_handled, check, drop_unknown, settle, strict_error};
use catalogue::{Gates, Release, defaults, immutable, values};
use object::decode::Decoded;
use object::schema::{Field, FieldSchema, Known, PatchStrategy, TypeRef};

use crate::forms::Object;

/// What to do with fields that a kind does not have, or that come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the `fieldValidation` parameter. Absent means to warn, as in Kubernetes.
    pub(crate) fn of_query(query: &str) -> Result<Self, Status> {
        match query::first(query, "fieldValidation").as_deref() {
            None | Some("" | "Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(Status::bad_request(format!(
                "fieldValidation: Unsupported value: \"{other}\": supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }
}

/// A body of the right types, and what the client should be warned of.
pub(crate) struct Checked {
    pub(crate) object: Object,
    pub(crate) warnings: Vec<String>,
}

/// Refuses a body that Go's decoder would not take: stored, it would break every list of a real server.
pub(crate) fn checked(
    decoded: Decoded<Object>,
    release: Release,
    kind: GroupVersionKind<&str>,
    validation: FieldValidation,
) -> Result<Checked, Status> {
    check_types(decoded, release, kind, validation)
        .map_err(|Mistyped { reason, .. }| Status::bad_request(cannot_be_handled(kind, &reason)))
}

/// A body that Go's decoder would not take.
pub(crate) struct Mistyped {
    pub(crate) object: Object,
    pub(crate) reason: String,
}

/// The same, for who says it in other words.
pub(crate) fn check_types(
    decoded: Decoded<Object>,
    release: Release,
    kind: GroupVersionKind<&str>,
    validation: FieldValidation,
) -> Result<Checked, Mistyped> {
    let Decoded { value: mut object, duplicates: mut faults } = decoded;
    let Some(known) = Struct::of_kind(release, kind) else { return Ok(Checked { object, warnings: Vec::new() }) };
    match check(&object, known) {
        Ok(found) => faults.extend(found),
        Err(wrong) => return Err(Mistyped { reason: wrong.to_string(), object }),
    }
    if validation == FieldValidation::Strict
        && let Some(reason) = strict_error(&faults)
    {
        return Err(Mistyped { object, reason });
    }
    settle(&mut object, known);
    let warnings = if validation == FieldValidation::Ignore { Vec::new() } else { faults };
    Ok(Checked { object, warnings })
}

/// Gives an object what its kind says where nothing was said. It must have passed [`checked`].
pub(crate) fn complete(object: &mut Object, gates: &Gates, kind: GroupVersionKind<&str>) {
    if let Some(known) = Struct::of_kind(gates.release(), kind) {
        defaults::complete(object, known, gates);
    }
}

/// Gives an object the status that says nothing, if it has none: clients look into it without looking for it.
pub(crate) fn complete_status(object: &mut Object, release: Release, kind: GroupVersionKind<&str>) {
    if object.contains_key("status") {
        return;
    }
    if let Some(status) = Struct::of_kind(release, kind).and_then(defaults::empty_status) {
        object.insert("status".to_owned(), status.into());
    }
}

/// Values that Kubernetes refuses. What is stored already may stay as it is: another server, or a former one, took it.
pub(crate) fn refused_values(
    old: Option<&Object>,
    new: &Object,
    release: Release,
    kind: GroupVersionKind<&str>,
) -> Vec<FieldError> {
    let Some(known) = Struct::of_kind(release, kind) else { return Vec::new() };
    let mut faults = values::faults(known, new);
    if let Some(old) = old.filter(|_| !faults.is_empty()) {
        let before = values::faults(known, old);
        faults.retain(|fault| !before.contains(fault));
    }
    faults
}

/// What an update through a subresource, or to the object itself, changes and must not.
///
/// Another release may have stored fewer defaults than this one knows, so before anything is refused the old state is
/// completed, as Kubernetes completes all that it reads.
pub(crate) fn forbidden_changes(
    [old, new]: [&Object; 2],
    gates: &Gates,
    kind: GroupVersionKind<&str>,
    subresource: &str,
) -> Vec<FieldError> {
    let Some(known) = Struct::of_kind(gates.release(), kind) else { return Vec::new() };
    if immutable::faults(known, gates, subresource, [old, new]).is_empty() {
        return Vec::new();
    }
    let mut old = old.clone();
    defaults::complete(&mut old, known, gates);
    immutable::faults(known, gates, subresource, [&old, new])
}

/// Drops what the kind does not have from an object that comes from a client alone. Over a stored one nothing is dropped: it
/// may have fields of a newer release.
pub(crate) fn drop_unknown_fields(object: &mut Object, release: Release, kind: GroupVersionKind<&str>) {
    if let Some(known) = Struct::of_kind(release, kind) {
        drop_unknown(object, known);
    }
}

/// The fields of the built-in types of one release, as patches ask for them.
pub(crate) struct Fields(pub(crate) Release);

impl Fields {
    /// What is known of a kind; `None` if nothing is.
    pub(crate) fn known(&self, kind: GroupVersionKind<&str>) -> Option<Known<'_>> {
        Some(Known::new(self, TypeRef(Place::of_kind(self.0, kind)?.number())))
    }
}

impl FieldSchema for Fields {
    fn field(&self, of: TypeRef, name: &str) -> Option<Field<'_>> {
        let placed = Place::from_number(of.0)?.field(self.0, name)?;
        let strategy = match placed.patch {
            Some(patch) if patch.is_merged => PatchStrategy::Merge,
            Some(patch) if patch.is_replaced => PatchStrategy::Replace,
            Some(_) | None => PatchStrategy::Default,
        };
        Some(Field {
            strategy,
            merge_key: placed.patch.and_then(|patch| patch.key),
            of: placed.inner.map(|inner| TypeRef(inner.number())),
        })
    }
}
