//! The page of a running lab in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cluster_tests::client::ClientCredentials;
use cluster_tests::process::{SpawnedProcess, run_command};
use cluster_tests::{Browser, Client, tools};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::block_on;

/// The page must show a killed server within this time.
const UPDATE_TIME_MAX: Duration = Duration::from_secs(2);
/// Sum of the forwarded requests that the page shows.
const FORWARDED_COUNT_SCRIPT: &str = "[...document.querySelectorAll('#forwards tbody tr')]
    .reduce((sum, row) => sum + Number(row.cells[2].innerText.replaceAll(',', '')), 0)";
/// A lab is ready in about a second; during a build it takes longer.
const LAB_TIMEOUT: Duration = Duration::from_secs(120);

struct LabWithPage {
    folder: tempfile::TempDir,
    _process: SpawnedProcess,
    /// Keeps draining stdout; a full pipe would block the lab.
    _lines: mpsc::Receiver<String>,
    page: String,
}

impl LabWithPage {
    fn start(servers: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = unskew_command(folder.path());
        command.arg("up").arg(format!("--servers={servers}")).arg("--data-dir").arg(folder.path().join("lab"));
        let log = folder.path().join("log");
        let (process, lines) = SpawnedProcess::start(command, &log);
        let deadline = Instant::now() + LAB_TIMEOUT;
        let page = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left);
            let line =
                line.unwrap_or_else(|_| panic!("no page: {}", std::fs::read_to_string(&log).unwrap_or_default()));
            if let Some(start) = line.find("http://127.0.0.1:") {
                break line[start..].split_whitespace().next().unwrap().to_owned();
            }
        };
        Self { folder, _process: process, _lines: lines, page }
    }

    fn status(&self) -> Value {
        let mut command = unskew_command(self.folder.path());
        command.args(["status", "-o", "json", "--data-dir"]).arg(self.folder.path().join("lab"));
        serde_json::from_str(&run_command(command, LAB_TIMEOUT).expect_success()).unwrap()
    }

    /// Sends a GET to one server, by its own address, `times` times.
    fn request_repeatedly(&self, server: &Value, path: &str, times: usize) {
        let pki = self.folder.path().join("lab/pki");
        let admin = ClientCredentials::Certificate { certificate: pki.join("admin.crt"), key: pki.join("admin.key") };
        let address = server["address"].as_str().unwrap().trim_start_matches("https://");
        let client = Client::new(address, &pki.join("ca.crt"), admin);
        for _ in 0..times {
            let answer = block_on(client.get(path));
            assert_eq!(answer.status.as_u16(), 200, "{}", answer.summary());
        }
    }
}

fn unskew_command(home: &Path) -> Command {
    let mut command = Command::new(tools::unskew_binary());
    command.env("HOME", home);
    command
}

fn screenshot_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots").join(name)
}

#[test]
fn page_shows_a_killed_server_within_two_seconds() {
    if tools::is_skipped("browser") {
        return;
    }
    let lab = LabWithPage::start("1.33,1.34,1.36");
    let mut browser = Browser::start(1280, 900);
    browser.open(&lab.page);
    browser.wait_for("document.getElementById('summary').innerText === '3 of 3 servers ready'");
    browser.wait_for("document.querySelectorAll('#map tbody tr').length > 20");

    let status = lab.status();
    // Controllers may cause some forwarded requests too, but not as many.
    let before = browser.evaluate(FORWARDED_COUNT_SCRIPT).as_u64().unwrap();
    lab.request_repeatedly(&status["servers"][0], "/apis/storage.k8s.io/v1/volumeattributesclasses", 50);
    browser.wait_for(&format!("{FORWARDED_COUNT_SCRIPT} >= {}", before + 50));
    browser.wait_for("document.querySelector('#arrows > g')");
    browser.save_screenshot(&screenshot_path("lab-ready.png"));

    let victim = &status["servers"][2];
    let pid = Pid::from_raw(i32::try_from(victim["pid"].as_i64().unwrap()).unwrap()).unwrap();
    let killed = Instant::now();
    kill_process(pid, Signal::KILL).unwrap();
    let shown = browser.wait_for("document.querySelector('#servers tr[data-phase=failed] th')?.innerText === 'c'");
    assert!(shown - killed < UPDATE_TIME_MAX, "{:?}", shown - killed);
    browser.wait_for("document.getElementById('log').innerText.includes('Server c: failed')");
    browser.wait_for("[...document.querySelectorAll('#map .bad')].some((mark) => mark.innerText.startsWith('503'))");
    browser.save_screenshot(&screenshot_path("lab-killed.png"));
    assert_eq!(browser.logged_errors(), [] as [&str; 0]);
}
