//! The path of a request, split into what it names.

use std::borrow::Cow;

use super::{TargetError, Verb};
use crate::query::unescape;

/// What a path names, before the query is looked at.
pub(super) struct Parts<Text> {
    pub(super) verb: Verb,
    /// Not so for the old `/watch/` and `/proxy/` prefixes, for which the query is not heeded.
    pub(super) verb_is_from_method: bool,
    pub(super) group: Text,
    pub(super) version: Text,
    pub(super) namespace: Text,
    pub(super) resource: Text,
    pub(super) name: Text,
    pub(super) subresource: Text,
    pub(super) rest: Text,
}

impl<'p> Parts<&'p str> {
    pub(super) fn map<Text>(self, convert: impl Fn(&'p str) -> Text) -> Parts<Text> {
        Parts {
            verb: self.verb,
            verb_is_from_method: self.verb_is_from_method,
            group: convert(self.group),
            version: convert(self.version),
            namespace: convert(self.namespace),
            resource: convert(self.resource),
            name: convert(self.name),
            subresource: convert(self.subresource),
            rest: convert(self.rest),
        }
    }
}

/// `/watch` or `/proxy` with nothing behind.
pub(super) struct NothingBehindVerb;

/// Decodes a path; it stays borrowed if it holds no escape.
pub(super) fn decode(path: &str) -> Result<Cow<'_, str>, TargetError> {
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path));
    }
    let bytes =
        unescape(path, b'+').map_err(|at| TargetError::Escape { escape: path[at..].chars().take(3).collect() })?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| TargetError::NotUtf8 { path: path.into() })
}

/// Splits a decoded path. `None` if it names no resource.
pub(super) fn split<'p>(method: &str, path: &'p str) -> Result<Option<Parts<&'p str>>, NothingBehindVerb> {
    let mut segments = Segments::of(path);
    let group = match segments.next() {
        Some("api") => Some(""),
        Some("apis") => segments.next(),
        _ => None,
    };
    // There must be a segment behind the version, be it empty.
    let (Some(group), Some(version), Some(first)) = (group, segments.next(), segments.peek()) else { return Ok(None) };
    let (verb, verb_is_from_method) = match first {
        "watch" => (Verb::Watch, false),
        "proxy" => (Verb::Proxy, false),
        _ => (Verb::of_method(method), true),
    };
    if !verb_is_from_method {
        segments.next();
        segments.peek().ok_or(NothingBehindVerb)?;
    }
    let namespace = skip_namespace(&mut segments);
    let resource = segments.next().unwrap_or("");
    let name = segments.next().unwrap_or("");
    let subresource = if verb == Verb::Proxy { "" } else { segments.next().unwrap_or("") };
    let rest = segments.rest.unwrap_or("");
    Ok(Some(Parts { verb, verb_is_from_method, group, version, namespace, resource, name, subresource, rest }))
}

/// Reads `namespaces/<namespace>` and skips it if a resource follows; if not, the namespace is itself the object. `status`
/// and `finalize` are subresources of namespaces, not resources in them.
fn skip_namespace<'p>(segments: &mut Segments<'p>) -> &'p str {
    let mut ahead = *segments;
    if ahead.next() != Some("namespaces") {
        return "";
    }
    let namespace = ahead.next().unwrap_or("");
    if ahead.peek().is_some_and(|segment| !matches!(segment, "status" | "finalize")) {
        *segments = ahead;
    }
    namespace
}

/// The segments of a path without the slashes at its ends; empty ones between slashes count.
#[derive(Clone, Copy)]
struct Segments<'p> {
    /// Nothing is left if this is absent; an empty segment is if it is empty.
    rest: Option<&'p str>,
}

impl<'p> Segments<'p> {
    fn of(path: &'p str) -> Self {
        let path = path.trim_matches('/');
        Self { rest: (!path.is_empty()).then_some(path) }
    }

    fn next(&mut self) -> Option<&'p str> {
        let rest = self.rest?;
        match rest.split_once('/') {
            Some((segment, rest)) => {
                self.rest = Some(rest);
                Some(segment)
            }
            None => self.rest.take(),
        }
    }

    fn peek(&self) -> Option<&'p str> {
        { *self }.next()
    }
}
