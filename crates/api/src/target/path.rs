//! Splits a request path into the parts it names.

use std::borrow::Cow;

use super::{TargetError, Verb};
use crate::query::unescape;

/// The structure of a resource path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathForm {
    /// False if the path begins with several slashes: kube-apiserver authorizes it as a resource but has no route for
    /// it.
    pub is_rooted: bool,
    /// The segment between the version and the rest.
    pub prefix: VerbPrefix,
    /// True if `namespaces/<namespace>` precedes the resource; false for the paths of a namespace itself.
    pub in_namespace: bool,
    /// The last segment of the path.
    pub depth: PathDepth,
}

/// The deprecated way to specify a verb in the path. With a prefix the query is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerbPrefix {
    /// The verb follows from the method.
    None,
    /// `/watch/`.
    Watch,
    /// `/proxy/`.
    Proxy,
}

/// How far a path reaches, counted from the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathDepth {
    /// The resource: all objects.
    Collection,
    /// The name of an object.
    Item,
    /// A subresource.
    Subresource,
    /// Beyond the subresource.
    Subpath,
}

/// The parts of a path, before the query is evaluated.
pub(super) struct PathParts<Text> {
    pub(super) verb: Verb,
    pub(super) form: PathForm,
    pub(super) group: Text,
    pub(super) version: Text,
    pub(super) namespace: Text,
    pub(super) resource: Text,
    pub(super) name: Text,
    pub(super) subresource: Text,
    pub(super) subpath: Text,
}

impl<'p> PathParts<&'p str> {
    pub(super) fn map<Text>(self, convert: impl Fn(&'p str) -> Text) -> PathParts<Text> {
        PathParts {
            verb: self.verb,
            form: self.form,
            group: convert(self.group),
            version: convert(self.version),
            namespace: convert(self.namespace),
            resource: convert(self.resource),
            name: convert(self.name),
            subresource: convert(self.subresource),
            subpath: convert(self.subpath),
        }
    }
}

/// `/watch` or `/proxy` without a resource.
pub(super) struct MissingResourceAfterVerb;

/// Decodes a path; borrows it if it has no escapes.
pub(super) fn decode_path(path: &str) -> Result<Cow<'_, str>, TargetError> {
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path));
    }
    let bytes = unescape(path, b'+')
        .map_err(|at| TargetError::InvalidEscape { escape: path[at..].chars().take(3).collect() })?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| TargetError::NotUtf8 { path: path.into() })
}

/// Splits a decoded path; `None` if it names no resource.
pub(super) fn split_path<'p>(
    method: &str,
    path: &'p str,
) -> Result<Option<PathParts<&'p str>>, MissingResourceAfterVerb> {
    let mut segments = PathSegments::new(path);
    let group = match segments.next() {
        Some("api") => Some(""),
        Some("apis") => segments.next(),
        _ => None,
    };
    // A segment must follow the version, even an empty one.
    let (Some(group), Some(version), Some(first)) = (group, segments.next(), segments.peek()) else { return Ok(None) };
    let (verb, prefix) = match first {
        "watch" => (Verb::Watch, VerbPrefix::Watch),
        "proxy" => (Verb::Proxy, VerbPrefix::Proxy),
        _ => (Verb::from_method(method), VerbPrefix::None),
    };
    if prefix != VerbPrefix::None {
        segments.next();
        segments.peek().ok_or(MissingResourceAfterVerb)?;
    }
    let (namespace, in_namespace) = take_namespace(&mut segments);
    let resource = segments.next().unwrap_or("");
    let name = segments.next();
    let subresource = if verb == Verb::Proxy { None } else { segments.next() };
    let depth = match (name, subresource, segments.remaining) {
        (None, _, _) => PathDepth::Collection,
        (Some(_), None, _) => PathDepth::Item,
        (Some(_), Some(_), None) => PathDepth::Subresource,
        (Some(_), Some(_), Some(_)) => PathDepth::Subpath,
    };
    Ok(Some(PathParts {
        verb,
        form: PathForm { is_rooted: !path.starts_with("//"), prefix, in_namespace, depth },
        group,
        version,
        namespace,
        resource,
        name: name.unwrap_or(""),
        subresource: subresource.unwrap_or(""),
        subpath: segments.remaining.unwrap_or(""),
    }))
}

/// Consumes `namespaces/<namespace>` if a resource follows; otherwise the namespace itself is the object. `status`
/// and `finalize` are subresources of namespaces. Returns the namespace and whether it was consumed.
fn take_namespace<'p>(segments: &mut PathSegments<'p>) -> (&'p str, bool) {
    let mut ahead = *segments;
    if ahead.next() != Some("namespaces") {
        return ("", false);
    }
    let namespace = ahead.next().unwrap_or("");
    let is_skipped = ahead.peek().is_some_and(|segment| !matches!(segment, "status" | "finalize"));
    if is_skipped {
        *segments = ahead;
    }
    (namespace, is_skipped)
}

/// The segments of a path without leading and trailing slashes; empty inner segments count.
#[derive(Clone, Copy)]
struct PathSegments<'p> {
    /// `None` at the end; an empty string is an empty segment.
    remaining: Option<&'p str>,
}

impl<'p> PathSegments<'p> {
    fn new(path: &'p str) -> Self {
        let path = path.trim_matches('/');
        Self { remaining: (!path.is_empty()).then_some(path) }
    }

    fn next(&mut self) -> Option<&'p str> {
        let rest = self.remaining?;
        match rest.split_once('/') {
            Some((segment, rest)) => {
                self.remaining = Some(rest);
                Some(segment)
            }
            None => self.remaining.take(),
        }
    }

    fn peek(&self) -> Option<&'p str> {
        { *self }.next()
    }
}
