//! The request line: method, path and query.

use std::borrow::Cow;

use api::target::{NonResourceTarget, ResourceTarget, TargetError};
use api::{Target, Verb};

pub(crate) const SEEDS: &[&str] = &[
    "GET /api/v1/namespaces/default/pods/web-0/log?follow=true",
    "GET /apis/apps/v1/deployments?fieldSelector=metadata.name%3Dweb&watch=1&limit=500&timeoutSeconds=5",
    "DELETE /apis/g.example.com/v1beta1/namespaces/n/things?labelSelector=a+in+%28b%2Cc%29",
    "POST /api/v1/watch/namespaces/n/pods/p",
    "PUT /api/v1/proxy/nodes/a:80/x/y%2Fz//?q",
    "PATCH /api/v1/namespaces/n/finalize",
    "OPTIONS /healthz/etcd?verbose",
    "HEAD //apis///v1/%e4%b8%96/",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "/",
    "?",
    "&",
    "=",
    "%2F",
    "%",
    "%zz",
    "%ff",
    "+",
    ";",
    "/api",
    "/apis",
    "/v1",
    "/watch",
    "/proxy",
    "/namespaces",
    "/status",
    "/finalize",
    "watch=",
    "fieldSelector=metadata.name%3D",
    "labelSelector=",
    "limit=",
    "GET ",
    "DELETE ",
];

/// A request line parses or gives an error that names the faulty part. A parsed target keeps the line byte for byte,
/// borrows everything without escapes, and does not depend on how the path is escaped.
pub fn request_line(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (method, line) = text.split_once(' ').unwrap_or(("GET", &text));
    let target = match Target::parse(method, line) {
        Ok(target) => target,
        Err(error) => return check_error(&error, line),
    };
    assert_eq!(target.path_and_query(), line);
    assert_eq!(target.clone().into_owned(), target);
    let _ = (target.verb(), target.is_long_running());
    check_borrows(&target, line);
    match &target {
        Target::NonResource(NonResourceTarget { verb, .. }) => assert_eq!(**verb, *method.to_lowercase()),
        Target::Resource(resource) => check_verb(method, resource),
    }
    check_escaped_path_is_equivalent(method, &target, line);
}

fn check_error(error: &TargetError, line: &str) {
    let path = path_of(line);
    match error {
        TargetError::InvalidEscape { escape } => assert!(escape.starts_with('%') && path.contains(&**escape)),
        TargetError::NotUtf8 { path: found } => assert!(**found == *path && path.contains('%')),
        TargetError::MissingResourceAfterVerb { url } => assert_eq!(**url, *line),
    }
    assert!(!error.to_string().is_empty());
}

/// Parts without escapes must be borrowed from the line.
fn check_borrows(target: &Target<'_>, line: &str) {
    let memory = line.as_bytes().as_ptr_range();
    let is_borrowed = |part: &str| part.is_empty() || memory.contains(&part.as_ptr());
    let path_is_plain = !path_of(line).contains('%');
    let line_is_plain = !line.contains(['%', '+']);
    assert!(is_borrowed(target.path_and_query()));
    match target {
        Target::NonResource(NonResourceTarget { path, .. }) => assert!(is_borrowed(path) || !path_is_plain),
        Target::Resource(target) => {
            let ResourceTarget { group, version, namespace, resource, subresource, subpath: rest, .. } = target;
            let parts = [group, version, namespace, resource, subresource, rest];
            assert!(!path_is_plain || parts.into_iter().all(|part| is_borrowed(part)));
            let selectors = [&target.field_selector, &target.label_selector];
            assert!(!line_is_plain || selectors.into_iter().all(|selector| is_borrowed(selector)));
        }
    }
}

/// The verb must fit the method and the presence of a name.
fn check_verb(method: &str, resource: &ResourceTarget<'_>) {
    let is_nameless = resource.name.is_empty();
    match resource.verb {
        Verb::Get => assert!(matches!(method, "GET" | "HEAD") && !is_nameless),
        Verb::List => assert!(matches!(method, "GET" | "HEAD")),
        Verb::Delete => assert!(method == "DELETE" && !is_nameless),
        Verb::DeleteCollection => assert!(method == "DELETE" && is_nameless),
        Verb::Create => assert_eq!(method, "POST"),
        Verb::Update => assert_eq!(method, "PUT"),
        Verb::Patch => assert_eq!(method, "PATCH"),
        Verb::Watch | Verb::Proxy => {}
        Verb::Unknown => assert!(!matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE")),
    }
    let heeds_selectors = matches!(resource.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    assert!(heeds_selectors || (resource.field_selector.is_empty() && resource.label_selector.is_empty()));
}

/// Escaping every byte of the path must not change the target.
fn check_escaped_path_is_equivalent(method: &str, target: &Target<'_>, line: &str) {
    let path = path_of(line);
    if path.contains('%') {
        return;
    }
    let digit = |value: u8| char::from_digit(value.into(), 16).expect("a nibble is a hex digit");
    let escape = |byte: u8| ['%', digit(byte >> 4), digit(byte & 0xf)];
    let escaped = path.bytes().flat_map(escape).collect::<String>() + &line[path.len()..];
    let mut same = Target::parse(method, &escaped).expect("escaped path parses").into_owned();
    match &mut same {
        Target::NonResource(NonResourceTarget { path_and_query: raw, .. })
        | Target::Resource(ResourceTarget { path_and_query: raw, .. }) => {
            *raw = Cow::Owned(line.to_owned());
        }
    }
    assert_eq!(&same, target);
}

fn path_of(line: &str) -> &str {
    line.split_once('?').map_or(line, |(path, _)| path)
}
