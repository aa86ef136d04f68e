//! Multiplexed streams: separate from short requests, and independent of each other.

use super::h2_connection::{STREAM_WINDOW, STREAMS_MAX};
use super::*;

/// An HTTP/2 peer and a pool to it.
struct Http2Fixture {
    peer: Http2Peer,
    pool: Arc<ConnectionPool>,
    tasks: Tasks,
    certificates: TestCertificates,
    _folder: tempfile::TempDir,
}

impl Http2Fixture {
    async fn new(streams_max: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(folder.path());
        let tasks = Tasks::new();
        let peer = Http2Peer::start(certificates.server_config(), &tasks, streams_max).await;
        let pool = Self::pool_to(&certificates, peer.address.port());
        Self { peer, pool, tasks, certificates, _folder: folder }
    }

    fn pool_to(certificates: &TestCertificates, port: u16) -> Arc<ConnectionPool> {
        ConnectionPool::new(certificates.connector(), "127.0.0.1", port, PoolLimits::default())
    }

    /// Opens a watch on an existing or new connection.
    async fn watch(&self) -> (PeerBody, Http2Exchange) {
        let body = start_watch(&self.pool).await.unwrap();
        (body, self.peer.next_exchange().await)
    }
}

async fn start_watch(pool: &Arc<ConnectionPool>) -> Result<PeerBody, SendError> {
    let line = match pool.take_stream(StreamClass::LongRunning) {
        Some(line) => line,
        None => pool.open_stream(StreamClass::LongRunning, TEST_TIMEOUT).await.unwrap(),
    };
    Ok(line.send(get("/api/v1/pods?watch=1")).await?.into_body())
}

async fn next_data(body: &mut PeerBody) -> Bytes {
    let frame = tokio::time::timeout(TEST_TIMEOUT, body.frame()).await.expect("a frame arrives");
    frame.unwrap().unwrap().into_data().unwrap()
}

/// Sends one event and waits until it is received.
async fn send_and_receive(body: &mut PeerBody, exchange: &Http2Exchange, event: &'static str) {
    exchange.response_body.send(Bytes::from_static(event.as_bytes())).await.unwrap();
    assert_eq!(next_data(body).await, event);
}

#[tokio::test]
async fn watches_share_one_http2_connection_and_stream_events() {
    let scene = Http2Fixture::new(250).await;
    let (mut a, of_a) = scene.watch().await;
    let (mut b, of_b) = scene.watch().await;
    for event in ["one", "two", "three"] {
        send_and_receive(&mut a, &of_a, event).await;
        send_and_receive(&mut b, &of_b, event).await;
    }
    assert_eq!((of_a.connection, of_b.connection), (0, 0));
    assert_eq!(scene.pool.stats(), PoolStats { opened: 1, reused: 1 });
    assert_eq!(of_a.uri, "https://peer/api/v1/pods?watch=1");
    assert!(!of_a.headers.contains_key("host"), "HTTP/2 uses :authority instead");
    drop(of_a);
    assert!(a.frame().await.is_none(), "the stream ends without an error");
    send_and_receive(&mut b, &of_b, "still there").await;
}

#[tokio::test]
async fn full_http2_connection_makes_pool_open_another() {
    for (streams_max, room) in [(250, STREAMS_MAX), (3, 3)] {
        let scene = Http2Fixture::new(streams_max).await;
        let mut held = Vec::new();
        for number in 0..=room {
            let (body, asked) = scene.watch().await;
            assert_eq!(asked.connection, number / room, "stream {number}, {room} streams per connection");
            held.push((body, asked));
        }
        // A released stream can be reserved again.
        let (body, asked) = held.remove(0);
        drop(body);
        tokio::time::timeout(TEST_TIMEOUT, asked.response_body.closed()).await.unwrap();
        held.push(scene.watch().await);
        assert_eq!(held.last().unwrap().1.connection, 0);
        assert_eq!(scene.pool.h2_connection_count(), 2);
    }
}

#[tokio::test]
async fn concurrent_watches_open_no_more_connections_than_they_fill() {
    let scene = Http2Fixture::new(250).await;
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..2 * STREAMS_MAX {
        let pool = scene.pool.clone();
        opening.spawn(async move { start_watch(&pool).await.unwrap() });
    }
    let held = opening.join_all().await;
    assert_eq!((held.len(), scene.peer.connection_count()), (2 * STREAMS_MAX, 2));
}

#[tokio::test]
async fn dropping_a_watch_resets_only_its_stream() {
    let scene = Http2Fixture::new(250).await;
    let (mut stays, of_stays) = scene.watch().await;
    let (leaves, of_leaves) = scene.watch().await;
    drop(leaves);
    tokio::time::timeout(TEST_TIMEOUT, of_leaves.response_body.closed()).await.unwrap();
    send_and_receive(&mut stays, &of_stays, "undisturbed").await;
    assert_eq!(scene.peer.connection_count(), 1);
}

