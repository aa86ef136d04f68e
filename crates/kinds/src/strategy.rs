//! Kind-specific behaviour, as one [`KindStrategy`] per kind.
//!
//! Each row of [`crate::groups`] refers to the strategy of its kind, so handlers read it from the resource they serve
//! and never compare kind names. A strategy states deviations from [`KindStrategy::DEFAULT`].

use access::User;
use access::rbac::RbacKind;
use api::json::JsonObject;
use api::time::Time;
use api::{FieldError, GroupVersion};
use object::convert::Conversion;
use object::delete::{self, DeleteOutcome};
use object::rules::{GenerateNameRule, GenerationRule, NameRule};
use object::scale::ScalePaths;
use object::selectable_fields::SelectableFields;
use object::table::{Column, DEFAULT_COLUMNS};
use object::unstructured::set_or_remove;
use object::{KindRules, Rejection};
use serde_json::{Value, json};

use crate::devices::requirements::DeviceRequirements;
use crate::feature_gates::FeatureGates;
use crate::release::Release;
use crate::reset_fields::{self, ResetFieldsRule};
use crate::review::ReviewKind;
use crate::update_validation::ObjectUpdate;
use crate::update_validation::immutable_fields::ImmutableField;
use crate::validation::Field;

/// Rules of a kind without deviations.
pub(crate) const RULES: KindRules = KindRules { generation: GenerationRule::Absent, ..KindRules::NAMESPACED };

/// Rules of a kind whose updates do not check `metadata.generateName`.
pub(crate) const LENIENT_RULES: KindRules = KindRules { generate_name: GenerateNameRule::OnCreate, ..RULES };

/// What an object configures of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionObject {
    /// Webhooks.
    Webhooks,
    /// A policy, which may have a `paramKind`.
    Policy,
    /// A binding, which may have a `paramRef`.
    Binding {
        /// The resource of the policies, in the same group.
        policies: &'static str,
    },
}

