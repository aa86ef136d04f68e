//! Connections that are pooled, used again and given up.

use super::*;

/// A peer that answers every request, and connections to it.
struct Scene {
    _folder: tempfile::TempDir,
    tasks: Tasks,
    pool: Arc<Pool>,
}

impl Scene {
    async fn new(answer: impl Fn(&Heard) -> String + Clone + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::new(folder.path());
        let tasks = Tasks::new();
        let peer = ScriptedPeer::answering(certificates.server(), &tasks, answer).await;
        Self { pool: pool(certificates.connector(), &peer), tasks, _folder: folder }
    }
}

#[tokio::test]
async fn a_connection_is_used_again_once_its_answer_was_read() {
    let scene = Scene::new(ok).await;
    let pool = scene.pool.clone();
    for _ in 0..3 {
        assert_eq!(text(ask(&pool, "/a").await).await, "GET /a HTTP/1.1 on 0");
    }
    assert_eq!(pool.served_by(), ServedBy { opened: 1, reused: 2 });

    let unread = ask(&pool, "/b").await;
    assert_eq!(text(ask(&pool, "/c").await).await, "GET /c HTTP/1.1 on 1");
    drop(unread);
    assert_eq!(pool.idle(), 1, "an answer that was not read closes its connection");
}

#[tokio::test]
async fn an_idle_connection_moves_to_the_worker_that_needs_one() {
    let (scene, workers) = (Scene::new(ok).await, tasks::Workers::start().unwrap());
    let pool = scene.pool.clone();
    assert_eq!(text(ask(&pool, "/here").await).await, "GET /here HTTP/1.1 on 0");
    let (sender, heard) = tokio::sync::oneshot::channel();
    let there = pool.clone();
    scene.tasks.spawn_once_at(workers.place(), "elsewhere", async move {
        let _ = sender.send(text(ask(&there, "/there").await).await);
    });
    assert_eq!(tokio::time::timeout(ENOUGH, heard).await.unwrap().unwrap(), "GET /there HTTP/1.1 on 0");
    assert_eq!(text(ask(&pool, "/back").await).await, "GET /back HTTP/1.1 on 0");
    assert_eq!(pool.served_by(), ServedBy { opened: 1, reused: 2 });
}

#[tokio::test]
async fn a_worker_takes_its_own_connections_first() {
    let (scene, workers) = (Scene::new(ok).await, tasks::Workers::start().unwrap());
    let pool = scene.pool.clone();
    let ours = ask(&pool, "/ours").await;
    let (has_asked, asked) = tokio::sync::oneshot::channel();
    let (may_read, reads) = tokio::sync::oneshot::channel();
    let (sender, heard) = tokio::sync::oneshot::channel();
    let there = pool.clone();
    scene.tasks.spawn_once_at(workers.place(), "elsewhere", async move {
        let theirs = ask(&there, "/theirs").await;
        has_asked.send(()).unwrap();
        reads.await.unwrap();
        sender.send(text(theirs).await).unwrap();
    });
    asked.await.unwrap();
    assert_eq!(text(ours).await, "GET /ours HTTP/1.1 on 0");
    may_read.send(()).unwrap();
    assert_eq!(heard.await.unwrap(), "GET /theirs HTTP/1.1 on 1");
    until(|| pool.idle() == 2).await;
    // Theirs was used last, and is left to them all the same.
    assert_eq!(text(ask(&pool, "/ours").await).await, "GET /ours HTTP/1.1 on 0");
}

#[tokio::test]
async fn an_answer_without_a_body_leaves_the_connection_at_once() {
    let scene = Scene::new(|_| "HTTP/1.1 304 Not Modified\r\n\r\n".into()).await;
    let pool = scene.pool.clone();
    let _kept = ask(&pool, "/a").await;
    assert_eq!(pool.idle(), 1);
}

#[tokio::test]
async fn an_answer_that_announces_the_end_of_the_connection_is_believed() {
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let scene = Scene::new(|_| last.into()).await;
    let pool = scene.pool.clone();
    assert_eq!(text(ask(&pool, "/a").await).await, "ok");
    assert_eq!(pool.idle(), 0);
}

