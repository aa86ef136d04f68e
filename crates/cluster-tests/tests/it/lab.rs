//! `unskew up` and the other lab commands.

mod page;
mod rollout;

use std::time::{Duration, Instant};

use cluster_tests::RunningLab;
use cluster_tests::lab::{is_running, run_unskew};
use cluster_tests::process::run_command;
use cluster_tests::tools::{is_skipped, kubectl};

use super::*;

const LAB_TIMEOUT: Duration = Duration::from_secs(60);
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LAB_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {LAB_TIMEOUT:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn kubectl_works_through_load_balancer_and_oldest_server() {
    if is_skipped("kubectl") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &[]);
    assert!(lab.kubectl(&["get", "namespaces"]).expect_success().contains("kube-system"));
    let printed = lab.run_command(&["kubeconfig"]).expect_success();
    assert_eq!(printed.trim(), lab.kubeconfig().display().to_string());
    assert!(!home.path().join(".kube/config").exists(), "the user's own kubeconfig is not touched");

    let oldest = lab.server_status("a");
    assert_eq!(oldest["release"], "1.33");
    let address = oldest["address"].as_str().unwrap();
    let resources = lab.kubectl(&["--server", address, "api-resources", "--api-group=storage.k8s.io"]).expect_success();
    assert!(
        resources.lines().any(|line| line.contains("storage.k8s.io/v1 ") && line.contains("VolumeAttributesClass"))
    );
    lab.kubectl(&["--server", address, "get", "--raw", CLASSES_PATH]).expect_success();
    wait_until("the forwarded request is counted", || {
        let status = lab.status();
        status["forwards"].as_array().unwrap().iter().any(|forward| forward["from"] == "a")
    });
}

#[test]
fn restarted_lab_keeps_ports_kubeconfig_and_objects() {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &["--servers=1.34,1.36"]);
    lab.kubectl(&["create", "namespace", "kept"]).expect_success();
    let (before, kubeconfig) = (lab.status(), std::fs::read(lab.kubeconfig()).unwrap());
    let pids = lab.server_pids();
    assert_eq!(lab.interrupt(), Some(0));
    assert!(!pids.into_iter().any(is_running), "Ctrl-C leaves nothing behind");
    assert!(!home.path().join("lab/lab.sock").exists());

    let lab = RunningLab::start(home.path(), &[]);
    let after = lab.status();
    for fact in ["address", "page", "kubeconfig"] {
        assert_eq!(after["lab"][fact], before["lab"][fact]);
    }
    let addresses = |status: &Value| -> Vec<Value> {
        status["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|server| json!([server["address"], server["release"]]))
            .collect()
    };
    assert_eq!(addresses(&after), addresses(&before));
    assert_eq!(std::fs::read(lab.kubeconfig()).unwrap(), kubeconfig);
    lab.kubectl(&["get", "namespace", "kept"]).expect_success();
}

