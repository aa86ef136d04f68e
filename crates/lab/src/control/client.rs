//! Client of a lab's control socket, used by `unskew status`, `stop` and `rollout`.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tasks::Tasks;
use tokio::net::UnixStream;

use super::{RolloutRequest, SocketPath};
use crate::data_dir::DataDir;
use crate::status::{LabSnapshot, RolloutStatus};

/// Why a control request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No lab listens in this data directory.
    #[error("no lab runs in {0}: `unskew up` starts one, --data-dir names another folder")]
    NoLab(String),
    /// The lab responded with an error, whose text this is.
    #[error("{0}")]
    Refused(String),
    /// The connection broke, or the response is not what this version of the lab sends.
    #[error("no response from the lab: {0}")]
    Transport(String),
}

/// Connection to the control socket of a running lab.
#[derive(Debug)]
pub struct ControlClient {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    tasks: Tasks,
}

impl ControlClient {
    /// Connects to the lab that runs in this data directory.
    pub async fn connect(layout: &DataDir) -> Result<Self, ControlError> {
        let none = || ControlError::NoLab(layout.path().display().to_string());
        let path = SocketPath::resolve(&layout.control_socket()).map_err(|_| none())?;
        let stream = UnixStream::connect(&path.path).await.map_err(|_| none())?;
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| ControlError::Transport(error.to_string()))?;
        let tasks = Tasks::new();
        tasks.spawn_once("control line", async move {
            let _ = connection.await;
        });
        Ok(Self { sender, tasks })
    }

    /// Fetches the current snapshot of the lab.
    pub async fn status(&mut self) -> Result<LabSnapshot, ControlError> {
        let body = self.request(Method::GET, "/status", Bytes::new()).await?;
        serde_json::from_slice(&body).map_err(|error| ControlError::Transport(error.to_string()))
    }

    /// Applies an action to a server; `verb` is start, stop, kill, pause or resume.
    pub async fn send_action(&mut self, server: &str, verb: &str) -> Result<(), ControlError> {
        self.request(Method::POST, &format!("/servers/{server}/{verb}"), Bytes::new()).await.map(drop)
    }

    /// Stops the lab, which responds before it shuts down.
    pub async fn shut_down(&mut self) -> Result<(), ControlError> {
        self.request(Method::POST, "/down", Bytes::new()).await.map(drop)
    }

    /// Starts a rollout, calls `on_progress` for each change, and returns the final status.
    pub async fn roll_out(
        &mut self,
        request: &RolloutRequest,
        mut on_progress: impl FnMut(&RolloutStatus),
    ) -> Result<RolloutStatus, ControlError> {
        let body = serde_json::to_vec(request).expect("request serializes to JSON");
        let mut response = self.send_request(Method::POST, "/rollout", body.into()).await?;
        let mut pending = Vec::new();
        let mut last = RolloutStatus::default();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| ControlError::Transport(error.to_string()))?;
            pending.extend_from_slice(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                last = serde_json::from_slice(&line).map_err(|error| ControlError::Transport(error.to_string()))?;
                on_progress(&last);
            }
        }
        match last.outcome.is_empty() {
            true => Err(ControlError::Transport("the lab stopped during the rollout".to_owned())),
            false => Ok(last),
        }
    }

    async fn request(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ControlError> {
        let response = self.send_request(method, path, body).await?;
        let body = response.into_body().collect().await.map_err(|error| ControlError::Transport(error.to_string()))?;
        Ok(body.to_bytes())
    }

    async fn send_request(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ControlError> {
        let broken = |error: &dyn std::fmt::Display| ControlError::Transport(error.to_string());
        let request = Request::builder().method(method).uri(path).header("host", "lab");
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        self.sender.ready().await.map_err(|error| broken(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let body = response.into_body().collect().await.map_err(|error| broken(&error))?.to_bytes();
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        Err(ControlError::Refused(said["error"].as_str().unwrap_or("the lab refused the request").to_owned()))
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        self.tasks.stop_token().cancel();
    }
}
