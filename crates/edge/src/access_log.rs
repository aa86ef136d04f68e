//! The access log: one line of JSON per request, with user, target, upstream, status and duration.
//!
//! A line is made when the response has ended, and queued for a task that writes. If the queue is full, lines are dropped and
//! counted: no request waits for the log.

mod line;
mod output;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use api::Target;
use forward::{FailedAttempts, RespondingPeer};
use http::{HeaderValue, Method, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tasks::Tasks;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Request, Response};
use line::AccessLogLine;
use output::LogOutput;

/// The queue of lines: some megabytes, about a second of a busy gateway.
const QUEUE_MAX: usize = 8192;
/// Lines per write.
const BATCH_MAX: usize = 1024;

/// The status of a request whose client disconnected before the response, as in nginx.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The queue of the access log. Clones share it.
#[derive(Clone, Debug)]
pub struct AccessLog {
    lines: mpsc::Sender<Vec<u8>>,
    /// Counts lines dropped because the queue was full.
    lost_lines: IntCounter,
}

impl AccessLog {
    /// Opens `--access-log-path`: a file that only its owner can read, created again after it was moved away, or `-` for standard
    /// output.
    pub fn start(path: &Path, registry: &Registry, tasks: &Tasks) -> io::Result<Self> {
        let options =
            Opts::new("unskew_access_log_lines_lost_total", "Lines of the access log that were lost, by reason");
        let lost = IntCounterVec::new(options, &["reason"]).expect("the name and label are valid");
        registry.register(Box::new(lost.clone())).expect("each name is registered once");
        let (log, lines) = Self::new(QUEUE_MAX, lost.with_label_values(&["queue_full"]));
        let output = LogOutput::open(path, lost.with_label_values(&["write_failed"]))?;
        tasks.spawn("access-log", |stop| write_lines(lines, output, stop));
        Ok(log)
    }

    fn new(queue_max: usize, lost: IntCounter) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (sender, lines) = mpsc::channel(queue_max);
        (Self { lines: sender, lost_lines: lost }, lines)
    }

    /// Starts the line of a request; without a target its verb stays empty.
    pub(crate) fn start_entry(
        &self,
        id: &HeaderValue,
        client_ip: IpAddr,
        target: Option<&Target<'_>>,
        request: &Request,
    ) -> AccessLogEntry {
        AccessLogEntry {
            log: self.clone(),
            time: Timestamp::now(),
            started: Instant::now(),
            audit_id: id.clone(),
            client: client_ip,
            method: request.method().clone(),
            uri: request.uri().clone(),
            verb: target.map_or("", Target::verb).to_owned(),
            fields: Mutex::default(),
            status: CLIENT_CLOSED_REQUEST,
            upstream: None,
            bytes_sent: 0,
        }
    }
}

/// Writes queued lines until `stop`, then the remaining ones.
async fn write_lines(mut lines: mpsc::Receiver<Vec<u8>>, mut output: LogOutput, stop: CancellationToken) {
    let mut batch = Vec::new();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            count = lines.recv_many(&mut batch, BATCH_MAX) => if count == 0 { break },
            () = stop.cancelled(), if !is_stopping => {
                lines.close();
                is_stopping = true;
                continue;
            }
        }
        let written = std::mem::take(&mut batch);
        let writing = tokio::task::spawn_blocking(move || {
            output.write(&written);
            output
        });
        match writing.await {
            Ok(same) => output = same,
            // The write panicked, which is logged.
            Err(_) => return,
        }
    }
    stop.cancelled().await;
}

/// What becomes known while the request is served.
#[derive(Debug, Default)]
struct AccessLogFields {
    user: Option<String>,
    rule: Option<u8>,
    error: Option<String>,
    retries: usize,
}

/// The line of one request. Dropping it writes the line: after the response body, or before a response if the client disconnects.
#[derive(Debug)]
pub(crate) struct AccessLogEntry {
    log: AccessLog,
    time: Timestamp,
    started: Instant,
    audit_id: HeaderValue,
    client: IpAddr,
    method: Method,
    uri: Uri,
    verb: String,
    fields: Mutex<AccessLogFields>,
    status: u16,
    upstream: Option<Arc<str>>,
    bytes_sent: u64,
}

impl AccessLogEntry {
    pub(crate) fn set_retries(&self, retries: usize) {
        self.fields.lock().retries = retries;
    }

    /// Sets the name of the user; `None` if only the server that responds knows it.
    pub(crate) fn set_user(&self, name: Option<String>) {
        self.fields.lock().user = name;
    }

    pub(crate) fn set_rule(&self, rule: u8) {
        self.fields.lock().rule = Some(rule);
    }

    /// Sets the message of the failure that the client gets.
    pub(crate) fn set_error(&self, message: &str) {
        self.fields.lock().error = Some(message.to_owned());
    }

    /// Takes status, responding peer and retries from the head of a response.
    pub(crate) fn record_response(&mut self, response: &Response) {
        self.status = response.status().as_u16();
        self.upstream = response.extensions().get().map(|RespondingPeer(id)| id.clone());
        if let Some(FailedAttempts(retries)) = response.extensions().get() {
            self.set_retries(*retries);
        }
    }

    /// Adds to the bytes sent.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.bytes_sent += bytes as u64;
    }
}

impl Drop for AccessLogEntry {
    fn drop(&mut self) {
        let line = AccessLogLine::new(self, &self.fields.lock()).to_bytes();
        if self.log.lines.try_send(line).is_err() {
            self.log.lost_lines.inc();
        }
    }
}

#[cfg(test)]
mod tests;
