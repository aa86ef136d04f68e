use std::time::Duration;

use expect_test::expect;
use http_body_util::BodyExt as _;

use super::*;

/// Long enough for a loaded machine, and only ever waited for by a test that fails.
const ENOUGH: Duration = Duration::from_secs(60);

fn counter() -> IntCounter {
    IntCounter::new("lost", "lost").unwrap()
}

fn entry(log: &AccessLog, path: &'static str) -> Entry {
    Entry {
        log: log.clone(),
        time: "2026-11-16T01:02:03.456789Z".parse().unwrap(),
        started: Instant::now(),
        audit_id: HeaderValue::from_static("11"),
        client: "::ffff:192.0.2.7".parse::<IpAddr>().unwrap(),
        method: Method::GET,
        uri: Uri::from_static(path),
        verb: "list".to_owned(),
        note: Arc::default(),
        status: CLIENT_GONE,
        upstream: None,
        bytes: 0,
    }
}

/// The next line; how long it took is no part of what is compared.
fn next(lines: &mut mpsc::Receiver<Vec<u8>>) -> String {
    let line = String::from_utf8(lines.try_recv().unwrap()).unwrap();
    let (line, duration) = line.trim_end().trim_end_matches('}').split_once(",\"durationSeconds\":").unwrap();
    duration.parse::<f64>().unwrap();
    line.to_owned()
}

#[tokio::test]
async fn a_line_says_what_became_of_a_request_when_its_answer_is_over() {
    let (log, mut lines) = AccessLog::new(8, counter());
    let entry = entry(&log, "/api/v1/pods?limit=5&secret=word");
    entry.note.user(Some("jane \"the boss\"\n".to_owned()));
    entry.note.rule(5);
    let mut response = Response::new(Body::parts(vec!["four".into(), "five!".into()]));
    response.extensions_mut().insert(AnsweredBy(ServerId::from_name("apiserver-10.0.0.1:6443").unwrap()));
    response.extensions_mut().insert(Retried(1));
    let mut body = entry.follow(response).into_body();
    body.frame().await.unwrap().unwrap();
    assert!(lines.try_recv().is_err(), "it is not over");
    body.frame().await.unwrap().unwrap();
    drop(body);
    expect![[r#"{"time":"2026-11-16T01:02:03.456789Z","auditID":"11","client":"192.0.2.7","user":"jane \"the boss\"\n","verb":"list","method":"GET","path":"/api/v1/pods","status":200,"upstream":"apiserver-10.0.0.1:6443","rule":5,"retries":1,"bytes":9"#]]
    .assert_eq(&next(&mut lines));
}

#[tokio::test]
async fn who_is_refused_and_who_goes_away_have_a_line_too() {
    let (log, mut lines) = AccessLog::new(8, counter());
    let refused = entry(&log, "/apis/a/v1/bs");
    refused.note.error("not now (routing rule 5)");
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    drop(refused.follow(response));
    drop(entry(&log, "/gone"));
    expect![[r#"{"time":"2026-11-16T01:02:03.456789Z","auditID":"11","client":"192.0.2.7","verb":"list","method":"GET","path":"/apis/a/v1/bs","status":503,"error":"not now (routing rule 5)","retries":0,"bytes":0"#]]
    .assert_eq(&next(&mut lines));
    expect![[r#"{"time":"2026-11-16T01:02:03.456789Z","auditID":"11","client":"192.0.2.7","verb":"list","method":"GET","path":"/gone","status":499,"retries":0,"bytes":0"#]]
    .assert_eq(&next(&mut lines));
}

#[tokio::test]
async fn lines_that_find_no_place_are_counted() {
    let lost = counter();
    let (log, mut lines) = AccessLog::new(2, lost.clone());
    for _ in 0..5 {
        drop(entry(&log, "/"));
    }
    assert_eq!(lost.get(), 3);
    next(&mut lines);
    drop(entry(&log, "/later"));
    assert_eq!(lost.get(), 3);
}

/// A log in a folder of its own.
struct Scene {
    folder: tempfile::TempDir,
    registry: Registry,
    tasks: Tasks,
    log: AccessLog,
}

impl Scene {
    fn new() -> Self {
        let (folder, registry, tasks) = (tempfile::tempdir().unwrap(), Registry::new(), Tasks::new());
        let log = AccessLog::start(&folder.path().join("logs/access.log"), &registry, &tasks).unwrap();
        Self { folder, registry, tasks, log }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("logs").join(name)
    }

    /// The paths in the lines of a file.
    fn paths(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        let path =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].as_str().unwrap().to_owned();
        text.lines().map(path).collect()
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(ENOUGH, waiting).await.unwrap();
    }

    fn lost(&self, reason: &str) -> f64 {
        let families = self.registry.gather();
        let metrics = families[0].get_metric().iter();
        metrics
            .filter(|metric| metric.get_label()[0].value() == reason)
            .map(|metric| metric.get_counter().get_value())
            .sum()
    }
}

#[tokio::test]
async fn everything_is_written_before_the_end() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new();
    let paths: Vec<_> = (0..BATCH_MAX + 10).map(|_| "/x").collect();
    for path in &paths {
        drop(entry(&scene.log, path));
    }
    scene.tasks.stop(ENOUGH).await.unwrap();
    assert_eq!(scene.paths("access.log"), paths);
    let mode = std::fs::metadata(scene.file("access.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Nobody writes any more.
    drop(entry(&scene.log, "/late"));
    assert_eq!(scene.lost("queue_full"), 1.0);
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_made_anew() {
    let scene = Scene::new();
    drop(entry(&scene.log, "/before"));
    scene.until(|| scene.paths("access.log").len() == 1).await;
    std::fs::rename(scene.file("access.log"), scene.file("access.log.1")).unwrap();
    drop(entry(&scene.log, "/after"));
    scene.until(|| scene.paths("access.log").len() == 1).await;
    assert_eq!(
        (scene.paths("access.log.1"), scene.paths("access.log")),
        (vec!["/before".into()], vec!["/after".into()])
    );
}

#[tokio::test]
async fn what_cannot_be_written_is_counted_and_later_lines_are_written() {
    let scene = Scene::new();
    std::fs::remove_file(scene.file("access.log")).unwrap();
    std::fs::create_dir(scene.file("access.log")).unwrap();
    drop(entry(&scene.log, "/lost"));
    scene.until(|| scene.lost("write_failed") == 1.0).await;
    std::fs::remove_dir(scene.file("access.log")).unwrap();
    drop(entry(&scene.log, "/after"));
    scene.until(|| scene.paths("access.log") == ["/after"]).await;
}

#[test]
fn a_place_that_cannot_be_opened_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    Output::open(folder.path(), counter()).unwrap_err();
}
