//! Fields that an endpoint resets: what a request sends there is dropped, so no manager owns it through this endpoint.

use crate::feature_gates::FeatureGates;

/// Paths of field names. Everything below a path is reset too.
pub type ResetFields = &'static [&'static [&'static str]];

/// The reset fields of a kind by subresource; the empty name is the object itself.
pub(crate) type ResetFieldsRule = fn(&str, &FeatureGates) -> ResetFields;

/// The object resets its status, and the status everything else but metadata: most kinds.
pub(crate) const DEFAULT: ResetFieldsRule = |subresource, _| match subresource {
    "" | "finalize" => &[&["status"]],
    "status" => &[&["spec"]],
    _ => &[],
};

/// Like [`DEFAULT`], and the status resets metadata too.
pub(crate) const STATUS_WITHOUT_METADATA: ResetFieldsRule = |subresource, gates| match subresource {
    "status" => &[&["metadata"], &["spec"]],
    _ => DEFAULT(subresource, gates),
};

/// Like [`STATUS_WITHOUT_METADATA`], but kube-apiserver exposes no reset fields for the object itself.
pub(crate) const POD_GROUP: ResetFieldsRule = |subresource, gates| match subresource {
    "" => &[],
    _ => STATUS_WITHOUT_METADATA(subresource, gates),
};

/// Like [`DEFAULT`], but kube-apiserver exposes no reset fields for the object itself.
pub(crate) const POD_CERTIFICATE_REQUEST: ResetFieldsRule = |subresource, gates| match subresource {
    "" => &[],
    _ => DEFAULT(subresource, gates),
};

pub(crate) const SERVICE_CIDR: ResetFieldsRule = |subresource, gates| match subresource {
    "" if !gates.enabled("ServiceCIDRStatusFieldWiping") => &[],
    _ => STATUS_WITHOUT_METADATA(subresource, gates),
};

pub(crate) const DEPLOYMENT: ResetFieldsRule = |subresource, gates| match subresource {
    "status" => &[&["spec"], &["metadata", "labels"]],
    _ => DEFAULT(subresource, gates),
};

pub(crate) const POD: ResetFieldsRule = |subresource, gates| match subresource {
    "status" => &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
    _ => DEFAULT(subresource, gates),
};

pub(crate) const CERTIFICATE_SIGNING_REQUEST: ResetFieldsRule = |subresource, _| match subresource {
    "" => &[&["spec"], &["status"]],
    "status" => &[&["spec"], &["status", "conditions"]],
    "approval" => &[&["spec"], &["status", "certificate"]],
    _ => &[],
};
