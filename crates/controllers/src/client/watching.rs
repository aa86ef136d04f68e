//! A watch as it comes in: lines of JSON.

use std::time::Duration;

use api::Status;
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::CallError;
use super::connections::Seat;

/// How long nothing may come: more than twice the time between bookmarks, so that a stream that died silently is begun anew.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// The longest line: objects have at most 1.5 MB in etcd, and grow a little in JSON.
const LINE_BYTES_MAX: usize = 8 << 20;

/// A watch under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watching {
    body: Incoming,
    read: BytesMut,
    /// How much of `read` is known to hold no end of a line.
    searched: usize,
    _seat: Seat,
}

/// One line of a watch.
#[derive(Debug)]
pub(crate) enum Change {
    /// An object as it is now: new, or changed.
    Is(Box<RawValue>),
    /// An object as it was last.
    Gone(Box<RawValue>),
    /// Nothing but a newer resourceVersion.
    Bookmark(Box<RawValue>),
}

impl Watching {
    pub(super) fn new(body: Incoming, seat: Seat) -> Self {
        Self { body, read: BytesMut::new(), searched: 0, _seat: seat }
    }

    /// The next change; `None` when the server ends the watch. May be dropped and asked again.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, CallError> {
        loop {
            if let Some(line) = self.take_line() {
                return parse(&line).map(Some);
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(CallError::Unreadable("a line of the watch is too long".to_owned()));
            }
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            match frame.map_err(|_| CallError::Unanswered("the watch fell silent".to_owned()))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(CallError::Unanswered(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.read.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }

    fn take_line(&mut self) -> Option<BytesMut> {
        let Some(end) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.read.len();
            return None;
        };
        let line = self.read.split_to(self.searched + end);
        self.read.advance(1);
        self.searched = 0;
        Some(line)
    }
}

fn parse(line: &[u8]) -> Result<Change, CallError> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        sort: &'a str,
        object: Box<RawValue>,
    }
    let line: Line<'_> =
        serde_json::from_slice(line).map_err(|error| CallError::Unreadable(format!("a line of a watch: {error}")))?;
    match line.sort {
        "ADDED" | "MODIFIED" => Ok(Change::Is(line.object)),
        "DELETED" => Ok(Change::Gone(line.object)),
        "BOOKMARK" => Ok(Change::Bookmark(line.object)),
        "ERROR" => Err(match Status::from_json(line.object.get().as_bytes()) {
            Some(status) => CallError::Refused(Box::new(status)),
            None => CallError::Unreadable("an error in a watch that is no Status".to_owned()),
        }),
        other => Err(CallError::Unreadable(format!("{other:?} in a watch"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let told = |line: &str| match parse(line.as_bytes()) {
            Ok(Change::Is(object)) => format!("is {object}"),
            Ok(Change::Gone(object)) => format!("gone {object}"),
            Ok(Change::Bookmark(object)) => format!("bookmark {object}"),
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
