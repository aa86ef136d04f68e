//! What a request says in its query: list, watch and write options, and the token of a next page.

use api::selector::{FieldSelector, LabelSelector};
use api::{FieldError, Status, query};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use object::managed_fields;
use registry::read::ReadConsistency;
use serde::{Deserialize, Serialize};
use store::Revision;

use crate::error_status::status_for_options;

/// The options of a list or a watch.
#[derive(Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) label_selector: LabelSelector,
    pub(crate) field_selector: FieldSelector,
    /// `None`: as many as there are.
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) requested_version: RequestedVersion,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

/// What options are for: not all of them go with everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadVerb {
    /// A get knows a resourceVersion and no way to match it.
    Get,
    List,
    Watch,
}

/// Which state a read asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestedVersion {
    /// No resourceVersion: the newest.
    #[default]
    Unset,
    /// `0`: any.
    Any,
    /// At least this one.
    NotOlderThan(Revision),
    /// This one.
    Exact(Revision),
    /// A revision without a match, which means different things to a list with and without a limit, and to a watch.
    Unmatched(Revision),
}

impl ListOptions {
    pub(crate) fn parse(query: &str, verb: ReadVerb) -> Result<Self, Status> {
        let text = |name| query::first_value(query, name).filter(|value| !value.is_empty());
        let flag = |name| query::first_value(query, name).map(|value| query::is_true_parameter(&value));
        let number = |name| -> Result<Option<u64>, Status> {
            let number = text(name).map(|value| query::parse_int(&value)).transpose().map_err(Status::bad_request)?;
            // A negative number counts as none, as in kube-apiserver.
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

    /// What of a list's options contradicts the rest, in kube-apiserver's words and order.
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

    /// The same of a watch's options.
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

    /// How recent a list must be.
    pub(crate) fn list_consistency(&self) -> ReadConsistency {
        match self.requested_version {
            RequestedVersion::Unset => ReadConsistency::Latest,
            RequestedVersion::Any => ReadConsistency::Any,
            RequestedVersion::NotOlderThan(revision) => ReadConsistency::NotOlderThan(revision),
            RequestedVersion::Exact(revision) => ReadConsistency::Exact(revision),
            // With a limit this always meant exactly, because the next page must show the same state.
            RequestedVersion::Unmatched(revision) if self.limit.is_some() => ReadConsistency::Exact(revision),
            RequestedVersion::Unmatched(revision) => ReadConsistency::NotOlderThan(revision),
        }
    }
}

impl RequestedVersion {
    /// A match that makes no sense is told of elsewhere, together with everything else that does not.
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

/// How a resourceVersion is to be matched.
const RESOURCE_VERSION_MATCH: &str = "resourceVersionMatch";

/// Where a list goes on: Kubernetes' token, so that one server's pages can be fetched from another, a real one too.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
}

/// The only version of the token there is.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    /// Goes on at `start`, a key without the list's prefix, in the state of `revision`.
    pub(crate) fn new(revision: Revision, start: &str) -> Self {
        Self { v: TOKEN_VERSION.to_owned(), rv: revision.0.cast_signed(), start: start.to_owned() }
    }

    /// Goes on at the same key in whatever state there is then: what a client gets whose state is forgotten.
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
        // The start must not lead out of the list's prefix.
        let is_clean = !token.start.is_empty()
            && token.start.trim_end_matches('\0').split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_clean {
            return Err(invalid(&format!("continue key is not valid: {}", token.start)));
        }
        Ok(token)
    }

    /// The state to go on in; `None`: whatever there is.
    pub(crate) fn revision(&self) -> Option<Revision> {
        u64::try_from(self.rv).ok().map(Revision)
    }

    pub(crate) fn start(&self) -> &str {
        &self.start
    }
}

/// The options of a create, update, patch or delete that are common to them.
#[derive(Debug, Default)]
pub(crate) struct WriteOptions {
    /// Everything but the write itself.
    pub(crate) is_dry_run: bool,
    /// Who writes, for managed fields.
    pub(crate) field_manager: String,
}

impl WriteOptions {
    pub(crate) fn from_request(request: &edge::Request) -> Result<Self, Status> {
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let kind = match *request.method() {
            http::Method::POST => "CreateOptions",
            http::Method::PATCH => "PatchOptions",
            _ => "UpdateOptions",
        };
        Self::parse(request.uri().query().unwrap_or_default(), agent)
            .map_err(|errors| status_for_options(kind, &errors))
    }

    fn parse(query: &str, user_agent: &str) -> Result<Self, Vec<FieldError>> {
        let dry_runs = || query::pairs(query).filter(|(key, value)| key == "dryRun" && !value.is_empty());
        let unknown = dry_runs().filter(|(_, value)| value != "All");
        let mut errors: Vec<_> =
            unknown.map(|(_, value)| FieldError::not_supported("dryRun", value.into_owned(), &["All"])).collect();
        let field_manager = query::first_value(query, "fieldManager").unwrap_or_default();
        errors.extend(object::validate::validate_manager_name(&field_manager, "fieldManager"));
        if !errors.is_empty() {
            return Err(errors);
        }
        let dry_run = dry_runs().next().is_some();
        Ok(Self { is_dry_run: dry_run, field_manager: managed_fields::manager_name(&field_manager, user_agent) })
    }
}

#[cfg(test)]
mod tests;
