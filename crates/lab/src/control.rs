//! Control API of a running lab: HTTP over a Unix socket in the data directory, protected by that directory's mode
//! 0700.

pub mod client;

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lab::LabHandle;
use crate::plan::PlanError;
use crate::rollout::{self, RolloutError};
use crate::status::RolloutStatus;
use crate::supervisor::{ActionError, ServerAction};

/// Larger than any [`RolloutRequest`].
const BODY_MAX_BYTES: usize = 64 << 10;
/// Longest path that is bound directly; `sun_path` holds 108 bytes including the terminating NUL.
const SOCKET_PATH_MAX: usize = 100;

type ControlBody = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Debug, PartialEq, Eq)]
enum ControlRequest<'a> {
    Status,
    ServerAction(&'a str, ServerAction),
    Rollout,
    Down,
}

/// Body of `POST /rollout`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutRequest {
    /// Target releases: one for all servers, or one per server. Empty reverts the last rollout.
    #[serde(default)]
    pub to: Vec<String>,
}

/// Path of a Unix socket, shortened through `/proc/self/fd` of its open directory if it exceeds `SOCKET_PATH_MAX`.
#[derive(Debug)]
pub(crate) struct SocketPath {
    pub(crate) path: PathBuf,
    _open_dir: Option<std::fs::File>,
}

impl SocketPath {
    pub(crate) fn resolve(socket: &Path) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        if socket.as_os_str().len() <= SOCKET_PATH_MAX {
            return Ok(Self { path: socket.to_owned(), _open_dir: None });
        }
        let folder = std::fs::File::open(socket.parent().unwrap_or(Path::new(".")))?;
        let name = socket.file_name().unwrap_or_default();
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _open_dir: Some(folder) })
    }
}

/// Binds the control socket, replacing one that a killed lab left behind. The caller holds the data directory's lock.
pub(crate) fn bind(socket: &Path) -> std::io::Result<UnixListener> {
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(SocketPath::resolve(socket)?.path)
}

/// Serves the control API until `stop` is cancelled.
pub(crate) async fn run(listener: UnixListener, lab: LabHandle, stop: CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else { continue };
        let (shared_lab, stop) = (lab.clone(), stop.clone());
        lab.tasks.spawn_once("control", async move {
            let service = service_fn(|request| {
                let inside = shared_lab.clone();
                async move { Ok::<_, Infallible>(handle_request(&inside, request).await) }
            });
            let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = stop.run_until_cancelled(serving).await;
        });
    }
}

async fn handle_request(lab: &LabHandle, request: Request<Incoming>) -> Response<ControlBody> {
    let path = request.uri().path().to_owned();
    match parse_request(request.method(), &path) {
        None => error_response(StatusCode::NOT_FOUND, "unknown path or method"),
        Some(ControlRequest::Status) => json_response(StatusCode::OK, &*lab.snapshots.borrow().clone()),
        Some(ControlRequest::ServerAction(server, act)) => match lab.supervisor.run_action(server, act).await {
            Ok(()) => json_response(StatusCode::OK, &json!({})),
            Err(error) => error_response(status_code(&error), &error.to_string()),
        },
        Some(ControlRequest::Rollout) => handle_rollout(lab, request.into_body()).await,
        Some(ControlRequest::Down) => {
            lab.stop.cancel();
            json_response(StatusCode::ACCEPTED, &json!({}))
        }
    }
}

/// `None` for an unknown path or method.
fn parse_request<'a>(method: &Method, path: &'a str) -> Option<ControlRequest<'a>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method, &parts[..]) {
        (&Method::GET, ["status"]) => Some(ControlRequest::Status),
        (&Method::POST, ["down"]) => Some(ControlRequest::Down),
        (&Method::POST, ["rollout"]) => Some(ControlRequest::Rollout),
        (&Method::POST, ["servers", server, act]) => {
            let act = match *act {
                "start" => ServerAction::Start,
                "stop" => ServerAction::Stop,
                "kill" => ServerAction::Kill,
                "pause" => ServerAction::Pause,
                "resume" => ServerAction::Resume,
                _ => return None,
            };
            Some(ControlRequest::ServerAction(server, act))
        }
        _ => None,
    }
}