#[test]
fn lab_starts_and_stops_its_own_etcd() {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &["--servers=1.36", "--etcd"]);
    lab.kubectl(&["create", "namespace", "kept"]).expect_success();
    assert!(lab.status()["lab"]["store"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let children = lab.child_pids();
    assert_eq!(children.len(), 2, "a server and etcd");
    assert_eq!(lab.interrupt(), Some(0));
    assert!(!children.into_iter().any(is_running));

    let lab = RunningLab::start(home.path(), &["--etcd"]);
    lab.kubectl(&["get", "namespace", "kept"]).expect_success();
    let children = lab.child_pids();
    lab.kill();
    wait_until("etcd exits with its lab", || !children.iter().copied().any(is_running));
}

#[test]
fn two_labs_are_isolated() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let labs = homes.each_ref().map(|home| RunningLab::start(home.path(), &["--servers=1.36"]));
    labs[0].kubectl(&["create", "namespace", "mine"]).expect_success();
    labs[1].kubectl(&["get", "namespace", "mine"]).expect_failure();
    let status = labs.each_ref().map(RunningLab::status);
    assert_ne!(status[0]["lab"]["address"], status[1]["lab"]["address"]);
    assert_eq!(status[1]["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn killed_lab_leaves_no_processes_and_restarts() {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &["--servers=1.33,1.36"]);
    lab.kubectl(&["create", "namespace", "kept"]).expect_success();
    // A suspended process reacts to SIGKILL only.
    lab.run_command(&["pause", "b"]).expect_success();
    let (pids, address) = (lab.server_pids(), lab.status()["lab"]["address"].clone());
    assert_eq!(pids.len(), 2);
    lab.kill();
    wait_until("the servers exit with their lab", || !pids.iter().copied().any(is_running));

    let lab = RunningLab::start(home.path(), &[]);
    assert_eq!(lab.status()["lab"]["address"], address);
    lab.kubectl(&["get", "namespace", "kept"]).expect_success();
}

#[test]
fn lab_commands_start_stop_kill_pause_and_resume_servers() {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &["--servers=1.33,1.36"]);
    let phase = |name: &str| lab.server_status(name)["phase"].as_str().unwrap().to_owned();
    let old = lab.server_status("a")["address"].as_str().unwrap().to_owned();
    let ask_old = || kubectl(&lab.kubeconfig(), &["--server", &old, "get", "--raw", CLASSES_PATH]);
    let said = |args: &[&str]| lab.run_command(args).expect_success().trim().to_owned();

    let lost = said(&["status", "--if-stopped", "b"]);
    assert!(lost.contains("storage.k8s.io/v1/volumeattributesclasses"), "{lost}");
    assert_eq!(said(&["stop", "b"]), "server b is stopped");
    assert_eq!(phase("b"), "stopped");
    let unavailable = ask_old().expect_failure();
    assert!(unavailable.contains("ServiceUnavailable"), "what only b serves is 503: {unavailable}");
    for _ in 0..4 {
        lab.kubectl(&["get", "namespaces"]).expect_success();
    }
    assert_eq!(said(&["start", "b"]), "server b is ready");
    wait_until("requests are forwarded to b again", || ask_old().code == Some(0));

    let before = lab.server_status("b")["pid"].clone();
    assert_eq!(said(&["kill", "b"]), "server b is stopped");
    assert_eq!(said(&["start", "b"]), "server b is ready");
    assert_ne!(lab.server_status("b")["pid"], before);

    assert_eq!(said(&["pause", "b"]), "server b is paused");
    for _ in 0..4 {
        lab.kubectl(&["get", "namespaces"]).expect_success();
    }
    assert_eq!(said(&["resume", "b"]), "server b is ready");

    let refused = lab.run_command(&["resume", "b"]);
    assert_eq!(refused.code, Some(69));
    assert_eq!(refused.stderr.trim(), "unskew: server b is ready: cannot resume it now");
    let refused = lab.run_command(&["stop", "z"]).expect_failure();
    assert_eq!(refused.trim(), "unskew: there is no server z: there are a, b");
}

#[test]
fn detached_lab_is_stopped_and_purged() {
    let home = tempfile::tempdir().unwrap();
    let summary = run_unskew(home.path(), &["up", "--servers=1.36", "--detach"]).expect_success();
    assert!(summary.contains("A control plane of 1 servers is ready at https://127.0.0.1:"), "{summary}");
    let folder = home.path().join(".local/share/unskew/lab");
    assert!(folder.join("kubeconfig").exists(), "the default folder is in the user's data home");
    let second = run_unskew(home.path(), &["up", "--detach"]);
    assert_eq!(second.code, Some(69));
    assert!(second.stderr.contains("is in use by the lab of process"), "{}", second.stderr);
    let stopped = run_unskew(home.path(), &["down", "--purge"]).expect_success();
    assert!(stopped.contains("is stopped") && stopped.contains("is deleted"), "{stopped}");
    assert!(!folder.exists());
    let again = run_unskew(home.path(), &["down"]).expect_success();
    assert!(again.contains("no lab runs in"), "{again}");
    let status = run_unskew(home.path(), &["status"]);
    assert_eq!(status.code, Some(69));
    assert!(status.stderr.contains("`unskew up` starts one"), "{}", status.stderr);
}

#[test]
fn ephemeral_lab_leaves_no_files() {
    let home = tempfile::tempdir().unwrap();
    let mut command = cluster_tests::lab::unskew_command(home.path());
    command.env("TMPDIR", home.path()).args(["up", "--servers=1.36", "--ephemeral", "--detach"]);
    let summary = run_command(command, LAB_TIMEOUT).expect_success();
    let folder = summary.lines().find_map(|line| line.strip_prefix("folder")).unwrap().trim();
    assert!(Path::new(folder).starts_with(home.path()), "{summary}");
    run_unskew(home.path(), &["down", "--data-dir", folder]).expect_success();
    wait_until("the folder is deleted", || !Path::new(folder).exists());
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn up_errors_name_the_cause_and_remedy() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("x");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let in_folder = |args: &[&str]| {
        let mut command = cluster_tests::lab::unskew_command(home.path());
        command.env("PATH", "").arg("up").args(args).arg("--data-dir").arg(&folder);
        run_command(command, LAB_TIMEOUT)
    };
    for (args, code, words) in [
        (&["--port", &port][..], 69, "is taken by another program: choose another port with --port"),
        (&["--etcd"], 69, "etcd: the etcd binary is not on PATH: install it"),
        (&["--servers=1.12"], 64, "give one of 1.31 to 1.37"),
        (&["--servers=1.36", "--frob"], 64, "unexpected argument '--frob'"),
    ] {
        let finished = in_folder(args);
        assert_eq!(finished.code, Some(code), "{args:?}: {finished:?}");
        assert!(finished.stderr.contains(words), "{args:?}: {}", finished.stderr);
        let _ = std::fs::remove_dir_all(&folder);
    }
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("thesis.txt"), "draft").unwrap();
    let refused = in_folder(&[]);
    assert_eq!(refused.code, Some(69));
    assert!(refused.stderr.contains("is not a lab"), "{}", refused.stderr);
}

#[test]
fn status_shows_any_cluster_by_kubeconfig() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--hostname-override=lonely"]);
    let kubeconfig = server.kubeconfig();
    let file = kubeconfig.to_str().unwrap();
    let table = run_unskew(folder.path(), &["status", "--kubeconfig", file]).expect_success();
    assert!(table.contains("lonely") && table.contains("live"), "{table}");
    let json = run_unskew(folder.path(), &["status", "--kubeconfig", file, "-o", "json"]).expect_success();
    let status: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["servers"].as_array().unwrap().len(), 1);
    let missing = run_unskew(folder.path(), &["status", "--kubeconfig", "/no/such/file"]);
    assert_eq!(missing.code, Some(69));
    assert!(missing.stderr.contains("--kubeconfig: /no/such/file"), "{}", missing.stderr);
}

#[test]
fn demo_runs_and_checks_its_claims() {
    let home = tempfile::tempdir().unwrap();
    let told = run_unskew(home.path(), &["demo"]).expect_success();
    for line in ["    404 the server could not find", "    503 ", "byte for byte", "agree on storage.k8s.io/v1"] {
        assert!(told.contains(line), "{line:?} is not in:\n{told}");
    }
}
