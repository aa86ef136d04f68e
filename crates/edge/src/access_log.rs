//! One line of JSON for each request: what was asked, by whom, who answered, and how that went.
//!
//! Without a log a request pays for one look at an empty option. With one, its line is made when its answer has ended and is
//! handed to a task that writes. Where that cannot keep up, lines are lost and counted: no request ever waits for the log.

mod line;
mod output;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Method, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use peering::ServerId;
use peering::forward::{FailedAttempts, RespondingPeer};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tasks::Tasks;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Body, ClientConnection, Request, Response};
use line::AccessLogLine;
use output::LogOutput;

/// How many lines may be on their way to the file: some megabytes, and a second or so of a busy gateway.
const QUEUE_MAX: usize = 8192;
/// How many are written at once.
const BATCH_MAX: usize = 1024;

/// The status of a request whose client went away before there was an answer, as nginx has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Where lines go. Clones share it.
#[derive(Clone, Debug)]
pub struct AccessLog {
    lines: mpsc::Sender<Vec<u8>>,
    /// Lines that found no place.
    lost_lines: IntCounter,
}

impl AccessLog {
    /// Opens `--access-log-path`: a file that its owner alone may read, or `-` for standard output. A file that was moved away is
    /// made anew.
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

    /// Begins the line of a request, which carries a note from now on.
    pub(crate) fn start_entry(
        &self,
        id: &HeaderValue,
        connection: &ClientConnection,
        request: &mut Request,
    ) -> AccessLogEntry {
        let fields = Arc::new(AccessLogFields::default());
        request.extensions_mut().insert(fields.clone());
        AccessLogEntry {
            log: self.clone(),
            time: Timestamp::now(),
            started: Instant::now(),
            audit_id: id.clone(),
            client: connection.client_address.ip(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            verb: String::new(),
            fields,
            status: CLIENT_CLOSED_REQUEST,
            upstream: None,
            bytes_sent: 0,
        }
    }
}

/// Writes lines until it is told to stop, and then those that are left.
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
            // Only a panic ends it, and that has been told.
            Err(_) => return,
        }
    }
    stop.cancelled().await;
}

/// What becomes known of a request on its way, in its extensions.
#[derive(Debug, Default)]
pub struct AccessLogFields(Mutex<AccessLogFieldValues>);

#[derive(Debug, Default)]
struct AccessLogFieldValues {
    user: Option<String>,
    rule: Option<u8>,
    error: Option<String>,
    retries: usize,
}

impl AccessLogFields {
    /// The note of a request, if there is a log.
    pub fn from_request<B>(request: &http::Request<B>) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().cloned()
    }

    /// How often it was tried again in vain.
    pub fn set_retries(&self, retries: usize) {
        self.0.lock().retries = retries;
    }

    /// Who asks; `None` if only the server that answers can tell.
    pub(crate) fn set_user(&self, name: Option<String>) {
        self.0.lock().user = name;
    }

    /// By which rule it was placed.
    pub(crate) fn set_rule(&self, rule: u8) {
        self.0.lock().rule = Some(rule);
    }

    /// What the client was told instead of what it asked for.
    pub(crate) fn set_error(&self, message: &str) {
        self.0.lock().error = Some(message.to_owned());
    }
}

/// The line of one request, written when it is dropped: with the answer's body, or before there is one if the client is gone.
#[derive(Debug)]
pub struct AccessLogEntry {
    log: AccessLog,
    time: Timestamp,
    started: Instant,
    audit_id: HeaderValue,
    client: IpAddr,
    method: Method,
    uri: Uri,
    verb: String,
    fields: Arc<AccessLogFields>,
    status: u16,
    upstream: Option<ServerId>,
    bytes_sent: u64,
}

impl AccessLogEntry {
    pub(crate) fn set_verb(&mut self, verb: &str) {
        verb.clone_into(&mut self.verb);
    }

    pub(crate) fn set_error(&self, message: &str) {
        self.fields.set_error(message);
    }

    /// Goes along with an answer to its end.
    pub(crate) fn attach_to(mut self, response: Response) -> Response {
        self.status = response.status().as_u16();
        self.upstream = response.extensions().get().map(|RespondingPeer(server)| server.clone());
        if let Some(FailedAttempts(retries)) = response.extensions().get() {
            self.fields.set_retries(*retries);
        }
        response.map(|body| Body::Logged { body: Box::new(body), entry: Box::new(self) })
    }

    /// So many bytes of the body were sent.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.bytes_sent += bytes as u64;
    }
}

impl Drop for AccessLogEntry {
    fn drop(&mut self) {
        let line = AccessLogLine::new(self, &self.fields.0.lock()).to_bytes();
        if self.log.lines.try_send(line).is_err() {
            self.log.lost_lines.inc();
        }
    }
}

#[cfg(test)]
mod tests;
