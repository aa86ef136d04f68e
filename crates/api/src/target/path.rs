//! The path of a request, split into what it names.

use std::borrow::Cow;

use super::{TargetError, Verb};
use crate::query::unescape;

/// Which segments the path of a resource has, whether they are empty or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathForm {
    /// False if the path begins with more than one slash: kube-apiserver authorizes it as a resource and has no route for it.
    pub is_rooted: bool,
    /// What stands between the version and the rest.
    pub prefix: VerbPrefix,
    /// True if `namespaces/<namespace>` stands before the resource. False for the paths of a namespace itself.
    pub in_namespace: bool,
    /// The last segment that the path has.
    pub depth: PathDepth,
}

/// The old way to name a verb in the path. With a prefix the query is not heeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerbPrefix {
    /// No prefix: the verb follows from the method.
    None,
    /// `/watch/`.
    Watch,
    /// `/proxy/`.
    Proxy,
}

/// How far a path goes, counted from the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathDepth {
    /// To the resource: all objects.
    Collection,
    /// To the name of an object.
    Item,
    /// To a subresource.
    Subresource,
    /// Beyond the subresource.
    Subpath,
}

/// What a path names, before the query is looked at.
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

/// `/watch` or `/proxy` with nothing behind.
pub(super) struct MissingResourceAfterVerb;

/// Decodes a path; it stays borrowed if it holds no escape.
pub(super) fn decode_path(path: &str) -> Result<Cow<'_, str>, TargetError> {
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path));
    }
    let bytes = unescape(path, b'+')
        .map_err(|at| TargetError::InvalidEscape { escape: path[at..].chars().take(3).collect() })?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| TargetError::NotUtf8 { path: path.into() })
}

/// Splits a decoded path. `None` if it names no resource.
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
    // There must be a segment behind the version, be it empty.
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

/// Reads `namespaces/<namespace>` and skips it if a resource follows; if not, the namespace is itself the object. `status`
/// and `finalize` are subresources of namespaces, not resources in them. Returns the namespace, and whether it was skipped.
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

/// The segments of a path without the slashes at its ends; empty ones between slashes count.
#[derive(Clone, Copy)]
struct PathSegments<'p> {
    /// Nothing is left if this is absent; an empty segment is if it is empty.
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
