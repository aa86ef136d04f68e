//! Pooling, reuse and closing of connections.

use super::*;

/// A peer that responds to every request, and a connector to it.
struct PoolFixture {
    _folder: tempfile::TempDir,
    tasks: Tasks,
    pool: Arc<ConnectionPool>,
}

impl PoolFixture {
    async fn new(answer: impl Fn(&ReceivedRequest) -> String + Clone + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(folder.path());
        let tasks = Tasks::new();
        let peer = ScriptedPeer::start_responder(certificates.server_config(), &tasks, answer).await;
        Self { pool: pool(certificates.connector(), &peer), tasks, _folder: folder }
    }
}

#[tokio::test]
async fn connection_is_reused_after_response_is_read() {
    let scene = PoolFixture::new(ok_response).await;
    let pool = scene.pool.clone();
    for _ in 0..3 {
        assert_eq!(body_text(send_get(&pool, "/a").await).await, "GET /a HTTP/1.1 on 0");
    }
    assert_eq!(pool.stats(), PoolStats { opened: 1, reused: 2 });

    let unread = send_get(&pool, "/b").await;
    assert_eq!(body_text(send_get(&pool, "/c").await).await, "GET /c HTTP/1.1 on 1");
    drop(unread);
    assert_eq!(pool.idle_count(), 1, "dropping an unread response closes its connection");
}

#[tokio::test]
async fn idle_connection_moves_to_another_worker() {
    let (scene, workers) = (PoolFixture::new(ok_response).await, crate::serving::Workers::start().unwrap());
    let pool = scene.pool.clone();
    assert_eq!(body_text(send_get(&pool, "/here").await).await, "GET /here HTTP/1.1 on 0");
    let (sender, received) = tokio::sync::oneshot::channel();
    let there = pool.clone();
    workers.spawn(&scene.tasks, "elsewhere", async move {
        let _ = sender.send(body_text(send_get(&there, "/there").await).await);
    });
    assert_eq!(tokio::time::timeout(TEST_TIMEOUT, received).await.unwrap().unwrap(), "GET /there HTTP/1.1 on 0");
    assert_eq!(body_text(send_get(&pool, "/back").await).await, "GET /back HTTP/1.1 on 0");
    assert_eq!(pool.stats(), PoolStats { opened: 1, reused: 2 });
}

#[tokio::test]
async fn response_without_body_returns_connection_at_once() {
    let scene = PoolFixture::new(|_| "HTTP/1.1 304 Not Modified\r\n\r\n".into()).await;
    let pool = scene.pool.clone();
    let _kept = send_get(&pool, "/a").await;
    assert_eq!(pool.idle_count(), 1);
}

#[tokio::test]
async fn connection_close_response_is_not_pooled() {
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let scene = PoolFixture::new(|_| last.into()).await;
    let pool = scene.pool.clone();
    assert_eq!(body_text(send_get(&pool, "/a").await).await, "ok");
    assert_eq!(pool.idle_count(), 0);
}

#[tokio::test]
async fn pool_discards_idle_connection_closed_by_peer() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let (close, closes) = tokio::sync::watch::channel(false);
    let peer = ScriptedPeer::start(certificates.server_config(), &tasks, move |mut visit| {
        let mut closes = closes.clone();
        async move {
            let received = visit.read_request().await.unwrap();
            visit.write(&ok_response(&received)).await;
            closes.wait_for(|closes| *closes).await.unwrap();
        }
    })
    .await;
    let pool = pool(certificates.connector(), &peer);
    assert_eq!(body_text(send_get(&pool, "/a").await).await, "GET /a HTTP/1.1 on 0");
    assert_eq!(pool.usable_idle_count(), 1);
    close.send_replace(true);
    wait_until(|| pool.usable_idle_count() == 0).await;
    assert!(pool.take_idle().is_none());
}

#[tokio::test]
async fn send_error_returns_unsent_request_with_body() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start(certificates.server_config(), &tasks, |visit| async move { drop(visit) }).await;
    let pool = pool(certificates.connector(), &peer);
    let line = pool.open(TEST_TIMEOUT).await.unwrap();
    wait_until(|| !line.is_open_and_idle()).await;
    // Yield once more, so that the runtime sees the close.
    tokio::task::yield_now().await;
    let body = RequestBody::new(Full::new(Bytes::from_static(b"body")).map_err(|never| match never {}));
    let request = Request::post("/a").header("host", "peer").body(body).unwrap();
    let unsent = line.send(request).await.unwrap_err().unsent.expect("the request comes back unsent");
    assert_eq!(unsent.uri(), "/a");
    assert_eq!(unsent.into_body().collect().await.unwrap().to_bytes(), "body");
}

#[tokio::test]
async fn response_streams_and_dropping_it_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let (closed, mut was_closed) = tokio::sync::watch::channel(false);
    let (allow, wait) = tokio::sync::watch::channel(0);
    let peer = ScriptedPeer::start(certificates.server_config(), &tasks, move |mut visit| {
        let (closed, mut wait) = (closed.clone(), wait.clone());
        async move {
            visit.read_request().await.unwrap();
            visit.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for number in 1..=3 {
                wait.wait_for(|allowed| *allowed >= number).await.unwrap();
                visit.write(&format!("2\r\n{number}\n\r\n")).await;
            }
            visit.wait_for_close().await;
            closed.send_replace(true);
        }
    })
    .await;
    let pool = pool(certificates.connector(), &peer);
    let mut body = send_get(&pool, "/watch").await.into_body();
    for number in 1..=3 {
        allow.send_replace(number);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("{number}\n"));
    }
    drop(body);
    tokio::time::timeout(TEST_TIMEOUT, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
    assert_eq!(pool.idle_count(), 0);
}

#[tokio::test]
async fn pool_enforces_idle_count_and_idle_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start_responder(certificates.server_config(), &tasks, ok_response).await;
    let limits = PoolLimits { idle_max: 2, idle_timeout: Duration::from_secs(25) };
    let pool = ConnectionPool::new(certificates.connector(), "127.0.0.1", peer.address.port(), limits);
    let answers = [send_get(&pool, "/").await, send_get(&pool, "/").await, send_get(&pool, "/").await];
    for answer in answers {
        body_text(answer).await;
    }
    assert_eq!(pool.idle_count(), 2);
    advance_clock(limits.idle_timeout).await;
    assert!(pool.take_idle().is_none());
    assert_eq!(pool.idle_count(), 0);

    body_text(send_get(&pool, "/").await).await;
    pool.close_expired();
    assert_eq!(pool.idle_count(), 1);
    advance_clock(limits.idle_timeout).await;
    pool.close_expired();
    assert_eq!(pool.idle_count(), 0);
}

/// Advances the paused clock only while no I/O is pending, so that timers do not overtake the sockets.
pub(super) async fn advance_clock(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Yields until the condition holds; the kernel delivers local socket events within microseconds.
pub(super) async fn wait_until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
}
