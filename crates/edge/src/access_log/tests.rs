use std::time::Duration;

use expect_test::expect;
use http_body_util::BodyExt as _;

use super::*;
use crate::{Body, RequestRecord};

/// Long enough for a loaded machine; only failing tests wait this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn lost_counter() -> IntCounter {
    IntCounter::new("lost", "lost").unwrap()
}

fn log_entry(log: &AccessLog, path: &'static str) -> AccessLogEntry {
    AccessLogEntry {
        log: log.clone(),
        time: "2026-11-16T01:02:03.456789Z".parse().unwrap(),
        started: Instant::now(),
        audit_id: HeaderValue::from_static("11"),
        client: "::ffff:192.0.2.7".parse::<IpAddr>().unwrap(),
        method: Method::GET,
        uri: Uri::from_static(path),
        verb: "list".to_owned(),
        fields: Mutex::default(),
        status: CLIENT_CLOSED_REQUEST,
        upstream: None,
        bytes_sent: 0,
    }
}

fn attach(entry: AccessLogEntry, response: Response) -> Response {
    let mut record = RequestRecord::default();
    record.log_entry = Some(Box::new(entry));
    record.attach_to(response)
}

/// The next line without its duration.
fn next_line_without_duration(lines: &mut mpsc::Receiver<Vec<u8>>) -> String {
    let line = String::from_utf8(lines.try_recv().unwrap()).unwrap();
    let (line, duration) = line.trim_end().trim_end_matches('}').split_once(",\"durationSeconds\":").unwrap();
    duration.parse::<f64>().unwrap();
    line.to_owned()
}

#[tokio::test]
async fn line_is_written_when_response_body_ends() {
    let (log, mut lines) = AccessLog::new(8, lost_counter());
    let entry = log_entry(&log, "/api/v1/pods?limit=5&secret=word");
    entry.set_user(Some("jane \"the boss\"\n".to_owned()));
    entry.set_rule(5);
    let mut response = Response::new(Body::from_parts(vec!["four".into(), "five!".into()]));
    response.extensions_mut().insert(RespondingPeer("apiserver-10.0.0.1:6443".into()));
    response.extensions_mut().insert(FailedAttempts(1));
    let mut body = attach(entry, response).into_body();
    body.frame().await.unwrap().unwrap();
    assert!(lines.try_recv().is_err(), "it is not over");
    body.frame().await.unwrap().unwrap();
    drop(body);
    expect![[r#"{"time":"2026-11-16T01:02:03.456789Z","auditID":"11","client":"192.0.2.7","user":"jane \"the boss\"\n","verb":"list","method":"GET","path":"/api/v1/pods","status":200,"upstream":"apiserver-10.0.0.1:6443","rule":5,"retries":1,"bytes":9"#]]
    .assert_eq(&next_line_without_duration(&mut lines));
}

#[tokio::test]
async fn rejected_and_cancelled_requests_are_logged() {
    let (log, mut lines) = AccessLog::new(8, lost_counter());
    let refused = log_entry(&log, "/apis/a/v1/bs");
    refused.set_error("not now (routing rule 5)");
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    drop(attach(refused, response));
    drop(log_entry(&log, "/gone"));
    expect![[r#"{"time":"2026-11-16T01:02:03.456789Z","auditID":"11","client":"192.0.2.7","verb":"list","method":"GET","path":"/apis/a/v1/bs","status":503,"error":"not now (routing rule 5)","retries":0,"bytes":0"#]]
    .assert_eq(&next_line_without_duration(&mut lines));
    expect![[r#"{"time":"2026-11-16T01:02:03.456789Z","auditID":"11","client":"192.0.2.7","verb":"list","method":"GET","path":"/gone","status":499,"retries":0,"bytes":0"#]]
    .assert_eq(&next_line_without_duration(&mut lines));
}

#[tokio::test]
async fn lines_beyond_queue_are_counted_as_lost() {
    let lost = lost_counter();
    let (log, mut lines) = AccessLog::new(2, lost.clone());
    for _ in 0..5 {
        drop(log_entry(&log, "/"));
    }
    assert_eq!(lost.get(), 3);
    next_line_without_duration(&mut lines);
    drop(log_entry(&log, "/later"));
    assert_eq!(lost.get(), 3);
}

/// A log in a temporary folder.
struct AccessLogFixture {
    dir: tempfile::TempDir,
    registry: Registry,
    tasks: Tasks,
    log: AccessLog,
}

impl AccessLogFixture {
    fn new() -> Self {
        let (dir, registry, tasks) = (tempfile::tempdir().unwrap(), Registry::new(), Tasks::new());
        let log = AccessLog::start(&dir.path().join("logs/access.log"), &registry, &tasks).unwrap();
        Self { dir, registry, tasks, log }
    }

    fn log_file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("logs").join(name)
    }

    /// The paths in the lines of a file.
    fn logged_paths(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.log_file(name)).unwrap_or_default();
        let path =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].as_str().unwrap().to_owned();
        text.lines().map(path).collect()
    }

    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
    }

    fn lost_count(&self, reason: &str) -> f64 {
        let families = self.registry.gather();
        let metrics = families[0].get_metric().iter();
        metrics
            .filter(|metric| metric.get_label()[0].value() == reason)
            .map(|metric| metric.get_counter().get_value())
            .sum()
    }
}

#[tokio::test]
async fn stop_writes_all_queued_lines() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = AccessLogFixture::new();
    let paths: Vec<_> = (0..BATCH_MAX + 10).map(|_| "/x").collect();
    for path in &paths {
        drop(log_entry(&fixture.log, path));
    }
    fixture.tasks.stop(TEST_TIMEOUT).await.unwrap();
    assert_eq!(fixture.logged_paths("access.log"), paths);
    let mode = std::fs::metadata(fixture.log_file("access.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The writer task has ended.
    drop(log_entry(&fixture.log, "/late"));
    assert_eq!(fixture.lost_count("queue_full"), 1.0);
}

#[tokio::test]
async fn rotated_log_file_is_recreated() {
    let fixture = AccessLogFixture::new();
    drop(log_entry(&fixture.log, "/before"));
    fixture.wait_until(|| fixture.logged_paths("access.log").len() == 1).await;
    std::fs::rename(fixture.log_file("access.log"), fixture.log_file("access.log.1")).unwrap();
    drop(log_entry(&fixture.log, "/after"));
    fixture.wait_until(|| fixture.logged_paths("access.log").len() == 1).await;
    assert_eq!(
        (fixture.logged_paths("access.log.1"), fixture.logged_paths("access.log")),
        (vec!["/before".into()], vec!["/after".into()])
    );
}

#[tokio::test]
async fn write_failures_are_counted_and_writing_resumes() {
    let fixture = AccessLogFixture::new();
    std::fs::remove_file(fixture.log_file("access.log")).unwrap();
    std::fs::create_dir(fixture.log_file("access.log")).unwrap();
    drop(log_entry(&fixture.log, "/lost"));
    fixture.wait_until(|| fixture.lost_count("write_failed") == 1.0).await;
    std::fs::remove_dir(fixture.log_file("access.log")).unwrap();
    drop(log_entry(&fixture.log, "/after"));
    fixture.wait_until(|| fixture.logged_paths("access.log") == ["/after"]).await;
}

#[test]
fn open_fails_for_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    LogOutput::open(dir.path(), lost_counter()).unwrap_err();
}
