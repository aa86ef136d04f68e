//! Misbehaving members: other clients are unaffected, resources that may exist are not denied, and metrics name the
//! fault.

mod discovery;
mod forwarded_requests;
mod head_requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster_tests::scripted_members::{ScriptedDiscovery, ScriptedMembers, create_identity_lease, http_response};
use cluster_tests::wait::{eventually, metric_value};
use cluster_tests::{Client, ControlPlane, tools};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use transport::testing::{ScriptedConnection, ScriptedPeer, TestCertificates};

use crate::*;

/// `storage.k8s.io/v1` serves it from 1.34 on, so the old server has it only through peers.
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const OLD_FLAGS: [&str; 1] = ["--emulated-version=1.33"];
const NEW_FLAGS: [&str; 1] = ["--emulated-version=1.36"];
const MERGED_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// More than the limit for a discovery document, and more than a server may buffer of a response.
const HUGE_BODY_MEGABYTES: usize = 200;

/// A fault of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerFault {
    /// Accepts connections and never responds.
    Silent,
    /// Sends something other than HTTP.
    NoHttp,
    /// Returns 200 with invalid JSON.
    InvalidJson,
    InternalError,
    Unauthorized,
    /// Returns 404 in plain text.
    PlainNotFound,
    Redirecting,
    /// Returns 200 MB.
    HugeBody,
    /// Sends less than its content-length.
    TruncatedBody,
}

impl PeerFault {
    const ALL: [Self; 9] = [
        Self::Silent,
        Self::NoHttp,
        Self::InvalidJson,
        Self::InternalError,
        Self::Unauthorized,
        Self::PlainNotFound,
        Self::Redirecting,
        Self::HugeBody,
        Self::TruncatedBody,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Identity of the member with this fault.
    fn identity(self) -> String {
        format!("apiserver-{}", self.name())
    }

    /// A group that only this member lists.
    fn group(self) -> String {
        format!("{}.k8s.io", self.name())
    }

    fn path(self) -> String {
        format!("/apis/{}/v1/things", self.group())
    }

    /// Responds to a request with the fault. A redirect points to `rogue`.
    async fn respond(self, visit: &mut ScriptedConnection, rogue: SocketAddr) {
        let json = "application/json";
        match self {
            Self::Silent => visit.wait_for_close().await,
            Self::NoHttp => visit.write("SSH-2.0-OpenSSH_9.2\r\n").await,
            Self::InvalidJson => {
                visit.write(&http_response("200 OK", json, r#"{"items": 7, "kind": "Nonsense"}"#)).await
            }
            Self::InternalError => visit.write(&http_response("500 Internal Server Error", "text/plain", "no\n")).await,
            Self::Unauthorized => visit.write(&http_response("401 Unauthorized", json, "{}")).await,
            Self::PlainNotFound => {
                visit.write(&http_response("404 Not Found", "text/plain", "404 page not found\n")).await
            }
            Self::Redirecting => {
                let head = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n";
                visit.write(&format!("{head}location: https://{rogue}/apis\r\n\r\n")).await;
            }
            Self::HugeBody => {
                let length = HUGE_BODY_MEGABYTES << 20;
                visit
                    .write(&format!("HTTP/1.1 200 OK\r\ncontent-type: {json}\r\ncontent-length: {length}\r\n\r\n"))
                    .await;
                let piece = " ".repeat(1 << 20);
                for _ in 0..HUGE_BODY_MEGABYTES {
                    visit.write(&piece).await;
                }
            }
            Self::TruncatedBody => visit.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"kind\":").await,
        }
    }

    /// True if the connection can be reused after the response.
    fn leaves_connection_usable(self) -> bool {
        !matches!(self, Self::Silent | Self::NoHttp | Self::TruncatedBody)
    }
}

fn transport_failures_series(identity: &str, reason: &str) -> String {
    format!("unskew_peer_transport_failures_total{{peer=\"{identity}\",reason=\"{reason}\"}}")
}

async fn expect_counted(client: &Client, series: &str) -> Result<(), String> {
    if metric_value(client, series).await > 0 { Ok(()) } else { Err(format!("{series} counts nothing")) }
}

async fn expect_status(client: &Client, path: &str, status: u16) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == status { Ok(()) } else { Err(format!("{path}: {}", found.summary())) }
}

async fn expect_live_members(client: &Client, count: usize) -> Result<(), String> {
    let live = metric_value(client, "unskew_peer_members{state=\"live\"}").await;
    if live == count as u64 { Ok(()) } else { Err(format!("{live} are live")) }
}

async fn get_merged_discovery(client: &Client) -> cluster_tests::client::FullResponse {
    client
        .send(
            client.request_builder(http::Method::GET, "/apis").header("accept", MERGED_DISCOVERY_ACCEPT),
            bytes::Bytes::new(),
        )
        .await
}

/// A peer that must not be contacted.
async fn start_forbidden_peer(stage: &ScriptedMembers) -> ScriptedPeer {
    stage.start_peer(async |mut visit: ScriptedConnection| visit.wait_for_close().await).await
}
