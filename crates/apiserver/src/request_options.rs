//! Query options of requests: list, watch and write options, and the `continue` token.

use api::json::JsonObject;
use api::selector::{FieldSelector, LabelSelector};
use api::{FieldError, Status, query};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use managedfields::manager_name;
use registry::read::ReadConsistency;
use serde::{Deserialize, Serialize};
use store::Revision;

use crate::built_in_types::FieldValidation;
use crate::error_status::status_for_options;
use crate::request_body::BufferedRequest;

/// The options of a list or a watch.
#[derive(Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) label_selector: LabelSelector,
    pub(crate) field_selector: FieldSelector,
    /// `None`: no limit.
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) requested_version: RequestedVersion,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

/// The verb whose rules [`ListOptions`] are parsed and validated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadVerb {
    /// Reads `resourceVersion` and ignores `resourceVersionMatch`.
    Get,
    List,
    Watch,
}

/// The combination of `resourceVersion` and `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestedVersion {
    /// No `resourceVersion`: the latest state.
    #[default]
    Unset,
    /// `0` without `Exact`: any state.
    Any,
    NotOlderThan(Revision),
    Exact(Revision),
    /// No `resourceVersionMatch`: exact for a list with a limit, not older than for one without, the start of a watch.
    Unmatched(Revision),
}

impl ListOptions {
    pub(crate) fn parse(query: &str, verb: ReadVerb) -> Result<Self, Status> {
        let text = |name| query::first_value(query, name).filter(|value| !value.is_empty());
        let flag = |name| query::first_value(query, name).map(|value| query::is_true_parameter(&value));
        let number = |name| -> Result<Option<u64>, Status> {
            let number = text(name).map(|value| query::parse_int(&value)).transpose().map_err(Status::bad_request)?;
            // kube-apiserver treats a negative number as absent.
            Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
        };
        let labels = text("labelSelector").unwrap_or_default();
        let fields = text("fieldSelector").unwrap_or_default();
        let options = Self {
            label_selector: LabelSelector::parse(&labels).map_err(|error| Status::bad_request(error.to_string()))?,
            field_selector: FieldSelector::parse(&fields).map_err(|error| Status::bad_request(error.to_string()))?,
            limit: number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok()),
            continue_token: text("continue").map(Into::into),
            requested_version: match verb {
                ReadVerb::Get => RequestedVersion::parse(text("resourceVersion").as_deref(), None)?,
                ReadVerb::List | ReadVerb::Watch => RequestedVersion::parse(
                    text("resourceVersion").as_deref(),
                    text(RESOURCE_VERSION_MATCH).as_deref(),
                )?,
            },
            allow_bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: flag("sendInitialEvents"),
            timeout_seconds: number("timeoutSeconds")?,
        };
        let errors = match verb {
            ReadVerb::Get => Vec::new(),
            ReadVerb::List => {
                options.validate_list(text("resourceVersion").as_deref(), text(RESOURCE_VERSION_MATCH).as_deref())
            }
            ReadVerb::Watch => options.validate_watch(text(RESOURCE_VERSION_MATCH).as_deref()),
        };
        if !errors.is_empty() {
            return Err(status_for_options("ListOptions", &errors));
        }
        if options.continue_token.is_some()
            && options.requested_version != RequestedVersion::Unset
            && options.requested_version != RequestedVersion::Any
        {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(options)
    }

