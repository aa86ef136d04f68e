//! Pod certificate requests: the beta version has two ways to prove a key that v1 has given up.

use serde_json::{Map, Value};

use crate::unstructured::nested_object_mut;

/// From what older releases store to v1.
pub(super) fn v1beta1_to_v1(object: &mut Map<String, Value>) {
    let spec = nested_object_mut(object, "spec");
    for gone in ["pkixPublicKey", "proofOfPossession"] {
        spec.remove(gone);
    }
}

/// From v1: everything it has, the beta version has too.
pub(super) fn v1_to_v1beta1(_object: &mut Map<String, Value>) {}
