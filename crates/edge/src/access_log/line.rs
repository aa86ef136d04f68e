//! The JSON form of a line.

use std::net::IpAddr;

use api::time::MicroTime;
use serde::Serialize;

use super::{AccessLogEntry, AccessLogFields};

/// Contains neither headers nor the query, because both may hold secrets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccessLogLine<'a> {
    /// The time of receipt.
    time: MicroTime,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    client: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    verb: &'a str,
    method: &'a str,
    path: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    retries: usize,
    bytes: u64,
    duration_seconds: f64,
}

impl<'a> AccessLogLine<'a> {
    pub(super) fn new(entry: &'a AccessLogEntry, fields: &'a AccessLogFields) -> Self {
        Self {
            time: entry.time.into(),
            audit_id: entry.audit_id.to_str().unwrap_or_default(),
            client: entry.client.to_canonical(),
            user: fields.user.as_deref(),
            verb: &entry.verb,
            method: entry.method.as_str(),
            path: entry.uri.path(),
            status: entry.status,
            upstream: entry.upstream.as_deref(),
            rule: fields.rule,
            error: fields.error.as_deref(),
            retries: fields.retries,
            bytes: entry.bytes_sent,
            // Microseconds, like the time.
            duration_seconds: entry.started.elapsed().as_micros() as f64 / 1e6,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("strings and numbers are always JSON");
        bytes.push(b'\n');
        bytes
    }
}
