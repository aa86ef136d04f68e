//! A watch as it comes in: lines of JSON.

use std::time::Duration;

use api::Status;
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ApiError;
use super::connections::WatchSlot;

/// How long nothing may come: more than twice the time between bookmarks, so that a stream that died silently is begun anew.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// The longest line: objects have at most 1.5 MB in etcd, and grow a little in JSON.
const LINE_BYTES_MAX: usize = 8 << 20;

/// A watch under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct ApiWatchStream {
    body: Incoming,
    buffer: BytesMut,
    /// How much of `read` is known to hold no end of a line.
    searched: usize,
    _slot: WatchSlot,
}

/// One line of a watch.
#[derive(Debug)]
pub(crate) enum ApiWatchEvent {
    /// An object as it is now: new, or changed.
    Applied(Box<RawValue>),
    /// An object as it was last.
    Deleted(Box<RawValue>),
    /// Nothing but a newer resourceVersion.
    Bookmark(Box<RawValue>),
}

impl ApiWatchStream {
    pub(super) fn new(body: Incoming, slot: WatchSlot) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, _slot: slot }
    }

    /// The next change; `None` when the server ends the watch. May be dropped and asked again.
    pub(crate) async fn next_event(&mut self) -> Result<Option<ApiWatchEvent>, ApiError> {
        loop {
            if let Some(line) = self.take_line() {
                return parse_event(&line).map(Some);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(ApiError::InvalidResponse("a line of the watch is too long".to_owned()));
            }
            let frame = tokio::time::timeout(WATCH_IDLE_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| ApiError::NoResponse("the watch fell silent".to_owned()))? {
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
    let line: EventLine<'_> = serde_json::from_slice(line)
        .map_err(|error| ApiError::InvalidResponse(format!("a line of a watch: {error}")))?;
    match line.event_type {
        "ADDED" | "MODIFIED" => Ok(ApiWatchEvent::Applied(line.object)),
        "DELETED" => Ok(ApiWatchEvent::Deleted(line.object)),
        "BOOKMARK" => Ok(ApiWatchEvent::Bookmark(line.object)),
        "ERROR" => Err(match Status::from_json(line.object.get().as_bytes()) {
            Some(status) => ApiError::Status(Box::new(status)),
            None => ApiError::InvalidResponse("an error in a watch that is no Status".to_owned()),
        }),
        other => Err(ApiError::InvalidResponse(format!("{other:?} in a watch"))),
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
        assert!(told("{}").starts_with("the answer cannot be read: a line of a watch:"));
        assert!(told(r#"{"type":"NEW","object":{}}"#).contains("\"NEW\" in a watch"));
    }
}
