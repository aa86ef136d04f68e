//! Why a call failed, in the words of Go's HTTP client and of client-go.

use std::io;

use rustls::CertificateError;
use transport::peer::{DialError, PeerConnectionError};

/// A failed call of a webhook.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The configuration cannot be used.
    #[error("{0}")]
    InvalidConfig(String),
    /// Too many calls of this webhook are in flight. Nothing was sent.
    #[error("too many calls of the webhook at {url} are in flight")]
    Busy {
        /// The webhook's URL.
        url: String,
    },
    /// No response came.
    #[error("Post {url:?}: {reason}")]
    NoResponse {
        /// The request's URL.
        url: String,
        /// What failed.
        reason: String,
    },
    /// The response's status is not a success.
    #[error("{message}")]
    Refused {
        /// The status code.
        code: u16,
        /// client-go's text for the status.
        message: String,
    },
    /// The body of the response exceeds the limit.
    #[error("the response of the webhook at {url} is longer than {bytes_max} bytes")]
    TooLong {
        /// The webhook's URL.
        url: String,
        /// The limit.
        bytes_max: usize,
    },
}

/// The text after which the time was over.
pub const TIMED_OUT: &str = "context deadline exceeded";

/// Go's text for a failed dial. `name` is the expected name of the server.
pub fn dial_reason(error: &DialError, host: &str, port: u16, name: &str) -> String {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    match error {
        DialError::Unreachable(error) => match errno_text(error.kind()) {
            Some(text) => format!("dial tcp {address}: connect: {text}"),
            None if host.parse::<std::net::IpAddr>().is_err() => format!("dial tcp: lookup {host}: {error}"),
            None => format!("dial tcp {address}: {error}"),
        },
        DialError::Proxy(error) => error.to_string(),
        DialError::Tls(error) => tls_reason(error, name),
        DialError::TimedOut => TIMED_OUT.to_owned(),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the system has more kinds of errors than a dial has")]
fn errno_text(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::ConnectionRefused => Some("connection refused"),
        io::ErrorKind::HostUnreachable => Some("no route to host"),
        io::ErrorKind::NetworkUnreachable => Some("network is unreachable"),
        _ => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other reasons keep the words of rustls")]
fn tls_reason(error: &io::Error, name: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(reason)) = inner else {
        let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
        return if is_cut { "EOF".to_owned() } else { format!("tls: {error}") };
    };
    let reason = match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let wanted = if name.parse::<std::net::IpAddr>().is_ok() { "IpAddress(" } else { "DnsName(" };
            let names = presented.iter().filter_map(|presented| presented.strip_prefix(wanted));
            let names: Vec<&str> = names.map(|name| name.trim_end_matches(')').trim_matches('"')).collect();
            match &*names {
                [] => format!("x509: certificate is not valid for any names, but wanted to match {name}"),
                names => format!("x509: certificate is valid for {}, not {name}", names.join(", ")),
            }
        }
        CertificateError::NotValidForName => format!("x509: certificate is not valid for {name}"),
        CertificateError::Expired
        | CertificateError::NotValidYet
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYetContext { .. } => "x509: certificate has expired or is not yet valid".to_owned(),
        other => format!("x509: {other}"),
    };
    format!("tls: failed to verify certificate: {reason}")
}

/// The first I/O error among the causes: that of the connection.
fn connection_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e io::Error> {
    let cause = error.source()?;
    cause.downcast_ref().or_else(|| connection_error(cause))
}

/// Go's text for a connection that broke before the response.
#[expect(clippy::wildcard_enum_match_arm, reason = "the system has more kinds of errors than a connection has")]
pub fn connection_reason(error: &PeerConnectionError) -> String {
    match error {
        PeerConnectionError::Http1(error) if error.is_incomplete_message() || error.is_canceled() => "EOF".to_owned(),
        PeerConnectionError::Http1(error) if error.is_parse() => {
            format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}")
        }
        other @ (PeerConnectionError::Http1(_)
        | PeerConnectionError::Http2(_)
        | PeerConnectionError::BodyNotAllowed) => match connection_error(other) {
            None => other.to_string(),
            Some(cause) => match cause.kind() {
                io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
                io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
                io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
                _ => cause.to_string(),
            },
        },
    }
}
