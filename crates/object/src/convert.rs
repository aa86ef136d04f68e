//! The same object under another version that serves it.
//!
//! Most versions of a kind have the same fields, and only the name of the version changes: which ones, the catalogue
//! declares. Those that differ are listed here. What neither side of a conversion knows is kept.

mod autoscaling;
mod certificates;
mod custom_resource_definitions;
mod events;
mod resource;

use api::GroupVersion;
use serde_json::{Map, Value};

/// A conversion that changes more than the name of the version.
pub type Conversion = fn(&mut Map<String, Value>);

/// Brings an object of `from` into the version `to`.
pub fn convert(object: &mut Map<String, Value>, from: GroupVersion<&str>, to: GroupVersion<&str>) {
    let kind = crate::unstructured::text(object, &["kind"]);
    if let Some(conversion) = conversion_between(kind, from, to) {
        conversion(object);
    }
    object.insert("apiVersion".to_owned(), to.to_string().into());
}

/// The conversion between two versions of a kind whose fields differ; `None` if only the name changes.
pub fn conversion_between(kind: &str, from: GroupVersion<&str>, to: GroupVersion<&str>) -> Option<Conversion> {
    let is_first_beta = |version: &str| version == "v1beta1";
    match (kind, from.group, from.version, to.group, to.version) {
        ("HorizontalPodAutoscaler", "autoscaling", "v1", "autoscaling", "v2") => Some(autoscaling::v1_to_v2),
        ("HorizontalPodAutoscaler", "autoscaling", "v2", "autoscaling", "v1") => Some(autoscaling::v2_to_v1),
        ("Event", "", _, "events.k8s.io", _) => Some(events::core_to_events),
        ("Event", "events.k8s.io", _, "", _) => Some(events::events_to_core),
        (_, "resource.k8s.io", before, "resource.k8s.io", after) if is_first_beta(before) != is_first_beta(after) => {
            resource::conversion_from(kind, before)
        }
        ("CustomResourceDefinition", "apiextensions.k8s.io", "v1beta1", "apiextensions.k8s.io", "v1") => {
            Some(custom_resource_definitions::v1beta1_to_v1)
        }
        ("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "apiextensions.k8s.io", "v1beta1") => {
            Some(custom_resource_definitions::v1_to_v1beta1)
        }
        ("PodCertificateRequest", "certificates.k8s.io", "v1beta1", "certificates.k8s.io", "v1") => {
            Some(certificates::v1beta1_to_v1)
        }
        ("PodCertificateRequest", "certificates.k8s.io", "v1", "certificates.k8s.io", "v1beta1") => {
            Some(certificates::v1_to_v1beta1)
        }
        _ => None,
    }
}

/// Moves a field from one name to another.
fn rename_field(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
