//! Reads the events of a watch.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::Client;

/// Prevents a hanging server from hanging the test run.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// An open watch, one JSON line per event.
#[derive(Debug)]
pub struct WatchReader {
    body: Incoming,
    buffer: Vec<u8>,
}

/// The watch ended, cleanly or by a broken connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfWatch;

impl WatchReader {
    /// Opens a watch; fails unless the status is 200.
    pub async fn open(client: &Client, path: &str) -> Self {
        Self::try_open(client, path).await.unwrap_or_else(|status| panic!("{path}: {status}"))
    }

    /// Opens a watch; returns the status code if it is not 200.
    pub async fn try_open(client: &Client, path: &str) -> Result<Self, StatusCode> {
        let response = client.send_streaming(client.request_builder(Method::GET, path), Bytes::new()).await;
        match response.status() {
            StatusCode::OK => Ok(Self { body: response.into_body(), buffer: Vec::new() }),
            refused => Err(refused),
        }
    }

    /// Opens a watch with an `Accept` header; fails unless the status is 200.
    pub async fn open_accepting(client: &Client, path: &str, accept: &str) -> Self {
        let request = client.request_builder(Method::GET, path).header(http::header::ACCEPT, accept);
        let response = client.send_streaming(request, Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Self { body: response.into_body(), buffer: Vec::new() }
    }

    /// Opens a watch; `None` if the server is unreachable.
    pub async fn open_if_reachable(client: &Client, path: &str) -> Option<Result<Self, StatusCode>> {
        let response = client.try_send_streaming(client.request_builder(Method::GET, path)).await?;
        Some(match response.status() {
            StatusCode::OK => Ok(Self { body: response.into_body(), buffer: Vec::new() }),
            refused => Err(refused),
        })
    }

    /// Returns the next event; fails if the watch ends.
    pub async fn next_event(&mut self) -> Value {
        self.try_next_event().await.expect("the watch goes on")
    }

    /// Returns the next event, or the end of the watch.
    pub async fn try_next_event(&mut self) -> Result<Value, EndOfWatch> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line).expect("an event is JSON"));
            }
            let frame = tokio::time::timeout(EVENT_TIMEOUT, self.body.frame()).await.expect("an event comes in time");
            let Some(Ok(frame)) = frame else { return Err(EndOfWatch) };
            self.buffer.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
        }
    }

    /// Returns type and object name of the next event.
    pub async fn next_event_summary(&mut self) -> String {
        let event = self.next_event().await;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
        format!("{} {name}", event["type"].as_str().unwrap_or("-"))
    }
}
