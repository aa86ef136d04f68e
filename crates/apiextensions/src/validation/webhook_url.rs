//! URLs, read as Go's `net/url` reads them.

use api::quote::Quoted;

/// The parts of a URL that validation needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedUrl {
    /// In lower case.
    pub(super) scheme: String,
    /// With the port.
    pub(super) host: String,
    pub(super) user: Option<Userinfo>,
    pub(super) query: String,
    pub(super) fragment: String,
}

/// The user and password before `@`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Userinfo(pub(super) String);

/// Parses a URL, or says why it is none.
pub(super) fn parse_url(url: &str) -> Result<ParsedUrl, String> {
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let mut parsed = parse(before, false).map_err(|problem| format!("parse {}: {problem}", Quoted(before)))?;
    parsed.fragment = unescape(fragment).map_err(|problem| format!("parse {}: {problem}", Quoted(url)))?;
    Ok(parsed)
}

/// Parses an absolute URI or path, as in a request line.
pub(super) fn parse_request_uri(url: &str) -> Option<ParsedUrl> {
    parse(url, true).ok()
}

fn parse(url: &str, is_request: bool) -> Result<ParsedUrl, String> {
    if url.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if url.is_empty() && is_request {
        return Err("empty url".to_owned());
    }
    let mut parsed = ParsedUrl::default();
    if url == "*" {
        return Ok(parsed);
    }
    let mut rest = take_scheme(url, &mut parsed.scheme)?;
    if let Some((before, query)) = rest.split_once('?') {
        (rest, parsed.query) = (before, query.to_owned());
    }
    if !rest.starts_with('/') {
        if !parsed.scheme.is_empty() {
            return Ok(parsed);
        }
        if is_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_authority = !parsed.scheme.is_empty() || (!is_request && !rest.starts_with("///"));
    if let Some(after) = rest.strip_prefix("//").filter(|_| has_authority) {
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        rest = path;
        take_authority(authority, &mut parsed)?;
    }
    unescape(rest)?;
    Ok(parsed)
}

fn take_scheme<'u>(url: &'u str, scheme: &mut String) -> Result<&'u str, String> {
    let end = url.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)));
    match end {
        Some(0) if url.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some(end) if url.as_bytes()[end] == b':' && url.as_bytes()[0].is_ascii_alphabetic() => {
            *scheme = url[..end].to_ascii_lowercase();
            Ok(&url[end + 1..])
        }
        Some(_) | None => Ok(url),
    }
}

fn take_authority(authority: &str, parsed: &mut ParsedUrl) -> Result<(), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    parsed.host = parse_host(&parsed.scheme, host)?;
    if let Some(user) = user {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(is_allowed) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        unescape(user)?;
        parsed.user = Some(Userinfo(user.to_owned()));
    }
    Ok(())
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    let colon_port = match host.rfind('[') {
        Some(1..) => return Err("invalid IP-literal".to_owned()),
        Some(0) => &host[host.rfind(']').ok_or("missing ']' in host")? + 1..],
        // A host of other schemes may have several colons.
        None if ["http", "https"].contains(&scheme) => host.find(':').map_or("", |at| &host[at..]),
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let port = colon_port.strip_prefix(':');
    let is_port = colon_port.is_empty() || port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {} after host", Quoted(colon_port)));
    }
    let is_allowed = |character: char| {
        !character.is_ascii() || character.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(character)
    };
    let unescaped = unescape(host)?;
    if let Some(other) = host.chars().find(|character| !is_allowed(*character)) {
        return Err(format!("invalid character {} in host name", Quoted(&other.to_string())));
    }
    Ok(unescaped)
}

/// Resolves percent escapes; bytes that are no text are replaced.
fn unescape(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'%' {
            out.push(byte);
            at += 1;
            continue;
        }
        let digits = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let is_hexadecimal = bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit);
        let Some(value) = digits.filter(|_| is_hexadecimal) else {
            let end = (at + 3).min(text.len());
            return Err(format!("invalid URL escape {}", Quoted(&String::from_utf8_lossy(&bytes[at..end]))));
        };
        out.push(value);
        at += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}
