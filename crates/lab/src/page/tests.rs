//! Tests of the page over a real socket.

use std::net::Ipv4Addr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;
use crate::status::{Phase, ServerSnapshot};

/// A running page server and the sender of its snapshots.
struct TestPage {
    port: u16,
    snapshots: watch::Sender<Arc<LabSnapshot>>,
    tasks: Tasks,
}

impl TestPage {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (snapshots, receiver) = watch::channel(Arc::new(snapshot(Phase::Ready)));
        let tasks = Tasks::new();
        tasks.spawn("page", |stop| run(listener, receiver, tasks.clone(), stop));
        Self { port, snapshots, tasks }
    }

    async fn open_request(&self, request_line: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        let request = format!("{request_line} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\r\n", self.port);
        stream.write_all(request.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }

    async fn get(&self, request_line: &str) -> String {
        let mut text = String::new();
        self.open_request(request_line).await.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn stop(self) {
        self.tasks.stop(Duration::from_secs(10)).await.unwrap();
    }
}

fn snapshot(phase: Phase) -> LabSnapshot {
    let server =
        ServerSnapshot { name: "a".to_owned(), release: "1.33".to_owned(), phase, ..ServerSnapshot::default() };
    LabSnapshot { servers: vec![server], ..LabSnapshot::default() }
}

/// Reads the next `data:` line as a snapshot; `None` at the end of the stream.
async fn next_snapshot(stream: &mut BufReader<TcpStream>) -> Option<LabSnapshot> {
    let mut line = String::new();
    while stream.read_line(&mut line).await.unwrap() > 0 {
        if let Some(text) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(text).unwrap());
        }
        line.clear();
    }
    None
}

#[tokio::test]
async fn page_and_snapshot_are_served() {
    let scene = TestPage::start().await;
    let page = scene.get("GET /").await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("<h1>unskew lab</h1>"), "{page}");
    assert!(page.contains("default-src 'none'"), "{page}");
    let json = scene.get("GET /snapshot.json").await;
    let (_, body) = json.split_once("\r\n\r\n").unwrap();
    assert_eq!(serde_json::from_str::<LabSnapshot>(body).unwrap(), snapshot(Phase::Ready));
    let head = scene.get("HEAD /").await;
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    scene.stop().await;
}

#[tokio::test]
async fn event_stream_sends_current_snapshot_then_changes() {
    let scene = TestPage::start().await;
    let mut stream = scene.open_request("GET /events").await;
    assert_eq!(next_snapshot(&mut stream).await, Some(snapshot(Phase::Ready)));
    scene.snapshots.send_replace(Arc::new(snapshot(Phase::Failed)));
    assert_eq!(next_snapshot(&mut stream).await, Some(snapshot(Phase::Failed)));
    scene.stop().await;
    assert_eq!(next_snapshot(&mut stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn event_stream_sends_heartbeats_without_changes() {
    let (sender, receiver) = watch::channel(Arc::new(LabSnapshot::default()));
    let mut body = std::pin::pin!(events::event_stream_body(receiver, CancellationToken::new()));
    let mut heard = Vec::new();
    for _ in 0..3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        heard.push(String::from_utf8(frame.to_vec()).unwrap().lines().next().unwrap().to_owned());
    }
    assert_eq!(heard, ["retry: 500", "event: beat", "event: beat"]);
    drop(sender);
    assert!(body.frame().await.is_none());
}