#[tokio::test]
async fn unread_watch_does_not_delay_other_streams() {
    let scene = Http2Fixture::new(250).await;
    let (mut read, of_read) = scene.watch().await;
    let piece = Bytes::from(vec![b'x'; 16 << 10]);
    let window = STREAM_WINDOW as usize;
    let mut stuck = Vec::new();
    for _ in 1..STREAMS_MAX {
        let (body, asked) = scene.watch().await;
        assert_eq!(asked.connection, of_read.connection);
        // The peer sends until flow control blocks it.
        let (taken, mut fills) = tokio::sync::watch::channel(0);
        let (piece, length) = (piece.clone(), piece.len());
        scene.tasks.spawn_once("writer", async move {
            while asked.response_body.send(piece.clone()).await.is_ok() {
                taken.send_modify(|taken| *taken += length);
            }
        });
        tokio::time::timeout(TEST_TIMEOUT, fills.wait_for(|taken| *taken >= window)).await.unwrap().unwrap();
        stuck.push((body, fills));
    }
    for _ in 0..100 {
        send_and_receive(&mut read, &of_read, "at once").await;
    }
    for (_, fills) in &stuck {
        // Beyond the window the peer buffers a few chunks itself.
        let taken = *fills.borrow();
        assert!(taken <= window + 4 * piece.len(), "{taken} bytes of an unread response");
    }
    let (mut body, _) = stuck.swap_remove(0);
    let mut whole = 0;
    while whole < 4 * window {
        whole += next_data(&mut body).await.len();
    }
}

#[tokio::test]
async fn many_small_unread_frames_do_not_close_the_connection() {
    let scene = Http2Fixture::new(250).await;
    let (mut read, of_read) = scene.watch().await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let (body, asked) = scene.watch().await;
        for _ in 0..5_000 {
            asked.response_body.send(Bytes::from_static(b"a line \n")).await.unwrap();
        }
        unread.push((body, asked));
    }
    send_and_receive(&mut read, &of_read, "at once").await;
}

#[tokio::test]
async fn draining_peer_keeps_streams_and_gets_no_new_ones() {
    let scene = Http2Fixture::new(250).await;
    let (mut old, of_old) = scene.watch().await;
    scene.peer.drain();
    // Before the GOAWAY arrives, new streams may still use the old connection; one may fail.
    let (mut new, of_new) = loop {
        send_and_receive(&mut old, &of_old, "goes on").await;
        if let Ok(body) = start_watch(&scene.pool).await {
            let asked = scene.peer.next_exchange().await;
            if asked.connection != of_old.connection {
                break (body, asked);
            }
        }
    };
    assert_eq!((of_new.connection, scene.pool.h2_connection_count()), (1, 1));
    send_and_receive(&mut old, &of_old, "still").await;
    send_and_receive(&mut new, &of_new, "as well").await;
}

#[tokio::test]
async fn pool_avoids_connection_after_goaway() {
    let scene = Http2Fixture::new(2).await;
    let (a, b, c) = (scene.watch().await, scene.watch().await, scene.watch().await);
    drop(b);
    assert_eq!((a.1.connection, c.1.connection), (0, 1));
    scene.peer.drain();
    super::pooling::wait_until(|| scene.pool.take_stream(StreamClass::LongRunning).is_none()).await;
    let (_, asked) = scene.watch().await;
    assert_eq!(asked.connection, 2, "not an old connection, although both have room");
    assert!(!a.1.response_body.is_closed() && !c.1.response_body.is_closed(), "open streams continue");
}

#[tokio::test]
async fn broken_connection_ends_its_watches_with_an_error() {
    let scene = Http2Fixture::new(250).await;
    let (mut a, of_a) = scene.watch().await;
    let (mut b, _of_b) = scene.watch().await;
    send_and_receive(&mut a, &of_a, "before").await;
    scene.peer.close_abruptly();
    for body in [&mut a, &mut b] {
        let ended = tokio::time::timeout(TEST_TIMEOUT, body.frame()).await.unwrap();
        ended.expect("the stream ends abnormally").unwrap_err();
    }
    let (_, asked) = scene.watch().await;
    assert_eq!(asked.connection, 1);
}

#[tokio::test]
async fn http1_peer_gets_one_connection_per_watch() {
    let scene = Http2Fixture::new(250).await;
    let peer = ScriptedPeer::start_responder(scene.certificates.server_config(), &scene.tasks, ok_response).await;
    let pool = Http2Fixture::pool_to(&scene.certificates, peer.address.port());
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let pool = pool.clone();
        opening.spawn(async move { start_watch(&pool).await.unwrap() });
    }
    let bodies = opening.join_all().await;
    assert_eq!((peer.connection_count(), pool.h2_connection_count()), (3, 0));
    for body in bodies {
        body.collect().await.unwrap();
    }
    let again = start_watch(&pool).await.unwrap().collect().await.unwrap().to_bytes();
    assert_eq!(peer.connection_count(), 3, "the idle connection is reused: {again:?}");
}

