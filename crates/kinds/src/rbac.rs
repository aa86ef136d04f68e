//! Roles and role bindings: defaults, and rejection of rules that the server could not enforce.

use access::rbac;
use access::rbac::RbacKind;
use api::json::JsonObject;
use object::KindRules;
use object::rules::NameRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_column, wide_column};
use object::unstructured::objects;
use object::{Rejection, unstructured};
use serde_json::Value;

use crate::fields::{set_if_empty, string_field};
use crate::release::Release::*;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::{ImmutableField, ViolationMessage, fixed_field, immutable_field};
use crate::validation::Field;

pub(crate) static ROLE_STRATEGY: KindStrategy = KindStrategy {
    rbac: Some(RbacKind::Role),
    prepare_for_create: |_, role| set_defaults(RbacKind::Role, role),
    prepare_for_update: |_, role| set_defaults(RbacKind::Role, role),
    validate: |role| validate(RbacKind::Role, role),
    ..ANY_KIND
};

pub(crate) static CLUSTER_ROLE_STRATEGY: KindStrategy = KindStrategy {
    rbac: Some(RbacKind::ClusterRole),
    prepare_for_create: |_, role| set_defaults(RbacKind::ClusterRole, role),
    prepare_for_update: |_, role| set_defaults(RbacKind::ClusterRole, role),
    validate: |role| validate(RbacKind::ClusterRole, role),
    ..ANY_KIND
};

pub(crate) static ROLE_BINDING_STRATEGY: KindStrategy = KindStrategy {
    rbac: Some(RbacKind::RoleBinding),
    prepare_for_create: |_, binding| set_defaults(RbacKind::RoleBinding, binding),
    prepare_for_update: |_, binding| set_defaults(RbacKind::RoleBinding, binding),
    validate: |binding| validate(RbacKind::RoleBinding, binding),
    ..ANY_BINDING
};

pub(crate) static CLUSTER_ROLE_BINDING_STRATEGY: KindStrategy = KindStrategy {
    rbac: Some(RbacKind::ClusterRoleBinding),
    prepare_for_create: |_, binding| set_defaults(RbacKind::ClusterRoleBinding, binding),
    prepare_for_update: |_, binding| set_defaults(RbacKind::ClusterRoleBinding, binding),
    validate: |binding| validate(RbacKind::ClusterRoleBinding, binding),
    ..ANY_BINDING
};

const ANY_KIND: KindStrategy = KindStrategy {
    rules: KindRules { name_rule: NameRule::PathSegment, allows_create_on_update: true, ..RULES },
    ..KindStrategy::DEFAULT
};

const ANY_BINDING: KindStrategy =
    KindStrategy { immutable_fields: ROLE_REF_IS_FIXED, columns: ROLE_BINDINGS, ..ANY_KIND };

const ROLE_REF_IS_FIXED: &[ImmutableField] = &[
    immutable_field("roleRef", ViolationMessage::Invalid("cannot change roleRef")).until(R37),
    fixed_field("roleRef").since(R37),
];

fn set_defaults(kind: RbacKind, object: &mut JsonObject) -> Result<(), Rejection> {
    rbac::validation::set_defaults(kind, object);
    Ok(())
}

fn validate(kind: RbacKind, field: Field<'_>) {
    let Some(object) = field.object() else { return };
    let name = unstructured::metadata_string(object, "name");
    let bytes = serde_json::to_vec(object).expect("an object has string keys");
    match rbac::validation::validate_object(kind, name, &bytes) {
        Ok(errors) => errors.into_iter().for_each(|error| field.add_error(error)),
        // What cannot be read cannot be enforced.
        Err(error) => field.invalid_unshown(error.to_string()),
    }
}

/// The API group of users and groups is RBAC's; service accounts are in the core group.
pub(crate) fn set_rbac_subject_defaults(subject: &mut JsonObject) {
    if matches!(string_field(subject, "kind"), "User" | "Group") {
        set_if_empty(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
}

const ROLE_BINDINGS: &[Column] = &[
    NAME,
    string_column("Role", "The role it grants.", |binding, _| {
        let field = |name: &str| unstructured::text(binding, &["roleRef", name]);
        format!("{}/{}", field("kind"), field("name")).into()
    }),
    AGE,
    wide_column("Users", "The users it is granted to.", |binding, _| subjects_cell(binding, "User")),
    wide_column("Groups", "The groups it is granted to.", |binding, _| subjects_cell(binding, "Group")),
    wide_column("ServiceAccounts", "The service accounts it is granted to.", |binding, _| {
        subjects_cell(binding, "ServiceAccount")
    }),
];

fn subjects_cell(binding: &JsonObject, kind: &str) -> Value {
    let of_kind = objects(binding, &["subjects"]).filter(|subject| unstructured::text(subject, &["kind"]) == kind);
    let names = of_kind.map(|subject| {
        let name = unstructured::text(subject, &["name"]);
        match kind {
            "ServiceAccount" => format!("{}/{name}", unstructured::text(subject, &["namespace"])),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}
