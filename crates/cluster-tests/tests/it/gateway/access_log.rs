//! The access log of a gateway.

use std::path::Path;

use cluster_tests::WatchReader;
use cluster_tests::client::ClientCredentials;
use cluster_tests::wait::eventually;

use super::*;

/// Parses the complete lines of a log.
fn read_log_lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Waits for the line of a request and returns it.
async fn wait_for_line(file: &Path, id: &str) -> Value {
    eventually(&format!("the log has a line of {id}"), async || {
        if read_log_lines(file).iter().any(|line| line["auditID"] == id) {
            Ok(())
        } else {
            Err(format!("{:?}", read_log_lines(file)))
        }
    })
    .await;
    let mut found: Vec<Value> = read_log_lines(file).into_iter().filter(|line| line["auditID"] == id).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Formats a line without its time and duration.
fn summarize_line(line: &Value) -> String {
    let words = ["client", "user", "verb", "method", "path", "status", "upstream", "rule", "retries", "bytes"];
    let said: Vec<String> = words.iter().map(|word| line[word].to_string().replace('"', "")).collect();
    said.join(" ")
}

#[test]
fn access_log_records_user_upstream_and_result_of_each_request() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let file = plane.folder().join("access.log");
    let flag = format!("--access-log-path={}", file.display());
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[&flag]);
    let (old, new) = (plane.address("old"), plane.address("new"));
    let shown = |line: &Value| summarize_line(line).replace(&old, "OLD").replace(&new, "NEW");
    block_on(async {
        let ask = async |identity: Option<ClientCredentials>, method: Method, path: &str, id: &str| {
            let client = identity.map_or_else(|| gateway.admin(), |identity| gateway.client_with(identity));
            let answer = client.send(client.request_builder(method, path).header("audit-id", id), "".into()).await;
            (answer.body.len(), wait_for_line(&file, id).await)
        };
        let (length, line) = ask(None, Method::GET, &format!("{CLASSES_PATH}?limit=7"), "classes").await;
        assert_eq!(
            shown(&line),
            format!("127.0.0.1 kubernetes-admin list GET {CLASSES_PATH} 200 apiserver-NEW 5 0 {length}")
        );
        assert!(line["durationSeconds"].as_f64().unwrap() > 0.0 && line["time"].as_str().unwrap().ends_with('Z'));
        let (length, line) = ask(None, Method::GET, &format!("{DEPLOYMENTS_PATH}/none"), "missing").await;
        assert_eq!(
            shown(&line),
            format!("127.0.0.1 kubernetes-admin get GET {DEPLOYMENTS_PATH}/none 404 apiserver-OLD 5 0 {length}")
        );
        // Only an upstream can resolve a token to a user.
        let token = || Some(ClientCredentials::Token("hush-hush".to_owned()));
        let (length, line) = ask(token(), Method::GET, CLASSES_PATH, "token").await;
        assert_eq!(shown(&line), format!("127.0.0.1 null list GET {CLASSES_PATH} 401 apiserver-NEW 5 0 {length}"));
        let (length, line) = ask(Some(ClientCredentials::Anonymous), Method::GET, "/version", "no-user").await;
        assert_eq!(shown(&line), format!("127.0.0.1 system:anonymous get GET /version 200 apiserver-NEW 1 0 {length}"));
        let (_, line) = ask(None, Method::HEAD, "/version", "head").await;
        assert_eq!(shown(&line), "127.0.0.1 kubernetes-admin head HEAD /version 200 apiserver-NEW 1 0 0");
        // A page that the gateway serves itself.
        let (length, line) = ask(None, Method::GET, "/debug/peers", "page").await;
        assert_eq!(shown(&line), format!("127.0.0.1 kubernetes-admin get GET /debug/peers 200 null null 0 {length}"));
        let (_, line) = ask(None, Method::GET, "/api/v1/namespaces/%zz/pods", "odd").await;
        assert_eq!(line["status"], 400, "{line}");
        assert!(!line["error"].as_str().unwrap().is_empty(), "{line}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("hush-hush") && !text.contains("limit=7"), "{text}");
    });
}

#[test]
fn watch_is_logged_at_its_end_and_rotated_file_is_recreated() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let (file, moved) = (plane.folder().join("logs/access.log"), plane.folder().join("logs/access.log.1"));
    let flag = format!("--access-log-path={}", file.display());
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[&flag]);
    block_on(async {
        let admin = gateway.admin();
        let watched = |line: &Value| line["verb"] == "watch";
        let mut watch = WatchReader::open(&admin, &format!("{}?watch=1", crate::CONFIG_MAPS_PATH)).await;
        admin.create(crate::CONFIG_MAPS_PATH, &crate::config_map("first")).await;
        while watch.next_event().await["object"]["metadata"]["name"] != "first" {}
        let client = gateway.client_with(ClientCredentials::Anonymous);
        client.send(client.request_builder(Method::GET, "/version").header("audit-id", "before"), "".into()).await;
        wait_for_line(&file, "before").await;
        assert!(!read_log_lines(&file).iter().any(watched), "the watch still runs");
        std::fs::rename(&file, &moved).unwrap();
        drop(watch);
        eventually("the watch is logged", async || {
            let found = read_log_lines(&file);
            if found.iter().any(watched) { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        let line = read_log_lines(&file).into_iter().find(watched).unwrap();
        assert!(line["bytes"].as_u64().unwrap() > 0 && line["status"] == 200, "{line}");
        assert!(!read_log_lines(&moved).iter().any(watched));
        // Buffered lines are written before a stopping gateway exits.
        client.send(client.request_builder(Method::GET, "/version").header("audit-id", "last"), "".into()).await;
    });
    assert_eq!(gateway.stop(), Some(0));
    assert!(read_log_lines(&file).iter().any(|line| line["auditID"] == "last"));
}

#[test]
fn unwritable_access_log_fails_the_start() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = std::process::Command::new(cluster_tests::tools::unskew_binary())
        .args(["gateway", "--secure-port=0", "--bind-address=127.0.0.1", "--access-log-path=/proc/none/access.log"])
        .args([format!("--upstream=https://{}", plane.address("old"))])
        .args(
            ["upstream-ca-file=ca.crt", "client-ca-file=ca.crt", "proxy-client-cert-file=front-proxy-client.crt"].map(
                |flag| {
                    let (name, file) = flag.split_once('=').unwrap();
                    format!("--{name}={}", plane.folder().join("unskew-data/pki").join(file).display())
                },
            ),
        )
        .arg(format!(
            "--proxy-client-key-file={}",
            plane.folder().join("unskew-data/pki/front-proxy-client.key").display()
        ))
        .current_dir(plane.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&gateway.stderr);
    assert!(!gateway.status.success() && said.contains("--access-log-path: /proc/none/access.log"), "{said}");
}