#[tokio::test]
async fn an_idle_connection_that_the_peer_closed_is_never_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let (close, closes) = tokio::sync::watch::channel(false);
    let peer = ScriptedPeer::start(certificates.server(), &tasks, move |mut visit| {
        let mut closes = closes.clone();
        async move {
            let heard = visit.hear().await.unwrap();
            visit.say(&ok(&heard)).await;
            closes.wait_for(|closes| *closes).await.unwrap();
        }
    })
    .await;
    let pool = pool(certificates.connector(), &peer);
    assert_eq!(text(ask(&pool, "/a").await).await, "GET /a HTTP/1.1 on 0");
    assert_eq!(pool.idle_and_quiet(), 1);
    close.send_replace(true);
    until(|| pool.idle_and_quiet() == 0).await;
    assert!(pool.take().is_none());
}

#[tokio::test]
async fn a_request_comes_back_whole_if_nothing_of_it_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start(certificates.server(), &tasks, |visit| async move { drop(visit) }).await;
    let pool = pool(certificates.connector(), &peer);
    let line = pool.open(ENOUGH).await.unwrap();
    until(|| !line.is_quiet()).await;
    // Once more, for the runtime to learn what the kernel knows.
    tokio::task::yield_now().await;
    let body = RequestBody::new(Full::new(Bytes::from_static(b"body")).map_err(|never| match never {}));
    let request = Request::post("/a").header("host", "peer").body(body).unwrap();
    let unsent = line.send(request).await.unwrap_err().unsent.expect("it was never sent");
    assert_eq!(unsent.uri(), "/a");
    assert_eq!(unsent.into_body().collect().await.unwrap().to_bytes(), "body");
}

#[tokio::test]
async fn an_answer_is_read_as_it_comes_and_dropping_it_reaches_the_peer() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let (closed, mut was_closed) = tokio::sync::watch::channel(false);
    let (allow, wait) = tokio::sync::watch::channel(0);
    let peer = ScriptedPeer::start(certificates.server(), &tasks, move |mut visit| {
        let (closed, mut wait) = (closed.clone(), wait.clone());
        async move {
            visit.hear().await.unwrap();
            visit.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for number in 1..=3 {
                wait.wait_for(|allowed| *allowed >= number).await.unwrap();
                visit.say(&format!("2\r\n{number}\n\r\n")).await;
            }
            visit.closed().await;
            closed.send_replace(true);
        }
    })
    .await;
    let pool = pool(certificates.connector(), &peer);
    let mut body = ask(&pool, "/watch").await.into_body();
    for number in 1..=3 {
        allow.send_replace(number);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("{number}\n"));
    }
    drop(body);
    tokio::time::timeout(ENOUGH, was_closed.wait_for(|closed| *closed)).await.unwrap().unwrap();
    assert_eq!(pool.idle(), 0);
}

#[tokio::test]
async fn idle_connections_are_few_and_young() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::answering(certificates.server(), &tasks, ok).await;
    let limits = PoolLimits { idle_max: 2, idle_age_max: Duration::from_secs(25) };
    let pool = Pool::new(certificates.connector(), "127.0.0.1", peer.address.port(), limits);
    let answers = [ask(&pool, "/").await, ask(&pool, "/").await, ask(&pool, "/").await];
    for answer in answers {
        text(answer).await;
    }
    assert_eq!(pool.idle(), 2);
    wait(limits.idle_age_max).await;
    assert!(pool.take().is_none());
    assert_eq!(pool.idle(), 0);

    text(ask(&pool, "/").await).await;
    pool.sweep();
    assert_eq!(pool.idle(), 1);
    wait(limits.idle_age_max).await;
    pool.sweep();
    assert_eq!(pool.idle(), 0);
}

/// Lets time pass while nothing is under way: a paused clock would otherwise run ahead of the sockets.
pub(super) async fn wait(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits for the kernel to tell, which it does within microseconds on one machine, and never by a guess at how long.
pub(super) async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(ENOUGH, waiting).await.unwrap();
}
