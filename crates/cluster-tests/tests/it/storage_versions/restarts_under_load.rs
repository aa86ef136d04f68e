//! Restarts under load, checked against the store's history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cluster_tests::Client;
use http::Method;

use super::history::{check_history, read_store_history};
use super::*;

/// Concurrent requests per server.
const CONCURRENT_WRITERS: usize = 4;

/// Writes through one server until dropped, whether it is reachable or not. Objects carry the server's name as label.
pub(super) struct WriteLoad {
    stop: Arc<AtomicBool>,
    pub(super) written: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WriteLoad {
    pub(super) fn start(server: &str, client: &Client) -> Self {
        let (stop, written) = (Arc::new(AtomicBool::default()), Arc::new(AtomicUsize::default()));
        let (server, client) = (server.to_owned(), client.clone());
        let (is_over, count) = (stop.clone(), written.clone());
        let thread = std::thread::spawn(move || {
            block_on(async {
                let writers =
                    (0..CONCURRENT_WRITERS).map(|number| write_repeatedly(&client, &server, number, &is_over, &count));
                futures_util::future::join_all(writers).await;
            });
        });
        Self { stop, written, thread: Some(thread) }
    }
}

impl Drop for WriteLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the load failed");
    }
}

async fn write_repeatedly(client: &Client, server: &str, number: usize, is_over: &AtomicBool, written: &AtomicUsize) {
    for count in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let body = volume_attributes_class(&format!("{server}-{number}-{count}"), server).to_string();
        let request = client.request_builder(Method::POST, CLASSES_PATH).header("content-type", "application/json");
        match client.try_send(request, body.into()).await {
            Ok(answer) if answer.status == 201 => drop(written.fetch_add(1, Ordering::Relaxed)),
            // Held, draining or unreachable: retry soon.
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

#[test]
fn writes_are_stored_in_published_versions_only() {
    ControlPlane::for_each_store(|mut plane| {
        let releases = [&FLAGS_1_34, &FLAGS_1_36];
        for name in ["a", "b"] {
            plane.start(name, &SHORT_LEASE.iter().chain(&FLAGS_1_34).copied().collect::<Vec<_>>());
        }
        let loads = ["a", "b"].map(|name| WriteLoad::start(name, &plane.admin(name)));
        for round in 0..6 {
            let name = ["a", "b"][round % 2];
            if round % 3 == 0 {
                plane.kill(name)
            } else {
                plane.stop(name)
            }
            let release = releases[(round / 2 + 1) % 2];
            // The load continues while the server starts.
            plane.start(name, &SHORT_LEASE.iter().chain(release).copied().collect::<Vec<_>>());
            let written = loads[round % 2].written.load(Ordering::Relaxed);
            wait_within(CONVERGENCE_TIMEOUT, "the server accepts writes again", async || {
                let now = loads[round % 2].written.load(Ordering::Relaxed);
                if now > written + 50 { Ok(()) } else { Err(format!("{now} after {written}")) }
            });
        }
        drop(loads);
        let findings = block_on(async { check_history(&plane.admin("a"), &read_store_history(&plane).await).await });
        let wrong = &findings.wrong;
        assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), findings.checked, &wrong[..wrong.len().min(5)]);
        for writer in ["a", "b"] {
            for version in ["storage.k8s.io/v1", "storage.k8s.io/v1beta1"] {
                let count = findings.by_writer.get(&(writer.to_owned(), version.to_owned()));
                assert!(count.is_some_and(|count| *count > 50), "{findings:?}");
            }
        }
        println!("{:?}: {findings:?}", plane.store());
    });
}
