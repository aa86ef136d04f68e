//! What a request says in its query: list, watch and write options, and the token of a next page.

use api::Status;
use api::query;
use api::selector::{FieldSelector, LabelSelector};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use object::managed_fields;
use registry::read::Freshness;
use serde::{Deserialize, Serialize};
use store::Revision;

/// The options of a list or a watch.
#[derive(Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// `None`: as many as there are.
    pub(crate) limit: Option<usize>,
    pub(crate) token: Option<String>,
    pub(crate) version: Version,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

/// Which state a read asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
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
    At(Revision),
}

impl ListOptions {
    pub(crate) fn parse(query: &str) -> Result<Self, Status> {
        let text = |name| query::first(query, name).filter(|value| !value.is_empty());
        let flag = |name| query::first(query, name).map(|value| query::is_true(&value));
        let number = |name| -> Result<Option<u64>, Status> {
            text(name)
                .map(|value| {
                    value.parse::<i64>().map(|number| u64::try_from(number).unwrap_or(0)).map_err(|_| {
                        Status::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
                    })
                })
                .transpose()
        };
        let labels = text("labelSelector").unwrap_or_default();
        let fields = text("fieldSelector").unwrap_or_default();
        let options = Self {
            labels: LabelSelector::parse(&labels).map_err(|error| Status::bad_request(error.to_string()))?,
            fields: FieldSelector::parse(&fields).map_err(|error| Status::bad_request(error.to_string()))?,
            limit: number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok()),
            token: text("continue").map(Into::into),
            version: match (text("resourceVersion").as_deref(), text("resourceVersionMatch").as_deref()) {
                // A watch with initial events names the match and may leave the version open: the newest.
                (None, Some("NotOlderThan")) if flag("sendInitialEvents").is_some() => Version::Unset,
                (version, how) => Version::parse(version, how)?,
            },
            allow_bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: flag("sendInitialEvents"),
            timeout_seconds: number("timeoutSeconds")?,
        };
        if options.token.is_some() && options.version != Version::Unset && options.version != Version::Any {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(options)
    }

    /// How recent a list must be.
    pub(crate) fn list_freshness(&self) -> Freshness {
        match self.version {
            Version::Unset => Freshness::Latest,
            Version::Any => Freshness::Any,
            Version::NotOlderThan(revision) => Freshness::AtLeast(revision),
            Version::Exact(revision) => Freshness::Exactly(revision),
            // With a limit this always meant exactly, because the next page must show the same state.
            Version::At(revision) if self.limit.is_some() => Freshness::Exactly(revision),
            Version::At(revision) => Freshness::AtLeast(revision),
        }
    }
}

impl Version {
    fn parse(version: Option<&str>, how: Option<&str>) -> Result<Self, Status> {
        let forbidden = |message: &str| Err(Status::bad_request(message));
        let revision = match version {
            None if how.is_some() => {
                return forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            None => return Ok(Self::Unset),
            Some(text) => text.parse::<u64>().map(Revision).map_err(|_| {
                Status::bad_request(format!("invalid resource version \"{text}\": strconv.ParseUint: invalid syntax"))
            })?,
        };
        match how {
            None if revision == Revision(0) => Ok(Self::Any),
            None => Ok(Self::At(revision)),
            Some("NotOlderThan") if revision == Revision(0) => Ok(Self::Any),
            Some("NotOlderThan") => Ok(Self::NotOlderThan(revision)),
            Some("Exact") if revision == Revision(0) => {
                forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            }
            Some("Exact") => Ok(Self::Exact(revision)),
            Some(other) => forbidden(&format!(
                "resourceVersionMatch: Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\""
            )),
        }
    }
}

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
    pub(crate) fn inconsistent(&self) -> Self {
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
    pub(crate) dry_run: bool,
    /// Who writes, for managed fields.
    pub(crate) manager: String,
}

impl WriteOptions {
    pub(crate) fn of(request: &edge::Request) -> Result<Self, Status> {
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        Self::parse(request.uri().query().unwrap_or_default(), agent)
    }

    fn parse(query: &str, user_agent: &str) -> Result<Self, Status> {
        let mut dry_run = false;
        for (_, value) in query::pairs(query).filter(|(key, _)| key == "dryRun") {
            match &*value {
                "All" => dry_run = true,
                other => {
                    let message = format!("dryRun: Unsupported value: \"{other}\": supported values: \"All\"");
                    return Err(Status::bad_request(message));
                }
            }
        }
        let field_manager = query::first(query, "fieldManager").unwrap_or_default();
        let errors = object::validate::manager(&field_manager, "fieldManager");
        if !errors.is_empty() {
            return Err(Status::invalid(api::GroupKind { group: "meta.k8s.io", kind: "UpdateOptions" }, "", &errors));
        }
        Ok(Self { dry_run, manager: managed_fields::manager_name(&field_manager, user_agent) })
    }
}

#[cfg(test)]
mod tests;
