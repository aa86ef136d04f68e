//! Answers that share connections: apart from short requests, and not in each other's way.

use super::shared::{PLACE_WINDOW, PLACES_MAX};
use super::*;

/// A peer, the way to it, and what both need.
struct Scene {
    peer: SharingPeer,
    pool: Arc<Pool>,
    tasks: Tasks,
    certificates: Certificates,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn new(streams_max: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::new(folder.path());
        let tasks = Tasks::new();
        let peer = SharingPeer::start(certificates.server(), &tasks, streams_max).await;
        let pool = Self::pool_to(&certificates, peer.address.port());
        Self { peer, pool, tasks, certificates, _folder: folder }
    }

    fn pool_to(certificates: &Certificates, port: u16) -> Arc<Pool> {
        Pool::new(certificates.connector(), "127.0.0.1", port, PoolLimits::default())
    }

    /// Opens a watch, on whatever connection there is or will be.
    async fn watch(&self) -> (PeerBody, Asked) {
        let body = begin(&self.pool).await.unwrap();
        (body, self.peer.asked().await)
    }
}

async fn begin(pool: &Arc<Pool>) -> Result<PeerBody, SendError> {
    let line = match pool.take_shared(Sharing::Lasting) {
        Some(line) => line,
        None => pool.open_shared(Sharing::Lasting, ENOUGH).await.unwrap(),
    };
    Ok(line.send(get("/api/v1/pods?watch=1")).await?.into_body())
}

async fn next(body: &mut PeerBody) -> Bytes {
    let frame = tokio::time::timeout(ENOUGH, body.frame()).await.expect("it was sent");
    frame.unwrap().unwrap().into_data().unwrap()
}

/// An event goes all the way before the next is sent.
async fn exchange(body: &mut PeerBody, asked: &Asked, event: &'static str) {
    asked.answer.send(Bytes::from_static(event.as_bytes())).await.unwrap();
    assert_eq!(next(body).await, event);
}

#[tokio::test]
async fn watches_share_a_connection_and_arrive_event_by_event() {
    let scene = Scene::new(250).await;
    let (mut a, of_a) = scene.watch().await;
    let (mut b, of_b) = scene.watch().await;
    for event in ["one", "two", "three"] {
        exchange(&mut a, &of_a, event).await;
        exchange(&mut b, &of_b, event).await;
    }
    assert_eq!((of_a.connection, of_b.connection), (0, 0));
    assert_eq!(scene.pool.served_by(), ServedBy { opened: 1, reused: 1 });
    assert_eq!(of_a.uri, "https://peer/api/v1/pods?watch=1");
    assert!(!of_a.headers.contains_key("host"), "HTTP/2 names it with the target");
    drop(of_a);
    assert!(a.frame().await.is_none(), "its end is an end and no fault");
    exchange(&mut b, &of_b, "still there").await;
}

#[tokio::test]
async fn a_full_connection_is_followed_by_another_and_nobody_waits() {
    for (streams_max, room) in [(250, PLACES_MAX), (3, 3)] {
        let scene = Scene::new(streams_max).await;
        let mut held = Vec::new();
        for number in 0..=room {
            let (body, asked) = scene.watch().await;
            assert_eq!(asked.connection, number / room, "number {number} of {room} to a connection");
            held.push((body, asked));
        }
        // A place that is given up is taken again.
        let (body, asked) = held.remove(0);
        drop(body);
        tokio::time::timeout(ENOUGH, asked.answer.closed()).await.unwrap();
        held.push(scene.watch().await);
        assert_eq!(held.last().unwrap().1.connection, 0);
        assert_eq!(scene.pool.shared(), 2);
    }
}

#[tokio::test]
async fn those_who_come_at_once_open_no_more_connections_than_they_fill() {
    let scene = Scene::new(250).await;
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..2 * PLACES_MAX {
        let pool = scene.pool.clone();
        opening.spawn(async move { begin(&pool).await.unwrap() });
    }
    let held = opening.join_all().await;
    assert_eq!((held.len(), scene.peer.connections()), (2 * PLACES_MAX, 2));
}

#[tokio::test]
async fn leaving_a_watch_reaches_the_peer_and_no_other_watch() {
    let scene = Scene::new(250).await;
    let (mut stays, of_stays) = scene.watch().await;
    let (leaves, of_leaves) = scene.watch().await;
    drop(leaves);
    tokio::time::timeout(ENOUGH, of_leaves.answer.closed()).await.unwrap();
    exchange(&mut stays, &of_stays, "undisturbed").await;
    assert_eq!(scene.peer.connections(), 1);
}