/// The behaviour of one kind, the same for all its versions.
#[derive(Clone, Copy, Debug)]
pub struct KindStrategy {
    /// The rules of objects; the scope and whether there is a status subresource are those of the served resource.
    pub(crate) rules: KindRules,
    /// The rule of names while this gate is on, in place of that in `rules`.
    pub(crate) gated_name_rule: Option<(&'static str, NameRule)>,
    /// Whether a created object keeps the status that the client sent, as nodes do.
    pub keeps_status_on_create: bool,
    /// Whether a deletion returns the deleted object instead of a Status.
    pub returns_deleted_object: bool,
    /// Whether writes allocate and release addresses and ports, as those of services do.
    pub allocates_addresses: bool,
    /// From this release on, the warning that every response carries.
    pub deprecation: Option<(Release, &'static str)>,
    /// Initializes and validates a new object. The user is the creator.
    pub prepare_for_create: fn(&User, &mut JsonObject) -> Result<(), Rejection>,
    /// Restores or rejects changes that an update must not make. Old state first.
    pub prepare_for_update: fn(&JsonObject, &mut JsonObject) -> Result<(), Rejection>,
    /// Rejects the deletion of an object by its name.
    pub check_deletable: fn(&str) -> Result<(), Rejection>,
    /// Changes the outcome of a deletion. The object is as stored.
    pub adjust_deletion: fn(&JsonObject, DeleteOutcome, Time) -> DeleteOutcome,
    /// True if an update removes the object because no finalizer is left. Old state first.
    pub is_removed_by_update: fn(&JsonObject, &JsonObject) -> bool,
    pub(crate) subresources: &'static [SubresourceStrategy],
    /// Whether a finalizer needs no domain: kinds of other components than kube-apiserver.
    pub(crate) allows_any_finalizer: bool,
    /// Reports invalid values of a new or updated object.
    pub(crate) validate: fn(Field<'_>),
    /// Reports what is invalid in a new object alone.
    pub(crate) validate_create: fn(Field<'_>),
    /// Reports invalid values of an updated status: the whole object, new state first.
    pub(crate) validate_status: fn(Field<'_>, Field<'_>),
    pub(crate) validate_update: fn(ObjectUpdate<'_>, &str) -> Vec<FieldError>,
    pub(crate) immutable_fields: &'static [ImmutableField],
    /// Whether errors about forbidden changes come before those about invalid values.
    pub reports_changes_first: bool,
    /// Warnings to the client about a valid object; old state first, `None` if there is none.
    pub warnings: fn(&FeatureGates, Option<&JsonObject>, &JsonObject) -> Vec<String>,
    /// The columns of a table.
    pub columns: &'static [Column],
    /// The condition of a table row.
    pub row_condition: fn(&JsonObject) -> Option<Value>,
    /// The fields that field selectors support.
    pub selectable_fields: &'static SelectableFields,
    /// Field paths of the `scale` subresource.
    pub scale: ScalePaths<'static>,
    /// The conversion between two versions whose fields differ; `None` if only the name of the version changes.
    pub conversion: fn(GroupVersion<&str>, GroupVersion<&str>) -> Option<Conversion>,
    /// The fields that a subresource, or the object itself, resets.
    pub(crate) reset_fields: ResetFieldsRule,
    /// The verb that the writer needs for the signer of a certificate; by subresource, old and new state.
    pub signer_verb: fn(&str, &JsonObject, &JsonObject) -> Option<&'static str>,
    /// What a write needs beyond the permission of its request; by subresource, old and new state.
    pub device_requirements: fn(&FeatureGates, &str, Option<&JsonObject>, &JsonObject) -> DeviceRequirements,
    /// The RBAC kind, whose writes must not grant more than the writer has.
    pub rbac: Option<RbacKind>,
    /// What objects of the kind configure of admission.
    pub admission: Option<AdmissionObject>,
    /// The review that a POST performs.
    pub review: Option<ReviewKind>,
}

impl KindStrategy {
    /// A kind without deviations.
    pub const DEFAULT: Self = Self {
        rules: RULES,
        gated_name_rule: None,
        keeps_status_on_create: false,
        returns_deleted_object: false,
        allocates_addresses: false,
        deprecation: None,
        prepare_for_create: |_, _| Ok(()),
        prepare_for_update: |_, _| Ok(()),
        check_deletable: |_| Ok(()),
        adjust_deletion: |_, outcome, _| outcome,
        is_removed_by_update: delete::is_removed_by_update,
        subresources: &[],
        allows_any_finalizer: false,
        validate: |_| {},
        validate_create: |_| {},
        validate_status: |_, _| {},
        validate_update: |_, _| Vec::new(),
        immutable_fields: &[],
        reports_changes_first: false,
        warnings: |_, _, _| Vec::new(),
        columns: DEFAULT_COLUMNS,
        row_condition: |_| None,
        selectable_fields: &SelectableFields::NAME_AND_NAMESPACE,
        scale: ScalePaths::WORKLOAD,
        conversion: |_, _| None,
        reset_fields: reset_fields::DEFAULT,
        signer_verb: |_, _, _| None,
        device_requirements: |_, _, _, _| DeviceRequirements::default(),
        rbac: None,
        admission: None,
        review: None,
    };

    /// A custom kind: all that is special about it comes from its definition.
    pub const CUSTOM: &'static Self = &Self { allows_any_finalizer: true, ..Self::DEFAULT };

    /// Rules of writes through a subresource; `None` if it is not writable.
    pub fn subresource(&self, name: &str) -> Option<&'static SubresourceStrategy> {
        self.subresources.iter().chain(COMMON_SUBRESOURCES).find(|subresource| subresource.name == name)
    }
}

/// Rules of writes through a subresource. Fields that it does not write keep their stored values.
#[derive(Clone, Copy, Debug)]
pub struct SubresourceStrategy {
    pub(crate) name: &'static str,
    pub(crate) fields: WritableFields,
    /// Whether the write follows the metadata rules of a status write.
    pub writes_status: bool,
    /// Completes the next state, which has the writable fields of the request. Stored state first.
    pub(crate) complete: fn(&JsonObject, &mut JsonObject, &FeatureGates, Time),
    /// Restores or rejects changes that the write must not make. Stored state first.
    pub prepare: fn(&JsonObject, &mut JsonObject, Time) -> Result<(), Rejection>,
}

/// The fields that a subresource writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritableFields {
    /// These fields, as one or two names with a dot.
    Fields(&'static [&'static str]),
    /// `status`, and the metadata that [`object::rules::StatusSubresource`] allows.
    Status,
    /// Decided by the handler: the body has a kind of its own, such as `Binding`.
    HandlerDefined,
}

/// The subresources of any kind that has them.
pub(crate) static COMMON_SUBRESOURCES: &[SubresourceStrategy] = &[
    SubresourceStrategy::new("scale", WritableFields::HandlerDefined),
    SubresourceStrategy::new("status", WritableFields::Status),
];

impl SubresourceStrategy {
    pub(crate) const fn new(name: &'static str, fields: WritableFields) -> Self {
        let writes_status = matches!(fields, WritableFields::Status);
        Self { name, fields, writes_status, complete: |_, _, _, _| {}, prepare: |_, _, _| Ok(()) }
    }

    /// The status subresource with a rule of its own.
    pub(crate) const fn status(prepare: fn(&JsonObject, &mut JsonObject, Time) -> Result<(), Rejection>) -> Self {
        Self { prepare, ..Self::new("status", WritableFields::Status) }
    }

    /// The requested state: the stored object with the fields that the subresource writes. `None` for a status,
    /// which is taken over with its metadata later.
    pub fn next_state(&self, [old, new]: [&JsonObject; 2], gates: &FeatureGates, now: Time) -> Option<JsonObject> {
        let WritableFields::Fields(fields) = self.fields else { return None };
        let mut next = restrict_to_fields(old, new, fields);
        (self.complete)(old, &mut next, gates, now);
        Some(next)
    }
}

/// The stored object with these fields as the request has them, and with the managed fields, which were recorded for the
/// request, and the uid and resourceVersion that the request names, which are checked later.
fn restrict_to_fields(old: &JsonObject, new: &JsonObject, fields: &[&str]) -> JsonObject {
    let mut next = old.clone();
    for path in ["metadata.managedFields", "metadata.uid", "metadata.resourceVersion"].iter().chain(fields) {
        match path.split_once('.') {
            None => set_or_remove(&mut next, path, new.get(*path).cloned()),
            Some((part, name)) => {
                let value = new.get(part).and_then(|part| part.get(name));
                if value.is_none() && !next.contains_key(part) {
                    continue;
                }
                if let Some(inner) = next.entry(part).or_insert_with(|| json!({})).as_object_mut() {
                    set_or_remove(inner, name, value.cloned());
                }
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::groups::GROUPS;
    use crate::runtime_config::RuntimeConfig;
    use crate::served_resources::ServedResources;

    fn served_with_everything_enabled(release: Release) -> ServedResources {
        let feature_gates = FeatureGates::parse(release, "AllAlpha=true,AllBeta=true").unwrap();
        ServedResources::new(&feature_gates, &RuntimeConfig::parse(release, "api/all=true").unwrap())
    }

    #[test]
    fn every_writable_subresource_has_a_strategy() {
        let (mut used, mut rows) = (BTreeSet::new(), BTreeSet::new());
        for release in Release::ALL {
            let served_resources = served_with_everything_enabled(release);
            for served in served_resources.resources() {
                rows.extend(
                    served.kind.strategy.subresources.iter().chain(COMMON_SUBRESOURCES).map(std::ptr::from_ref),
                );
                for subresource in served.kind.subresources.iter().filter(|subresource| subresource.is_implemented) {
                    let writes = ["create", "patch", "update"].iter().any(|verb| subresource.verbs.contains(verb));
                    let row = served.kind.strategy.subresource(subresource.name);
                    let name = format!("{release} {}/{}", served.kind.plural, subresource.name);
                    assert_eq!(writes, row.is_some(), "{name}");
                    used.extend(row.map(std::ptr::from_ref));
                }
            }
        }
        assert_eq!(used, rows, "every row is of a subresource");
    }

    #[test]
    fn restrict_to_fields_changes_only_listed_fields() {
        let object = |mark: &str| -> JsonObject {
            let part = json!({"finalizers": mark, "replicas": mark, "ephemeralContainers": mark, "containers": mark,
                "initContainers": mark, "resources": mark, "conditions": mark, "other": mark});
            let metadata = json!({"name": "n", "uid": mark, "resourceVersion": mark, "labels": {"a": mark}});
            let all = [("metadata", metadata), ("spec", part.clone()), ("status", part), ("data", json!(mark))];
            all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let (old, new) = (object("old"), object("new"));
        let kinds = GROUPS.into_iter().flat_map(|group| group.kinds);
        for row in kinds.flat_map(|kind| kind.strategy.subresources).chain(COMMON_SUBRESOURCES) {
            let WritableFields::Fields(fields) = row.fields else { continue };
            let next = restrict_to_fields(&old, &new, fields);
            for (part, value) in &next {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let path = format!("{part}.{name}");
                    let is_free = fields.contains(&&*path) || fields.contains(&&**part);
                    let is_named = ["metadata.uid", "metadata.resourceVersion"].contains(&&*path);
                    let expected = if is_free || is_named { &new } else { &old };
                    assert_eq!(*value, expected[part][name], "{} {path}", row.name);
                }
            }
            assert_eq!(next["data"], "old", "{}", row.name);
            assert_eq!(restrict_to_fields(&old, &JsonObject::new(), fields)["data"], "old", "{}", row.name);
        }
        assert_eq!(restrict_to_fields(&JsonObject::new(), &JsonObject::new(), &["spec.replicas"]), JsonObject::new());
    }
}
