//! Servers that die, leave and return: never a guessed 404, never a repeated write.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// How long requests are repeated after a server is gone.
const OBSERVATION_TIME: Duration = Duration::from_secs(3);
/// Limit for a returning server to be used again.
const RETURN_TIME_MAX: Duration = Duration::from_secs(2);

/// Repeats a GET for [`OBSERVATION_TIME`]; every response must have the expected status.
#[track_caller]
fn expect_status_for_a_while(client: &Client, path: &str, expected: StatusCode) {
    let begun = Instant::now();
    while begun.elapsed() < OBSERVATION_TIME {
        let answer = block_on(client.get(path));
        assert_eq!(answer.status, expected, "{}", answer.summary());
    }
}

#[track_caller]
fn wait_until_served(limit: Duration, client: &Client, path: &str) {
    wait_within(limit, &format!("{path} is served"), async || {
        let answer = client.get(path).await;
        assert_ne!(answer.status, StatusCode::NOT_FOUND, "{}", answer.summary());
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.summary()) }
    });
}

/// Starts one server without the classes and some with them, and creates the class `one`.
#[track_caller]
fn start_with_classes(plane: &mut ControlPlane<'_>, capable: &[&str]) -> Client {
    plane.start("old", &OLD_FLAGS);
    for name in capable {
        plane.start(name, &NEW_FLAGS);
    }
    let old = plane.admin("old");
    wait_until_served(RETURN_TIME_MAX, &old, CLASSES_PATH);
    assert_eq!(block_on(old.create(CLASSES_PATH, &volume_attributes_class("one"))).status, StatusCode::CREATED);
    old
}

#[test]
fn resource_of_a_killed_server_is_503_until_it_returns() {
    ControlPlane::for_each_store(|mut plane| {
        let old = start_with_classes(&mut plane, &["new"]);
        plane.kill("new");
        expect_status_for_a_while(&old, &format!("{CLASSES_PATH}/one"), StatusCode::SERVICE_UNAVAILABLE);
        let refused = block_on(old.get(CLASSES_PATH));
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
        plane.start("new", &NEW_FLAGS);
        wait_until_served(RETURN_TIME_MAX, &old, &format!("{CLASSES_PATH}/one"));
    });
}

#[test]
fn resource_is_503_during_restart_of_its_only_server() {
    ControlPlane::for_each_store(|mut plane| {
        let old = start_with_classes(&mut plane, &["new"]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut codes = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    codes.push(block_on(old.get(&format!("{CLASSES_PATH}/one"))).status.as_u16());
                }
                codes
            });
            plane.stop("new");
            std::thread::park_timeout(Duration::from_secs(1));
            plane.start("new", &NEW_FLAGS);
            wait_until_served(RETURN_TIME_MAX, &old, &format!("{CLASSES_PATH}/one"));
            is_over.store(true, Ordering::Relaxed);
            let codes = asking.join().unwrap();
            assert!(codes.iter().all(|code| [200, 503].contains(code)), "{codes:?}");
            assert!(codes.contains(&503), "the outage is visible: {codes:?}");
        });
    });
}

#[test]
fn resource_of_a_stopped_server_is_404_after_the_linger() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let linger = "--peer-linger=3s";
    plane.start("old", &[OLD_FLAGS[0], linger]);
    plane.start("new", &[NEW_FLAGS[0], NEW_FLAGS[1], linger]);
    let old = plane.admin("old");
    wait_until_served(RETURN_TIME_MAX, &old, CLASSES_PATH);
    plane.stop("new");
    assert_eq!(block_on(old.get(CLASSES_PATH)).status, StatusCode::SERVICE_UNAVAILABLE);
    wait_within(Duration::from_secs(10), "no member serves it any more", async || {
        let answer = old.get(CLASSES_PATH).await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.summary()) }
    });
}

#[test]
fn restarted_server_remembers_resources_of_a_dead_peer() {
    ControlPlane::for_each_store(|mut plane| {
        start_with_classes(&mut plane, &["new"]);
        plane.kill("new");
        plane.kill("old");
        plane.start("old", &OLD_FLAGS);
        let old = plane.admin("old");
        for path in [CLASSES_PATH.to_owned(), format!("{CLASSES_PATH}/one")] {
            let answer = block_on(old.get(&path));
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.summary());
        }
        // At the same time, a path that no member ever served is 404.
        for path in ["/apis/example.com/v1/widgets", "/apis/storage.k8s.io/v9/things"] {
            let answer = block_on(old.get(path));
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}: {}", answer.summary());
        }
        plane.start("new", &NEW_FLAGS);
        wait_until_served(RETURN_TIME_MAX, &old, &format!("{CLASSES_PATH}/one"));
    });
}