#[tokio::test]
async fn a_watch_that_nobody_reads_delays_no_other() {
    let scene = Scene::new(250).await;
    let (mut read, of_read) = scene.watch().await;
    let piece = Bytes::from(vec![b'x'; 16 << 10]);
    let window = PLACE_WINDOW as usize;
    let mut stuck = Vec::new();
    for _ in 1..PLACES_MAX {
        let (body, asked) = scene.watch().await;
        assert_eq!(asked.connection, of_read.connection);
        // More than fits goes in for as long as something takes it.
        let (taken, mut fills) = tokio::sync::watch::channel(0);
        let (piece, length) = (piece.clone(), piece.len());
        scene.tasks.spawn_once("writer", async move {
            while asked.answer.send(piece.clone()).await.is_ok() {
                taken.send_modify(|taken| *taken += length);
            }
        });
        tokio::time::timeout(ENOUGH, fills.wait_for(|taken| *taken >= window)).await.unwrap().unwrap();
        stuck.push((body, fills));
    }
    for _ in 0..100 {
        exchange(&mut read, &of_read, "at once").await;
    }
    for (_, fills) in &stuck {
        // What is beyond the window is on the peer's side: one piece with its HTTP, and one or two before that.
        let taken = *fills.borrow();
        assert!(taken <= window + 4 * piece.len(), "{taken} bytes of an answer that nobody reads");
    }
    let (mut body, _) = stuck.swap_remove(0);
    let mut whole = 0;
    while whole < 4 * window {
        whole += next(&mut body).await.len();
    }
}

#[tokio::test]
async fn short_lines_that_nobody_reads_do_not_end_the_connection() {
    let scene = Scene::new(250).await;
    let (mut read, of_read) = scene.watch().await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let (body, asked) = scene.watch().await;
        for _ in 0..5_000 {
            asked.answer.send(Bytes::from_static(b"a line \n")).await.unwrap();
        }
        unread.push((body, asked));
    }
    exchange(&mut read, &of_read, "at once").await;
}

#[tokio::test]
async fn a_peer_that_drains_keeps_its_watches_and_gets_no_new_ones_on_their_connection() {
    let scene = Scene::new(250).await;
    let (mut old, of_old) = scene.watch().await;
    scene.peer.drain();
    // Until its farewell has come, new ones go there too; one of them may meet it.
    let (mut new, of_new) = loop {
        exchange(&mut old, &of_old, "goes on").await;
        if let Ok(body) = begin(&scene.pool).await {
            let asked = scene.peer.asked().await;
            if asked.connection != of_old.connection {
                break (body, asked);
            }
        }
    };
    assert_eq!((of_new.connection, scene.pool.shared()), (1, 1));
    exchange(&mut old, &of_old, "still").await;
    exchange(&mut new, &of_new, "as well").await;
}

#[tokio::test]
async fn a_farewell_is_noticed_before_a_request_meets_it() {
    let scene = Scene::new(2).await;
    let (a, b, c) = (scene.watch().await, scene.watch().await, scene.watch().await);
    drop(b);
    assert_eq!((a.1.connection, c.1.connection), (0, 1));
    scene.peer.drain();
    super::lines::until(|| scene.pool.take_shared(Sharing::Lasting).is_none()).await;
    let (_, asked) = scene.watch().await;
    assert_eq!(asked.connection, 2, "neither of the old ones, which both have room");
    assert!(!a.1.answer.is_closed() && !c.1.answer.is_closed(), "and both go on");
}

#[tokio::test]
async fn a_connection_that_dies_ends_its_watches_with_an_error() {
    let scene = Scene::new(250).await;
    let (mut a, of_a) = scene.watch().await;
    let (mut b, _of_b) = scene.watch().await;
    exchange(&mut a, &of_a, "before").await;
    scene.peer.cut();
    for body in [&mut a, &mut b] {
        let ended = tokio::time::timeout(ENOUGH, body.frame()).await.unwrap();
        ended.expect("not the end that a peer means").unwrap_err();
    }
    let (_, asked) = scene.watch().await;
    assert_eq!(asked.connection, 1);
}

#[tokio::test]
async fn a_peer_without_http2_gets_a_connection_for_each_watch() {
    let scene = Scene::new(250).await;
    let peer = ScriptedPeer::answering(scene.certificates.server(), &scene.tasks, ok).await;
    let pool = Scene::pool_to(&scene.certificates, peer.address.port());
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let pool = pool.clone();
        opening.spawn(async move { begin(&pool).await.unwrap() });
    }
    let bodies = opening.join_all().await;
    assert_eq!((peer.connections(), pool.shared()), (3, 0));
    for body in bodies {
        body.collect().await.unwrap();
    }
    let again = begin(&pool).await.unwrap().collect().await.unwrap().to_bytes();
    assert_eq!(peer.connections(), 3, "what is idle is used again: {again:?}");
}

