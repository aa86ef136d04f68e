//! Members that misbehave: nobody else suffers, nothing that may exist is denied, and the figures say what is wrong.

mod documents;
mod heads;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster_tests::scripted::{Listing, Stage, answer, enlist};
use cluster_tests::wait::{eventually, figure};
use cluster_tests::{Client, ControlPlane, tools};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use transport::testing::{Certificates, ScriptedPeer, Visit};

use super::*;

/// `storage.k8s.io/v1` has it from 1.34 on, so that the old server has it only through others.
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const OLD: [&str; 1] = ["--emulated-version=1.33"];
const NEW: [&str; 1] = ["--emulated-version=1.36"];
const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// More than anybody reads of a document, and more than a server may hold of an answer.
const ENDLESS_MEGABYTES: usize = 200;

/// What a member can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Accepts and never answers.
    Silent,
    /// Does not speak HTTP.
    NoHttp,
    /// Answers 200 and nonsense.
    Nonsense,
    Failing,
    Distrusting,
    /// Answers 404 in plain text.
    Lost,
    Redirecting,
    /// Answers 200 MB.
    Endless,
    /// Announces more than it sends.
    Half,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::Silent,
        Self::NoHttp,
        Self::Nonsense,
        Self::Failing,
        Self::Distrusting,
        Self::Lost,
        Self::Redirecting,
        Self::Endless,
        Self::Half,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The identity of the member that has this fault.
    fn identity(self) -> String {
        format!("apiserver-{}", self.name())
    }

    /// A group that this member alone lists.
    fn group(self) -> String {
        format!("{}.k8s.io", self.name())
    }

    fn path(self) -> String {
        format!("/apis/{}/v1/things", self.group())
    }

    /// Answers a request in its way. Whoever would be sent elsewhere is sent to `rogue`.
    async fn play(self, visit: &mut Visit, rogue: SocketAddr) {
        let json = "application/json";
        match self {
            Self::Silent => visit.closed().await,
            Self::NoHttp => visit.say("SSH-2.0-OpenSSH_9.2\r\n").await,
            Self::Nonsense => visit.say(&answer("200 OK", json, r#"{"items": 7, "kind": "Nonsense"}"#)).await,
            Self::Failing => visit.say(&answer("500 Internal Server Error", "text/plain", "no\n")).await,
            Self::Distrusting => visit.say(&answer("401 Unauthorized", json, "{}")).await,
            Self::Lost => visit.say(&answer("404 Not Found", "text/plain", "404 page not found\n")).await,
            Self::Redirecting => {
                let head = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n";
                visit.say(&format!("{head}location: https://{rogue}/apis\r\n\r\n")).await;
            }
            Self::Endless => {
                let length = ENDLESS_MEGABYTES << 20;
                visit
                    .say(&format!("HTTP/1.1 200 OK\r\ncontent-type: {json}\r\ncontent-length: {length}\r\n\r\n"))
                    .await;
                let piece = " ".repeat(1 << 20);
                for _ in 0..ENDLESS_MEGABYTES {
                    visit.say(&piece).await;
                }
            }
            Self::Half => visit.say("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"kind\":").await,
        }
    }

    /// Whether a connection is of use after that.
    fn keeps_connection(self) -> bool {
        !matches!(self, Self::Silent | Self::NoHttp | Self::Half)
    }
}

fn failures(identity: &str, reason: &str) -> String {
    format!("unskew_peer_transport_failures_total{{peer=\"{identity}\",reason=\"{reason}\"}}")
}

async fn is_counted(client: &Client, series: &str) -> Result<(), String> {
    if figure(client, series).await > 0 { Ok(()) } else { Err(format!("{series} counts nothing")) }
}

async fn has_status(client: &Client, path: &str, status: u16) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == status { Ok(()) } else { Err(format!("{path}: {}", found.brief())) }
}

async fn has_live(client: &Client, count: usize) -> Result<(), String> {
    let live = figure(client, "unskew_peer_members{state=\"live\"}").await;
    if live == count as u64 { Ok(()) } else { Err(format!("{live} are live")) }
}

async fn merged(client: &Client) -> cluster_tests::client::Answer {
    client.send(client.request(http::Method::GET, "/apis").header("accept", MERGED), bytes::Bytes::new()).await
}

/// Somebody who must never be spoken to.
async fn rogue(stage: &Stage) -> ScriptedPeer {
    stage.peer(async |mut visit: Visit| visit.closed().await).await
}