#[test]
fn crash_marks_only_exclusively_served_versions_stale() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    // A short TTL makes a killed server suspect soon, and its exclusive versions stale.
    let quick = "--peer-endpoint-ttl=2s";
    plane.start("a", &["--emulated-version=1.36", quick]);
    plane.start("b", &["--emulated-version=1.36", quick]);
    plane.start("c", &["--emulated-version=1.37", "--runtime-config=api/all=true", quick]);
    let a = plane.admin("a");
    let document = async || {
        a.send(a.request_builder(Method::GET, "/apis").header("accept", MERGED_DISCOVERY_ACCEPT), "".into())
            .await
            .json()
    };
    let stale = |document: &Value| -> Vec<String> {
        let groups = document["items"].as_array().unwrap();
        let versions = groups.iter().flat_map(|group| {
            let name = group["metadata"]["name"].as_str().unwrap();
            group["versions"].as_array().unwrap().iter().map(move |version| (name, version))
        });
        let stale = versions.filter(|(_, version)| version["freshness"] == "Stale");
        stale.map(|(name, version)| format!("{name}/{}", version["version"].as_str().unwrap())).collect()
    };
    assert_eq!(stale(&block_on(document())), Vec::<String>::new());
    plane.kill("c");
    wait_within(Duration::from_secs(10), "exclusive versions of the dead server are stale", async || {
        let found = stale(&document().await);
        if found.is_empty() { Err("nothing is stale".to_owned()) } else { Ok(()) }
    });
    let local =
        block_on(a.send(a.request_builder(Method::GET, "/apis").header("accept", LOCAL_DISCOVERY_ACCEPT), "".into()))
            .json();
    let ours = local.to_string();
    for version in stale(&block_on(document())) {
        let (group, version) = version.split_once('/').unwrap();
        let is_ours = local["items"].as_array().unwrap().iter().any(|item| {
            item["metadata"]["name"] == group
                && item["versions"].as_array().unwrap().iter().any(|known| known["version"] == version)
        });
        assert!(!is_ours, "{group}/{version} is stale although this server serves it: {ours}");
    }
}

#[test]
fn requests_succeed_while_another_capable_server_is_live() {
    ControlPlane::for_each_store(|mut plane| {
        let old = start_with_classes(&mut plane, &["new", "spare"]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = ["/one", "", "?watch=1&timeoutSeconds=1"]
                .map(|rest| {
                    let (old, is_over) = (old.clone(), &is_over);
                    scope.spawn(move || {
                        let mut answers = 0_u64;
                        while !is_over.load(Ordering::Relaxed) {
                            let path = format!("{CLASSES_PATH}{rest}");
                            let begun =
                                block_on(old.send_streaming(old.request_builder(Method::GET, &path), "".into()));
                            assert_eq!(begun.status(), StatusCode::OK, "{path}");
                            answers += 1;
                        }
                        answers
                    })
                })
                .into();
            let writer = scope.spawn(|| {
                let mut outcomes = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let name = format!("w{}", outcomes.len());
                    outcomes.push((name.clone(), block_on(old.create(CLASSES_PATH, &volume_attributes_class(&name)))));
                }
                outcomes
            });
            std::thread::park_timeout(Duration::from_millis(500));
            plane.kill("new");
            std::thread::park_timeout(OBSERVATION_TIME);
            is_over.store(true, Ordering::Relaxed);
            let answers: Vec<u64> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            assert!(answers.iter().all(|answers| *answers > 10), "{answers:?}");
            let outcomes = writer.join().unwrap();
            // A write may fail only if it was in flight to the killed server; it is not retried.
            let failed: Vec<_> = outcomes.iter().filter(|(_, answer)| answer.status != StatusCode::CREATED).collect();
            assert!(failed.len() <= 1, "{failed:?}");
            for (name, answer) in &failed {
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{name}: {}", answer.summary());
                assert!(!answer.headers.contains_key("retry-after"), "{name}: {answer:?}");
            }
            let listed = block_on(old.get(CLASSES_PATH)).json();
            let names: Vec<&str> = listed["items"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|item| item["metadata"]["name"].as_str())
                .collect();
            for (name, answer) in &outcomes {
                let is_there = names.contains(&name.as_str());
                assert!(is_there || answer.status != StatusCode::CREATED, "{name} was acknowledged but is lost");
            }
        });
    });
}