#[tokio::test]
async fn whoever_waits_for_a_connection_is_told_why_there_is_none() {
    let scene = Scene::new(250).await;
    let foreign = tempfile::tempdir().unwrap();
    let foreign = Certificates::new(foreign.path());
    let peer = SharingPeer::start(foreign.server(), &scene.tasks, 250).await;
    let pool = Scene::pool_to(&scene.certificates, peer.address.port());
    let (a, b) = tokio::join!(pool.open_shared(Sharing::Lasting, ENOUGH), pool.open_shared(Sharing::Lasting, ENOUGH));
    assert_eq!((a.unwrap_err().reason(), b.unwrap_err().reason()), ("tls", "tls"));
    assert_eq!(peer.connections(), 1, "one try for both");
}

#[tokio::test]
async fn an_opening_that_is_given_up_is_taken_over_by_who_waits() {
    let scene = Scene::new(250).await;
    let mut gives_up = Box::pin(scene.pool.open_shared(Sharing::Lasting, ENOUGH));
    assert!(is_pending(&mut gives_up).await, "it has begun");
    let mut waits = Box::pin(scene.pool.open_shared(Sharing::Lasting, ENOUGH));
    assert!(is_pending(&mut waits).await, "it waits");
    drop(gives_up);
    waits.await.unwrap().send(get("/")).await.unwrap();
    assert_eq!(scene.pool.served_by().opened, 1);
}

#[tokio::test]
async fn a_connection_without_watches_is_closed_after_a_while() {
    let scene = Scene::new(250).await;
    let (mut body, asked) = scene.watch().await;
    super::lines::wait(PoolLimits::IDLE_AGE_MAX).await;
    scene.pool.sweep();
    assert_eq!(scene.pool.shared(), 1, "it carries one");
    exchange(&mut body, &asked, "undisturbed").await;
    drop(body);
    super::lines::wait(PoolLimits::IDLE_AGE_MAX).await;
    scene.pool.sweep();
    assert_eq!(scene.pool.shared(), 0);
    let (_, asked) = scene.watch().await;
    assert_eq!(asked.connection, 1);
}

/// Whether it is still pending after one look.
async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending()))
        .await
}

#[tokio::test]
async fn brief_answers_share_with_their_like_and_not_with_watches() {
    let scene = Scene::new(250).await;
    let (_watch, of_watch) = scene.watch().await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let line = match scene.pool.take_shared(Sharing::Brief) {
            Some(line) => line,
            None => scene.pool.open_shared(Sharing::Brief, ENOUGH).await.unwrap(),
        };
        let body = line.send(get("/api/v1/namespaces/default")).await.unwrap().into_body();
        held.push((body, scene.peer.asked().await));
    }
    assert_eq!(of_watch.connection, 0);
    assert!(held.iter().all(|(_, asked)| asked.connection == 1));
    assert_eq!(scene.pool.shared(), 2);
}

#[tokio::test]
async fn a_request_with_a_body_comes_back_from_a_shared_connection() {
    let scene = Scene::new(250).await;
    let line = scene.pool.open_shared(Sharing::Brief, ENOUGH).await.unwrap();
    let body = RequestBody::new(Full::new(Bytes::from_static(b"body")).map_err(|never| match never {}));
    let request = Request::get("/a").header("host", "peer").body(body).unwrap();
    let refused = line.send(request).await.unwrap_err();
    assert!(matches!(refused.error, LineError::Bodied));
    assert_eq!(refused.unsent.unwrap().into_body().collect().await.unwrap().to_bytes(), "body");
}

#[tokio::test]
async fn a_connection_that_was_waited_on_in_vain_takes_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(certificates.server()));
    // Takes every request and answers none.
    tasks.spawn_once("deaf", async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
        let mut unanswered = Vec::new();
        while let Some(Ok(asked)) = connection.accept().await {
            unanswered.push(asked);
        }
    });
    let pool = Scene::pool_to(&certificates, port);
    let line = pool.open_shared(Sharing::Brief, ENOUGH).await.unwrap();
    let soon = tokio::time::timeout(Duration::from_millis(20), line.send(get("/a"))).await;
    assert!(soon.is_err());
    let again = pool.take_shared(Sharing::Brief).expect("who gives up soon has changed its mind");
    let late = tokio::time::timeout(Duration::from_millis(1_100), again.send(get("/b"))).await;
    assert!(late.is_err());
    assert!(pool.take_shared(Sharing::Brief).is_none());
}