#[tokio::test]
async fn failed_dial_error_reaches_all_waiters() {
    let scene = Http2Fixture::new(250).await;
    let foreign = tempfile::tempdir().unwrap();
    let foreign = TestCertificates::new(foreign.path());
    let peer = Http2Peer::start(foreign.server_config(), &scene.tasks, 250).await;
    let pool = Http2Fixture::pool_to(&scene.certificates, peer.address.port());
    let (a, b) = tokio::join!(
        pool.open_stream(StreamClass::LongRunning, TEST_TIMEOUT),
        pool.open_stream(StreamClass::LongRunning, TEST_TIMEOUT)
    );
    assert_eq!((a.unwrap_err().reason(), b.unwrap_err().reason()), ("tls", "tls"));
    assert_eq!(peer.connection_count(), 1, "one dial for both");
}

#[tokio::test]
async fn waiter_takes_over_cancelled_dial() {
    let scene = Http2Fixture::new(250).await;
    let mut gives_up = Box::pin(scene.pool.open_stream(StreamClass::LongRunning, TEST_TIMEOUT));
    assert!(is_pending(&mut gives_up).await, "the dial has started");
    let mut waits = Box::pin(scene.pool.open_stream(StreamClass::LongRunning, TEST_TIMEOUT));
    assert!(is_pending(&mut waits).await, "it waits");
    drop(gives_up);
    waits.await.unwrap().send(get("/")).await.unwrap();
    assert_eq!(scene.pool.stats().opened, 1);
}

#[tokio::test]
async fn idle_http2_connection_is_closed_after_timeout() {
    let scene = Http2Fixture::new(250).await;
    let (mut body, asked) = scene.watch().await;
    super::pooling::advance_clock(PoolLimits::IDLE_TIMEOUT).await;
    scene.pool.close_expired();
    assert_eq!(scene.pool.h2_connection_count(), 1, "the connection has a stream");
    send_and_receive(&mut body, &asked, "undisturbed").await;
    drop(body);
    super::pooling::advance_clock(PoolLimits::IDLE_TIMEOUT).await;
    scene.pool.close_expired();
    assert_eq!(scene.pool.h2_connection_count(), 0);
    let (_, asked) = scene.watch().await;
    assert_eq!(asked.connection, 1);
}

/// Polls once and reports whether the future is pending.
async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending()))
        .await
}

#[tokio::test]
async fn short_streams_do_not_share_connections_with_watches() {
    let scene = Http2Fixture::new(250).await;
    let (_watch, of_watch) = scene.watch().await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let line = match scene.pool.take_stream(StreamClass::Short) {
            Some(line) => line,
            None => scene.pool.open_stream(StreamClass::Short, TEST_TIMEOUT).await.unwrap(),
        };
        let body = line.send(get("/api/v1/namespaces/default")).await.unwrap().into_body();
        held.push((body, scene.peer.next_exchange().await));
    }
    assert_eq!(of_watch.connection, 0);
    assert!(held.iter().all(|(_, asked)| asked.connection == 1));
    assert_eq!(scene.pool.h2_connection_count(), 2);
}

#[tokio::test]
async fn http2_send_returns_request_with_body_unsent() {
    let scene = Http2Fixture::new(250).await;
    let line = scene.pool.open_stream(StreamClass::Short, TEST_TIMEOUT).await.unwrap();
    let body = RequestBody::new(Full::new(Bytes::from_static(b"body")).map_err(|never| match never {}));
    let request = Request::get("/a").header("host", "peer").body(body).unwrap();
    let refused = line.send(request).await.unwrap_err();
    assert!(matches!(refused.error, PeerConnectionError::BodyNotAllowed));
    assert_eq!(refused.unsent.unwrap().into_body().collect().await.unwrap().to_bytes(), "body");
}

#[tokio::test]
async fn connection_is_retired_after_long_cancelled_wait() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(certificates.server_config()));
    // Accepts every request and sends no response.
    tasks.spawn_once("deaf", async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
        let mut unanswered = Vec::new();
        while let Some(Ok(asked)) = connection.accept().await {
            unanswered.push(asked);
        }
    });
    let pool = Http2Fixture::pool_to(&certificates, port);
    let line = pool.open_stream(StreamClass::Short, TEST_TIMEOUT).await.unwrap();
    let soon = tokio::time::timeout(Duration::from_millis(20), line.send(get("/a"))).await;
    assert!(soon.is_err());
    let again = pool.take_stream(StreamClass::Short).expect("a quick cancel does not retire the connection");
    let late = tokio::time::timeout(Duration::from_millis(1_100), again.send(get("/b"))).await;
    assert!(late.is_err());
    assert!(pool.take_stream(StreamClass::Short).is_none());
}
