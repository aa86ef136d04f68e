//! Pod certificate requests: v1beta1 has two proof-of-possession fields that v1 has removed.

use api::json::JsonObject;
use object::KindRules;
use object::rules::StatusSubresource;
use object::selectable_fields::SelectableFields;
use object::unstructured::nested_object_mut;

use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::SPEC_IS_FIXED;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::POD_CERTIFICATE_REQUEST,
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..RULES },
    immutable_fields: SPEC_IS_FIXED,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "spec.signerName", "spec.podName", "spec.nodeName"],
        ..SelectableFields::LISTED
    },
    conversion: |from, to| match (from.version, to.version) {
        ("v1beta1", "v1") => Some(v1beta1_to_v1),
        ("v1", "v1beta1") => Some(v1_to_v1beta1),
        _ => None,
    },
    ..KindStrategy::DEFAULT
};

fn v1beta1_to_v1(object: &mut JsonObject) {
    let spec = nested_object_mut(object, "spec");
    for gone in ["pkixPublicKey", "proofOfPossession"] {
        spec.remove(gone);
    }
}

/// Every field of v1 is in v1beta1 too.
fn v1_to_v1beta1(_object: &mut JsonObject) {}
