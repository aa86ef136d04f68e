//! URIs as Go's `url.ParseRequestURI` accepts them: absolute ones, and absolute paths.

use std::net::Ipv6Addr;

pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    match rest.strip_prefix("//") {
        Some(after) if !scheme.is_empty() => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            is_authority(&scheme.to_lowercase(), authority) && is_escaped(path)
        }
        _ => is_escaped(rest),
    }
}

/// The scheme, empty if there is none, and the rest; `None` if the text begins with a colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return None,
            ':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

/// Whether two hexadecimal digits follow every percent sign.
fn is_escaped(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let mut percent_signs = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    percent_signs.all(|(at, _)| is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2)))
}

fn is_authority(scheme: &str, authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let is_user_character = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    let is_user = user.is_none_or(|user| user.chars().all(is_user_character) && is_escaped_user(user));
    is_user && is_host(scheme, host)
}

fn is_escaped_user(user: &str) -> bool {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    is_escaped(name) && is_escaped(password)
}

fn is_host(scheme: &str, host: &str) -> bool {
    match host.rfind('[') {
        Some(0) => return is_bracketed_host(host),
        Some(_) => return false,
        None => {}
    }
    let colon = if matches!(scheme, "http" | "https") { host.find(':') } else { host.rfind(':') };
    colon.is_none_or(|colon| is_port(&host[colon..])) && is_host_text(host, false)
}

fn is_bracketed_host(host: &str) -> bool {
    let Some((inner, port)) = host[1..].rsplit_once(']') else { return false };
    let (address, zone) = match inner.find("%25") {
        Some(at) => (&inner[..at], Some(&inner[at..])),
        None => (inner, None),
    };
    let is_zone = zone.is_none_or(|zone| zone.len() > 3 && is_host_text(zone, true));
    is_port(port) && is_zone && is_host_text(address, false) && address.parse::<Ipv6Addr>().is_ok()
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a host, or the zone of an address, has no characters and escapes that it may not have.
fn is_host_text(text: &str, is_zone: bool) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte);
    let bytes = text.as_bytes();
    let is_allowed = |(at, byte): (usize, &u8)| {
        if *byte != b'%' {
            return !byte.is_ascii() || is_plain(*byte);
        }
        let escaped = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        escaped.is_some_and(|escaped| match is_zone {
            true => matches!(escaped, b'%' | b' ') || is_plain(escaped),
            false => !escaped.is_ascii() || escaped == b'%',
        })
    };
    is_escaped(text) && bytes.iter().enumerate().all(is_allowed)
}