    /// Finds contradictions among the options of a list, with kube-apiserver's texts and in its order.
    fn validate_list(&self, version: Option<&str>, version_match: Option<&str>) -> Vec<FieldError> {
        let forbidden = |detail: &str| FieldError::forbidden(RESOURCE_VERSION_MATCH, detail);
        let mut errors = Vec::new();
        if version_match.is_some() && version.is_none() {
            errors.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if version_match.is_some() && self.continue_token.is_some() {
            errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        match version_match {
            None | Some("NotOlderThan") => {}
            Some("Exact") if version == Some("0") => {
                errors.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
            Some("Exact") => {}
            Some(other) => {
                errors.push(FieldError::not_supported(RESOURCE_VERSION_MATCH, other, &["Exact", "NotOlderThan", ""]))
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    /// Finds contradictions among the options of a watch, with kube-apiserver's texts and in its order.
    fn validate_watch(&self, version_match: Option<&str>) -> Vec<FieldError> {
        let forbidden = |detail: &str| FieldError::forbidden(RESOURCE_VERSION_MATCH, detail);
        let mut errors = Vec::new();
        if self.send_initial_events.is_some() && version_match != Some("NotOlderThan") {
            errors.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        let Some(how) = version_match else { return errors };
        if self.send_initial_events.is_none() {
            errors.push(forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
        }
        if how != "NotOlderThan" {
            errors.push(FieldError::not_supported(RESOURCE_VERSION_MATCH, how, &["NotOlderThan"]));
        }
        if self.continue_token.is_some() {
            errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        errors
    }

    pub(crate) fn list_consistency(&self) -> ReadConsistency {
        match self.requested_version {
            RequestedVersion::Unset => ReadConsistency::Latest,
            RequestedVersion::Any => ReadConsistency::Any,
            RequestedVersion::NotOlderThan(revision) => ReadConsistency::NotOlderThan(revision),
            RequestedVersion::Exact(revision) => ReadConsistency::Exact(revision),
            // As in kube-apiserver: with a limit the revision is exact, because all pages must show the same state.
            RequestedVersion::Unmatched(revision) if self.limit.is_some() => ReadConsistency::Exact(revision),
            RequestedVersion::Unmatched(revision) => ReadConsistency::NotOlderThan(revision),
        }
    }
}

impl RequestedVersion {
    /// Accepts any `resourceVersionMatch`: `validate_list` and `validate_watch` report unsupported values with all
    /// other errors.
    fn parse(version: Option<&str>, version_match: Option<&str>) -> Result<Self, Status> {
        let Some(text) = version else { return Ok(Self::Unset) };
        let revision = query::parse_uint(text).map(Revision).map_err(|error| {
            Status::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": {error}"
            ))
        })?;
        Ok(match version_match {
            Some("Exact") => Self::Exact(revision),
            _ if revision == Revision(0) => Self::Any,
            Some("NotOlderThan") => Self::NotOlderThan(revision),
            _ => Self::Unmatched(revision),
        })
    }
}

const RESOURCE_VERSION_MATCH: &str = "resourceVersionMatch";

/// The `continue` token of a list, in kube-apiserver's encoding: any API server can serve the next page.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
}

/// The only version that kube-apiserver accepts.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    /// Continues at `start`, a key without the list's prefix, at `revision`.
    pub(crate) fn new(revision: Revision, start: &str) -> Self {
        Self { v: TOKEN_VERSION.to_owned(), rv: revision.0.cast_signed(), start: start.to_owned() }
    }

    /// Continues at the same key in the latest state. Sent to clients whose revision was compacted.
    pub(crate) fn without_revision(&self) -> Self {
        Self { v: self.v.clone(), rv: -1, start: self.start.clone() }
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(api::json::to_go_json(self))
    }

    pub(crate) fn decode(text: &str) -> Result<Self, Status> {
        let invalid = |reason: &str| Status::bad_request(format!("invalid continue token: {reason}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| invalid(&error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        if token.v != TOKEN_VERSION {
            return Err(invalid("server does not recognize this encoded version"));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        // `start` is appended to the list's prefix and must not leave it.
        let is_clean = !token.start.is_empty()
            && token.start.trim_end_matches('\0').split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_clean {
            return Err(invalid(&format!("continue key is not valid: {}", token.start)));
        }
        Ok(token)
    }

    /// The revision of the list; `None`: the latest state.
    pub(crate) fn revision(&self) -> Option<Revision> {
        u64::try_from(self.rv).ok().map(Revision)
    }

    pub(crate) fn start(&self) -> &str {
        &self.start
    }
}

/// The media type of a server-side apply.
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The options of creates, updates and patches.
#[derive(Debug)]
pub(crate) struct WriteOptions {
    /// `dryRun=All`: admission and validation run, but nothing is stored.
    pub(crate) is_dry_run: bool,
    /// The manager name in `managedFields`; the user agent's prefix if `fieldManager` is absent.
    pub(crate) field_manager: String,
    /// `fieldManager` as given; empty if absent.
    pub(crate) given_manager: String,
    /// `force`: an apply takes over the fields of other managers that it changes.
    pub(crate) is_forced: bool,
    pub(crate) field_validation: FieldValidation,
}

/// The write whose rules [`WriteOptions`] are validated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteVerb {
    Create,
    Update,
    Patch,
    Apply,
}

impl WriteVerb {
    fn of_request(request: &BufferedRequest) -> Self {
        match *request.method() {
            http::Method::POST => Self::Create,
            http::Method::PATCH if content_type(request) == APPLY_PATCH => Self::Apply,
            http::Method::PATCH => Self::Patch,
            _ => Self::Update,
        }
    }

    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

impl WriteOptions {
    pub(crate) fn from_request(request: &BufferedRequest) -> Result<Self, Status> {
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let verb = WriteVerb::of_request(request);
        Self::parse(request.uri().query().unwrap_or_default(), agent, verb)
            .map_err(|errors| status_for_options(verb.options_kind(), &errors))
    }

    /// Finds invalid options with kube-apiserver's texts and in its order.
    fn parse(query: &str, user_agent: &str, verb: WriteVerb) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let field_manager = query::first_value(query, "fieldManager").unwrap_or_default();
        let force = query::first_value(query, "force");
        if verb == WriteVerb::Apply && field_manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if verb == WriteVerb::Patch && force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        errors.extend(object::validate::validate_manager_name(&field_manager, "fieldManager"));
        let dry_runs = || query::pairs(query).filter(|(key, _)| key == "dryRun");
        // Kubernetes shows all values, once.
        let shown: Vec<_> = dry_runs().map(|(_, value)| value.into_owned()).collect();
        if shown.iter().any(|value| value != "All") {
            errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
        }
        match FieldValidation::from_query(query) {
            Ok(field_validation) if errors.is_empty() => Ok(Self {
                is_dry_run: dry_runs().next().is_some(),
                field_manager: manager_name(&field_manager, user_agent),
                given_manager: field_manager.clone().into_owned(),
                is_forced: force.is_some_and(|force| query::is_true_parameter(&force)),
                field_validation,
            }),
            Ok(_) => Err(errors),
            Err(error) => {
                errors.push(error);
                Err(errors)
            }
        }
    }
}

impl WriteOptions {
    /// The options as admission plugins and webhooks see them: those of a patch look like those of an update.
    pub(crate) fn to_object(&self, operation: ::admission::Operation) -> JsonObject {
        let kind = if operation == ::admission::Operation::Create { "CreateOptions" } else { "UpdateOptions" };
        let mut options = JsonObject::new();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        if self.is_dry_run {
            options.insert("dryRun".to_owned(), vec!["All"].into());
        }
        if !self.given_manager.is_empty() {
            options.insert("fieldManager".to_owned(), self.given_manager.as_str().into());
        }
        if self.field_validation != FieldValidation::Warn {
            options.insert("fieldValidation".to_owned(), format!("{:?}", self.field_validation).into());
        }
        options
    }
}

/// The option `fieldValidation` of a request with a body.
pub(crate) fn field_validation(request: &BufferedRequest) -> Result<FieldValidation, Status> {
    FieldValidation::from_query(request.uri().query().unwrap_or_default())
        .map_err(|error| status_for_options(WriteVerb::of_request(request).options_kind(), &[error]))
}

/// The media type of the body, without parameters.
pub(crate) fn content_type(request: &BufferedRequest) -> &str {
    let header = request.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    header.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests;
