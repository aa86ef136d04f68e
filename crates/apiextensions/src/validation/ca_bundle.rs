//! CA bundles of webhooks: PEM with at least one certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a bundle, in base64 as JSON has it, holds no certificate; `None` if it is valid.
pub(crate) fn ca_bundle_problem(bundle: &str) -> Option<String> {
    let prefix = "unable to load root certificates";
    let bundle = STANDARD.decode(bundle).unwrap_or_default();
    let bundle = String::from_utf8_lossy(&bundle);
    let mut rest = &*bundle;
    let mut malformed = None;
    while !rest.is_empty() {
        let Some((block, after)) = next_block(rest) else {
            return Some(malformed.unwrap_or_else(|| format!("{prefix}: unable to parse bytes as PEM block")));
        };
        rest = after;
        let Some(der) = block else { continue };
        match X509Certificate::from_der(&der) {
            Ok(_) => return None,
            Err(_) => malformed = Some(format!("{prefix}: failed to parse certificate: x509: malformed certificate")),
        }
    }
    Some(malformed.unwrap_or_else(|| format!("{prefix}: no valid certificate authority data seen")))
}

/// The next PEM block, as DER if it is a certificate without headers, and the text after it.
fn next_block(text: &str) -> Option<(Option<Vec<u8>>, &str)> {
    let mut from = text;
    loop {
        let begin = from.find("-----BEGIN ")?;
        let (label, body) = from[begin + "-----BEGIN ".len()..].split_once("-----")?;
        let end = format!("-----END {label}-----");
        let Some(at) = body.find(&end) else {
            from = body;
            continue;
        };
        let (content, after) = (&body[..at], &body[at + end.len()..]);
        let after = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')).unwrap_or(after);
        let has_headers = content.contains(':');
        let compact: String = content.chars().filter(|character| !character.is_ascii_whitespace()).collect();
        match STANDARD.decode(&compact) {
            Ok(der) => return Some(((label == "CERTIFICATE" && !has_headers).then_some(der), after)),
            Err(_) if has_headers => return Some((None, after)),
            Err(_) => from = after,
        }
    }
}
