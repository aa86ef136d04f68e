//! Decodes a watch response: one JSON event per line.

use std::time::Duration;

use api::Status;
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ApiError;
use super::connections::WatchSlot;

/// More than twice the interval of bookmarks; a silent watch beyond this is dead and is restarted.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// The longest line: etcd limits objects to 1.5 MB, and JSON is somewhat larger.
const LINE_BYTES_MAX: usize = 8 << 20;

/// A running watch; dropping it ends it.
#[derive(Debug)]
pub struct ApiWatchStream {
    body: Incoming,
    buffer: BytesMut,
    /// The first bytes of `buffer` that are known to contain no newline.
    searched: usize,
    _slot: WatchSlot,
}

/// One event of a watch.
#[derive(Debug)]
pub enum ApiWatchEvent {
    /// `ADDED` or `MODIFIED`, with the current object.
    Applied(Box<RawValue>),
    /// `DELETED`, with the last state of the object.
    Deleted(Box<RawValue>),
    /// `BOOKMARK`, with a newer resourceVersion.
    Bookmark(Box<RawValue>),
}

impl ApiWatchStream {
    pub(super) fn new(body: Incoming, slot: WatchSlot) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, _slot: slot }
    }

    /// The next event; `None` when the server ends the watch. Cancel-safe.
    pub async fn next_event(&mut self) -> Result<Option<ApiWatchEvent>, ApiError> {
        loop {
            if let Some(line) = self.take_line() {
                return parse_event(&line).map(Some);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(ApiError::InvalidResponse("a watch event exceeds the size limit".to_owned()));
            }
            let frame = tokio::time::timeout(WATCH_IDLE_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| ApiError::NoResponse("the watch was idle for too long".to_owned()))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(ApiError::NoResponse(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.buffer.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }

    fn take_line(&mut self) -> Option<BytesMut> {
        let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end);
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }
}

fn parse_event(line: &[u8]) -> Result<ApiWatchEvent, ApiError> {
    #[derive(Deserialize)]
    struct EventLine<'a> {
        #[serde(rename = "type")]
        event_type: &'a str,
        object: Box<RawValue>,
    }
    let line: EventLine<'_> =
        serde_json::from_slice(line).map_err(|error| ApiError::InvalidResponse(format!("watch event: {error}")))?;
    match line.event_type {
        "ADDED" | "MODIFIED" => Ok(ApiWatchEvent::Applied(line.object)),
        "DELETED" => Ok(ApiWatchEvent::Deleted(line.object)),
        "BOOKMARK" => Ok(ApiWatchEvent::Bookmark(line.object)),
        "ERROR" => Err(match Status::from_json(line.object.get().as_bytes()) {
            Some(status) => ApiError::Status(Box::new(status)),
            None => ApiError::InvalidResponse("a watch ERROR event without a Status".to_owned()),
        }),
        other => Err(ApiError::InvalidResponse(format!("unknown watch event type {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_event_recognizes_every_event_type() {
        let told = |line: &str| match parse_event(line.as_bytes()) {
            Ok(ApiWatchEvent::Applied(object)) => format!("is {object}"),
            Ok(ApiWatchEvent::Deleted(object)) => format!("gone {object}"),
            Ok(ApiWatchEvent::Bookmark(object)) => format!("bookmark {object}"),
            Err(error) => format!("{error}, expired: {}", error.is_expired()),
        };
        assert_eq!(told(r#"{"type":"ADDED","object":{"a":1}}"#), r#"is {"a":1}"#);
        assert_eq!(told(r#"{"type":"MODIFIED","object":{}}"#), "is {}");
        assert_eq!(told(r#"{"type":"DELETED","object":{}}"#), "gone {}");
        assert_eq!(told(r#"{"type":"BOOKMARK","object":{}}"#), "bookmark {}");
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","message":"old","code":410}}"#;
        assert_eq!(told(expired), "old, expired: true");
        assert!(told("{}").starts_with("invalid response: watch event:"));
        assert!(told(r#"{"type":"NEW","object":{}}"#).contains("unknown watch event type \"NEW\""));
    }
}
