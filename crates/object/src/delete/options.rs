//! `DeleteOptions`, from the body or the query of a request.

use api::FieldError;
use serde::Deserialize;
use serde_json::Value;

use crate::decode::{self, BodyEncoding};
use crate::rejection::{Rejection, RejectionSubject};

/// Valid options of a delete request; [`DeleteOptions::parse`] rejects invalid ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Requested grace period; a negative value means one second.
    pub grace_period_seconds: Option<i64>,
    /// Precondition: uid of the object.
    pub uid: Option<String>,
    /// Precondition: resourceVersion of the object.
    pub resource_version: Option<String>,
    /// Deprecated form of `propagation_policy`. With `false`, the response is 202 if the object is not removed
    /// immediately.
    pub orphan_dependents: Option<bool>,
    /// Propagation to dependents; never set together with `orphan_dependents`.
    pub propagation_policy: Option<DeletionPropagation>,
    /// Validate only and store nothing.
    pub is_dry_run: bool,
}

/// Propagation of a deletion to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionPropagation {
    /// Dependents stay and lose their owner reference.
    Orphan,
    /// The garbage collector deletes dependents after the object.
    Background,
    /// The garbage collector deletes dependents before the object.
    Foreground,
}

impl DeleteOptions {
    /// The options as a `DeleteOptions` of `meta.k8s.io/v1`, which admission webhooks are sent.
    pub fn to_object(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut object = serde_json::Map::new();
        let mut set = |name: &str, value: serde_json::Value| object.insert(name.to_owned(), value);
        set("kind", "DeleteOptions".into());
        set("apiVersion", "meta.k8s.io/v1".into());
        if let Some(seconds) = self.grace_period_seconds {
            set("gracePeriodSeconds", seconds.into());
        }
        let mut preconditions = serde_json::Map::new();
        for (name, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            preconditions.extend(value.iter().map(|value| (name.to_owned(), value.as_str().into())));
        }
        if !preconditions.is_empty() {
            set("preconditions", preconditions.into());
        }
        if let Some(orphan) = self.orphan_dependents {
            set("orphanDependents", orphan.into());
        }
        if let Some(policy) = self.propagation_policy {
            set("propagationPolicy", format!("{policy:?}").into());
        }
        if self.is_dry_run {
            set("dryRun", vec!["All"].into());
        }
        object
    }

    /// Parses the options from the body or, if it is empty, from the percent-decoded query.
    pub fn parse<'q>(
        body: &[u8],
        encoding: BodyEncoding,
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, Rejection> {
        let wire = if body.is_empty() {
            WireDeleteOptions::from_query(query)
        } else {
            WireDeleteOptions::from_body(body, encoding)
        };
        wire.map_err(Rejection::BadRequest)?.validate()
    }

    pub(super) fn effective_propagation(&self) -> Option<DeletionPropagation> {
        match self.orphan_dependents {
            Some(true) => Some(DeletionPropagation::Orphan),
            Some(false) => Some(DeletionPropagation::Background),
            None => self.propagation_policy,
        }
    }
}

/// Options before validation.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireDeleteOptions {
    kind: Option<String>,
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl WireDeleteOptions {
    /// Ignores `apiVersion`: every group registers `DeleteOptions`.
    fn from_body(body: &[u8], encoding: BodyEncoding) -> Result<Self, String> {
        let value = decode::decode_value(body, encoding)?.value;
        if !value.is_object() {
            return Err("decoded object cannot be converted to DeleteOptions".to_owned());
        }
        let wire = Self::deserialize(value).map_err(|error| error.to_string())?;
        match wire.kind.as_deref() {
            None | Some("" | "DeleteOptions") => Ok(wire),
            Some(_) => Err("decoded object cannot be converted to DeleteOptions".to_owned()),
        }
    }

    fn from_query<'q>(query: impl IntoIterator<Item = (&'q str, &'q str)>) -> Result<Self, String> {
        let mut wire = Self::default();
        let mut preconditions = Preconditions::default();
        for (name, value) in query {
            match name {
                "gracePeriodSeconds" if wire.grace_period_seconds.is_none() => {
                    wire.grace_period_seconds = Some(api::query::parse_int(value)?);
                }
                "orphanDependents" if wire.orphan_dependents.is_none() => {
                    wire.orphan_dependents = Some(value != "0" && !value.eq_ignore_ascii_case("false"));
                }
                "propagationPolicy" => {
                    wire.propagation_policy.get_or_insert_with(|| value.to_owned());
                }
                "dryRun" => wire.dry_run.get_or_insert_default().push(value.to_owned()),
                "uid" if !value.is_empty() => {
                    preconditions.uid.get_or_insert_with(|| value.to_owned());
                }
                "resourceVersion" if !value.is_empty() => {
                    preconditions.resource_version.get_or_insert_with(|| value.to_owned());
                }
                _ => {}
            }
        }
        wire.preconditions = Some(preconditions);
        Ok(wire)
    }

    fn validate(self) -> Result<DeleteOptions, Rejection> {
        let mut errors = Vec::new();
        let policy = self.propagation_policy.as_deref();
        if let (Some(policy), Some(_)) = (policy, self.orphan_dependents) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", policy, detail));
        }
        let propagation_policy = match policy {
            None => None,
            Some("Orphan") => Some(DeletionPropagation::Orphan),
            Some("Background") => Some(DeletionPropagation::Background),
            Some("Foreground") => Some(DeletionPropagation::Foreground),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", other, &supported));
                None
            }
        };
        let dry_run = self.dry_run.unwrap_or_default();
        if dry_run.iter().any(|stage| stage != "All") {
            errors.push(FieldError::not_supported("dryRun", Value::from(dry_run.clone()), &["All"]));
        }
        if !errors.is_empty() {
            return Err(Rejection::Invalid { subject: RejectionSubject::Options("DeleteOptions"), errors });
        }
        let Preconditions { uid, resource_version } = self.preconditions.unwrap_or_default();
        Ok(DeleteOptions {
            grace_period_seconds: self.grace_period_seconds,
            uid,
            resource_version,
            orphan_dependents: self.orphan_dependents,
            propagation_policy,
            is_dry_run: !dry_run.is_empty(),
        })
    }
}