fn status_code(error: &ActionError) -> StatusCode {
    match error {
        ActionError::UnknownServer { .. } => StatusCode::NOT_FOUND,
        ActionError::WrongPhase { .. } => StatusCode::CONFLICT,
        ActionError::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        ActionError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Starts a rollout and streams one JSON line per progress change. If the client disconnects, the rollout stops after
/// the server it is moving.
async fn handle_rollout(lab: &LabHandle, body: Incoming) -> Response<ControlBody> {
    let Ok(body) = Limited::new(body, BODY_MAX_BYTES).collect().await else {
        return error_response(StatusCode::BAD_REQUEST, "the rollout request cannot be read or is too large");
    };
    let Ok(rollout_request) = serde_json::from_slice::<RolloutRequest>(&body.to_bytes()) else {
        return error_response(StatusCode::BAD_REQUEST, "the rollout request is not valid JSON");
    };
    let cancel = CancellationToken::new();
    match rollout::start_rollout(lab, &rollout_request.to, cancel.clone()).await {
        Ok(progress) => {
            let progress_stream =
                RolloutProgressStream { progress, is_finished: false, _cancel_on_drop: cancel.drop_guard() };
            let lines = stream::unfold(progress_stream, |mut progress_stream| async move {
                Some((Ok(progress_stream.next_line().await?), progress_stream))
            });
            Response::new(StreamBody::new(lines).boxed_unsync())
        }
        Err(RolloutError::InProgress) => error_response(StatusCode::CONFLICT, &RolloutError::InProgress.to_string()),
        Err(
            error @ (RolloutError::Releases(
                PlanError::Empty | PlanError::TooMany(_) | PlanError::ReleaseCountMismatch { .. },
            )
            | RolloutError::NothingToUndo),
        ) => error_response(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

struct RolloutProgressStream {
    progress: watch::Receiver<Option<RolloutStatus>>,
    is_finished: bool,
    _cancel_on_drop: tokio_util::sync::DropGuard,
}

impl RolloutProgressStream {
    /// Waits for the next change; `None` after the line with the outcome.
    async fn next_line(&mut self) -> Option<Frame<Bytes>> {
        if self.is_finished {
            return None;
        }
        self.progress.changed().await.ok()?;
        let rollout = self.progress.borrow_and_update().clone().unwrap_or_default();
        self.is_finished = !rollout.outcome.is_empty();
        let mut line = serde_json::to_vec(&rollout).expect("status serializes to JSON");
        line.push(b'\n');
        Some(Frame::data(line.into()))
    }
}

fn error_response(status: StatusCode, error: &str) -> Response<ControlBody> {
    json_response(status, &json!({"error": error}))
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response<ControlBody> {
    let bytes = serde_json::to_vec(value).expect("value serializes to JSON");
    let mut response = Response::new(Full::new(bytes.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_request_accepts_only_the_control_api() {
        assert_eq!(parse_request(&Method::GET, "/status"), Some(ControlRequest::Status));
        assert_eq!(
            parse_request(&Method::POST, "/servers/b/pause"),
            Some(ControlRequest::ServerAction("b", ServerAction::Pause))
        );
        assert_eq!(parse_request(&Method::GET, "/servers/b/kill"), None, "GET changes nothing");
        assert_eq!(parse_request(&Method::POST, "/servers/b/explode"), None);
        assert_eq!(parse_request(&Method::POST, "/status"), None);
    }

    #[tokio::test]
    async fn control_socket_in_a_deep_folder_is_reachable() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("lab.sock");
        let listener = bind(&socket).unwrap();
        let path = SocketPath::resolve(&socket).unwrap();
        tokio::net::UnixStream::connect(&path.path).await.unwrap();
        listener.accept().await.unwrap();
        drop(listener);
        bind(&socket).unwrap();
    }
}
