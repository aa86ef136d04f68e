//! URLs, read as Go's `net/url` reads them.

use std::sync::Arc;

use crate::encoding::decode_percent;
use crate::error::EvalError;
use crate::eval::{Evaluated, Invocation};
use crate::function::Function;
use crate::library::Opaque;
use crate::value::map::OwnedMap;
use crate::value::{Map, Value};

/// The parts of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: String,
    host: String,
    path: String,
    query: Option<String>,
    fragment: String,
}

pub(crate) fn call<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match call.function {
        Function::IsURL => return Ok(Value::Bool(Url::parse(call.text(0)?, true).is_ok())),
        Function::ToUrl => {
            let text = call.text(0)?;
            let parsed = Url::parse(text, true).and_then(|_| Url::parse(text, false));
            return match parsed {
                Ok(url) => Ok(Value::opaque(Opaque::Url(url))),
                Err(reason) => {
                    let prefix = "URL parse error during conversion from string";
                    Err(EvalError::new(format!("{prefix}: parse {text:?}: {reason}")))
                }
            };
        }
        _ => {}
    }
    let Value::Opaque(opaque) = &call.args[0] else { return Err(call.no_overload()) };
    let Opaque::Url(url) = &**opaque else { return Err(call.no_overload()) };
    Ok(match call.function {
        Function::GetScheme => Value::from(url.scheme.clone()),
        Function::GetHost => Value::from(url.host.clone()),
        Function::GetHostname => Value::from(url.host_and_port().0.to_owned()),
        Function::GetPort => Value::from(url.host_and_port().1.to_owned()),
        Function::GetEscapedPath => Value::from(escape_path(&url.path)),
        _ => url.query_values(),
    })
}

/// Why the text is no request URI.
pub(crate) fn request_uri_problem(text: &str) -> Option<String> {
    Url::parse(text, true).err().map(|reason| format!("parse {text:?}: {reason}"))
}

/// Encodes what may not stand in a path; escapes that are there stay.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%[]".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn bad_escape(text: &str) -> Option<String> {
    let at = text.match_indices('%').map(|(at, _)| at).find(|&at| {
        let hex = text.as_bytes().get(at + 1..at + 3);
        !hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    })?;
    let end = (at + 1..=(at + 3).min(text.len())).rev().find(|end| text.is_char_boundary(*end))?;
    Some(format!("invalid URL escape {:?}", &text[at..end]))
}

impl Url {
    /// `request` demands an absolute URI or path, and takes a fragment as part of the rest.
    fn parse(text: &str, request: bool) -> Result<Url, String> {
        let mut url = Url::default();
        let mut rest = text;
        if text.bytes().any(|b| b < 0x20 || b == 0x7F) {
            return Err("net/url: invalid control character in URL".into());
        }
        if !request && let Some((before, fragment)) = text.split_once('#') {
            rest = before;
            fragment.clone_into(&mut url.fragment);
        }
        if rest.is_empty() && request {
            return Err("empty url".into());
        }
        if rest == "*" {
            url.path = rest.to_owned();
            return Ok(url);
        }
        rest = url.take_scheme(rest)?;
        if let Some((before, query)) = rest.split_once('?') {
            url.query = Some(query.to_owned());
            rest = before;
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if request {
                return Err("invalid URI for request".into());
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        let authority =
            rest.strip_prefix("//").filter(|after| !url.scheme.is_empty() || (!request && !after.starts_with('/')));
        if let Some(after) = authority {
            let end = after.find('/').unwrap_or(after.len());
            url.take_authority(&after[..end])?;
            rest = &after[end..];
        }
        if let Some(problem) = bad_escape(rest) {
            return Err(problem);
        }
        rest.clone_into(&mut url.path);
        Ok(url)
    }

    fn take_scheme<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        for (at, b) in text.bytes().enumerate() {
            match b {
                b'a'..=b'z' | b'A'..=b'Z' => {}
                b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
                b':' if at == 0 => return Err("missing protocol scheme".into()),
                b':' => {
                    self.scheme = text[..at].to_ascii_lowercase();
                    return Ok(&text[at + 1..]);
                }
                _ => return Ok(text),
            }
        }
        Ok(text)
    }

    fn take_authority(&mut self, authority: &str) -> Result<(), String> {
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                if user.bytes().any(|b| !(b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b))) {
                    return Err("net/url: invalid userinfo".into());
                }
                user.clone_into(&mut self.user);
                host
            }
            None => authority,
        };
        let after = if host.starts_with('[') {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            &host[end + 1..]
        } else {
            host.rfind(':').map_or("", |at| &host[at..])
        };
        let port = after.strip_prefix(':');
        let valid = after.is_empty() || port.is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
        if !valid {
            return Err(format!("invalid port {after:?} after host"));
        }
        if let Some(problem) = bad_escape(host) {
            return Err(problem);
        }
        let bad = host
            .chars()
            .find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(*c));
        if let Some(bad) = bad {
            return Err(format!("invalid character {:?} in host name", bad.to_string()));
        }
        self.host = decode_percent(host, false).unwrap_or_default();
        Ok(())
    }

    fn host_and_port(&self) -> (&str, &str) {
        let host = self.host.as_str();
        if let Some(inner) = host.strip_prefix('[') {
            let (name, rest) = inner.split_once(']').unwrap_or((inner, ""));
            return (name, rest.strip_prefix(':').unwrap_or(""));
        }
        match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, port),
            _ => (host, ""),
        }
    }

    /// Parameters by name; what cannot be decoded is left out.
    fn query_values<'a>(&self) -> Value<'a> {
        let mut names: Vec<(String, Vec<Value<'a>>)> = Vec::new();
        for pair in
            self.query.as_deref().unwrap_or("").split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'))
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode_percent(name, true), decode_percent(value, true)) else { continue };
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(Value::from(value)),
                None => names.push((name, vec![Value::from(value)])),
            }
        }
        let mut map = OwnedMap::default();
        for (name, values) in names {
            map.insert(Value::from(name), Value::list(values));
        }
        Value::Map(Map::Owned(Arc::new(map)))
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if !self.opaque.is_empty() {
            out.push_str(&self.opaque);
        } else {
            if !self.scheme.is_empty() || !self.host.is_empty() || !self.user.is_empty() {
                let empty = self.host.is_empty() && self.user.is_empty() && self.path.is_empty();
                if !empty || !self.path.is_empty() {
                    out.push_str("//");
                }
                if !self.user.is_empty() {
                    out.push_str(&self.user);
                    out.push('@');
                }
                out.push_str(&self.host);
            }
            out.push_str(&escape_path(&self.path));
        }
        if let Some(query) = &self.query {
            out.push('?');
            out.push_str(query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&self.fragment);
        }
        out
    }
}
