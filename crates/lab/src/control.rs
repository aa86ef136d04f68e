//! How a running lab is asked and told: HTTP over a socket in its folder, so that whoever may read the folder may do it.

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

use crate::lab::Inside;
use crate::plan::PlanError;
use crate::rollout::{self, RolloutError};
use crate::status::Rollout;
use crate::supervisor::{Act, OrderError};

/// Longer than any wish.
const BODY_MAX_BYTES: usize = 64 << 10;
/// What a socket's path may have; the kernel's field is 108 bytes long.
const SOCKET_PATH_MAX: usize = 100;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What can be asked.
#[derive(Debug, PartialEq, Eq)]
enum Question<'a> {
    Status,
    Order(&'a str, Act),
    Rollout,
    Down,
}

/// What a rollout shall do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// To these releases: one for all, or one for each. Empty: back to where the last one began.
    #[serde(default)]
    pub to: Vec<String>,
}

/// The socket of a folder whose path may be too long for one: then by way of an open folder.
#[derive(Debug)]
pub(crate) struct SocketPath {
    pub(crate) path: PathBuf,
    _folder: Option<std::fs::File>,
}

impl SocketPath {
    pub(crate) fn of(socket: &Path) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        if socket.as_os_str().len() <= SOCKET_PATH_MAX {
            return Ok(Self { path: socket.to_owned(), _folder: None });
        }
        let folder = std::fs::File::open(socket.parent().unwrap_or(Path::new(".")))?;
        let name = socket.file_name().unwrap_or_default();
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Binds the socket of a folder that is ours; one left by a lab that was killed is replaced.
pub(crate) fn bind(socket: &Path) -> std::io::Result<UnixListener> {
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(SocketPath::of(socket)?.path)
}

/// Answers until `stop`.
pub(crate) async fn run(listener: UnixListener, inside: Inside, stop: CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else { continue };
        let (shared, stop) = (inside.clone(), stop.clone());
        inside.tasks.spawn_once("control", async move {
            let service = service_fn(|request| {
                let inside = shared.clone();
                async move { Ok::<_, Infallible>(answer(&inside, request).await) }
            });
            let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = stop.run_until_cancelled(serving).await;
        });
    }
}

async fn answer(inside: &Inside, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match question(request.method(), &path) {
        None => refuse(StatusCode::NOT_FOUND, "there is no such page"),
        Some(Question::Status) => say(StatusCode::OK, &*inside.snapshots.borrow().clone()),
        Some(Question::Order(server, act)) => match inside.handle.order(server, act).await {
            Ok(()) => say(StatusCode::OK, &json!({})),
            Err(error) => refuse(code_of(&error), &error.to_string()),
        },
        Some(Question::Rollout) => roll_out(inside, request.into_body()).await,
        Some(Question::Down) => {
            inside.stop.cancel();
            say(StatusCode::ACCEPTED, &json!({}))
        }
    }
}

fn question<'a>(method: &Method, path: &'a str) -> Option<Question<'a>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method, &parts[..]) {
        (&Method::GET, ["status"]) => Some(Question::Status),
        (&Method::POST, ["down"]) => Some(Question::Down),
        (&Method::POST, ["rollout"]) => Some(Question::Rollout),
        (&Method::POST, ["servers", server, act]) => {
            let act = match *act {
                "start" => Act::Start,
                "stop" => Act::Stop,
                "kill" => Act::Kill,
                "pause" => Act::Pause,
                "resume" => Act::Resume,
                _ => return None,
            };
            Some(Question::Order(server, act))
        }
        _ => None,
    }
}

fn code_of(error: &OrderError) -> StatusCode {
    match error {
        OrderError::Nobody { .. } => StatusCode::NOT_FOUND,
        OrderError::NotNow { .. } => StatusCode::CONFLICT,
        OrderError::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        OrderError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Starts a rollout and tells of it line by line. It ends after the server it is at if nobody listens any more.
async fn roll_out(inside: &Inside, body: Incoming) -> Response<Body> {
    let Ok(body) = Limited::new(body, BODY_MAX_BYTES).collect().await else {
        return refuse(StatusCode::BAD_REQUEST, "the wish cannot be read");
    };
    let Ok(wish) = serde_json::from_slice::<Wish>(&body.to_bytes()) else {
        return refuse(StatusCode::BAD_REQUEST, "the wish is not understood");
    };
    let listening = CancellationToken::new();
    match rollout::start(inside, &wish.to, listening.clone()).await {
        Ok(progress) => {
            let told = Told { progress, is_over: false, _listening: listening.drop_guard() };
            let lines = stream::unfold(told, |mut told| async move { Some((Ok(told.line().await?), told)) });
            Response::new(StreamBody::new(lines).boxed_unsync())
        }
        Err(RolloutError::Busy) => refuse(StatusCode::CONFLICT, &RolloutError::Busy.to_string()),
        Err(
            error @ (RolloutError::Releases(PlanError::Empty | PlanError::TooMany(_) | PlanError::Uneven { .. })
            | RolloutError::NoWayBack),
        ) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

struct Told {
    progress: watch::Receiver<Option<Rollout>>,
    is_over: bool,
    _listening: tokio_util::sync::DropGuard,
}

impl Told {
    async fn line(&mut self) -> Option<Frame<Bytes>> {
        if self.is_over {
            return None;
        }
        self.progress.changed().await.ok()?;
        let rollout = self.progress.borrow_and_update().clone().unwrap_or_default();
        self.is_over = !rollout.outcome.is_empty();
        let mut line = serde_json::to_vec(&rollout).expect("it is made of strings and numbers");
        line.push(b'\n');
        Some(Frame::data(line.into()))
    }
}

fn refuse(status: StatusCode, error: &str) -> Response<Body> {
    say(status, &json!({"error": error}))
}

fn say(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(value).expect("it is made of strings and numbers");
    let mut response = Response::new(Full::new(bytes.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_few() {
        assert_eq!(question(&Method::GET, "/status"), Some(Question::Status));
        assert_eq!(question(&Method::POST, "/servers/b/pause"), Some(Question::Order("b", Act::Pause)));
        assert_eq!(question(&Method::GET, "/servers/b/kill"), None, "looking changes nothing");
        assert_eq!(question(&Method::POST, "/servers/b/explode"), None);
        assert_eq!(question(&Method::POST, "/status"), None);
    }

    #[tokio::test]
    async fn a_socket_in_a_deep_folder_is_reached() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("lab.sock");
        let listener = bind(&socket).unwrap();
        let path = SocketPath::of(&socket).unwrap();
        tokio::net::UnixStream::connect(&path.path).await.unwrap();
        listener.accept().await.unwrap();
        drop(listener);
        bind(&socket).unwrap();
    }
}
