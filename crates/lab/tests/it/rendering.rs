//! Tests that the page shows a snapshot and follows changes.

use cluster_tests::{Browser, tools};

use crate::page_server::{self, PageServer};

/// Opens the page in a browser; `None` if browser tests are skipped.
pub(crate) fn open_page(stage: &PageServer) -> Option<Browser> {
    if tools::is_skipped("browser") {
        return None;
    }
    let mut browser = Browser::start(1280, 900);
    browser.open(&stage.address());
    browser.wait_for("document.body.dataset.line === 'open' && document.querySelector('#servers tbody tr')");
    Some(browser)
}

#[track_caller]
fn check_cells(browser: &mut Browser, row: &str, expected: &str) {
    let cells = format!(
        "[...document.querySelector('{row}').cells].map((cell) => cell.innerText.trim().replace(/\\s+/g, ' ')).join(' | ')"
    );
    assert_eq!(browser.evaluate(&cells), expected, "{row}");
}

#[track_caller]
fn check_text(browser: &mut Browser, element: &str, expected: &str) {
    assert_eq!(browser.evaluate(&format!("document.querySelector('{element}').innerText")), expected, "{element}");
}

#[test]
fn page_shows_the_whole_snapshot() {
    let stage = PageServer::start(page_server::skewed_snapshot());
    let Some(mut browser) = open_page(&stage) else { return };
    check_text(&mut browser, "#summary", "3 of 3 servers ready");
    check_cells(
        &mut browser,
        "#servers tbody tr:nth-child(3)",
        "c | 1.36 | ready | 75 s | live for 70 s | https://127.0.0.1:7001 | 4 | batch/v2/jobs",
    );
    check_cells(&mut browser, "#forwards tbody tr", "a | c | 5 | 0");
    check_cells(&mut browser, "#map thead tr", "API version | a (1.33) | b (1.34) | c (1.36) | Through any server");
    check_cells(&mut browser, "#map tbody tr:nth-child(1)", "v1 | all 3 | all 3 | all 3 | all");
    check_cells(&mut browser, "#map tbody tr:nth-child(2)", "batch/v2 | none | none | all 1 | all");
    check_cells(&mut browser, "#map tbody tr:nth-child(3)", "storage.k8s.io/v1 | 1 of 2 | all 2 | all 2 | all");
    check_text(&mut browser, "#agreement", "1 of 2 resources agreed; servers disagree on 1.");
    check_cells(
        &mut browser,
        "#versions tbody tr:nth-child(2)",
        "storage.k8s.io.volumeattributesclasses | no | v1beta1 | v1beta1 | v1 | –",
    );
    check_cells(
        &mut browser,
        "#versions tbody tr:nth-child(1)",
        "apps.deployments | v1 | v1 | v1 | v1 | 4 v1, 2 v1beta2",
    );
    check_text(&mut browser, "#migrations", "deployments of deployments.apps: The migration is running");
    assert_eq!(browser.evaluate("document.getElementById('rollout').hidden"), true);
    assert_eq!(browser.logged_errors(), [] as [&str; 0]);
    browser.save_screenshot(&page_server::screenshot_path("page-skewed.png"));
}

#[test]
fn page_follows_changes_and_logs_them() {
    let mut stage = PageServer::start(page_server::skewed_snapshot());
    let Some(mut browser) = open_page(&stage) else { return };
    stage.publish(page_server::killed_snapshot());
    browser.wait_for("document.querySelector('#servers tr[data-phase=failed]')");
    check_text(&mut browser, "#summary", "2 of 3 servers ready");
    check_cells(&mut browser, "#map tbody tr:nth-child(2)", "batch/v2 | none | none | all 1 not running now | 503");
    let printed =
        browser.evaluate("[...document.querySelectorAll('#log li')].map((line) => line.lastChild.data).join(' | ')");
    assert_eq!(printed, "Member state of c: suspect | Server c: failed – killed by signal 9 | The page is open");
    check_text(&mut browser, "#servers tr[data-phase=failed] summary", "killed by signal 9");
    browser.save_screenshot(&page_server::screenshot_path("page-killed.png"));

    let mut busy = page_server::rollout_snapshot();
    busy.forwards = vec![page_server::forwarded_requests("a", "c", 25)];
    stage.publish(busy);
    browser.wait_for("document.querySelector('#arrows .flows')");
    check_text(&mut browser, "#rollout-doing", "1 of 3 done: stopping b");
    check_text(&mut browser, "#rollout-steps li:nth-child(1)", "a: 1.33 → 1.37 ✓");
    check_text(&mut browser, "#probe .bad dd", "1");
    let (moves, rests) = ("'flow'", "'none'");
    let animation = "getComputedStyle(document.querySelector('#arrows .flows path')).animationName";
    browser.wait_for(&format!("{animation} === {moves}"));
    browser.emulate_media_feature("prefers-reduced-motion", "reduce");
    browser.wait_for(&format!("{animation} === {rests}"));

    stage.stop_listening();
    browser.wait_for("document.body.dataset.line === 'lost' && !document.getElementById('line').hidden");
    stage.publish(page_server::skewed_snapshot());
    stage.start_listening();
    browser.wait_for("document.body.dataset.line === 'open' && document.getElementById('line').hidden");
    browser.wait_for("document.getElementById('summary').innerText === '3 of 3 servers ready'");
}

#[test]
fn page_escapes_names_from_snapshots() {
    let mut snapshot = page_server::skewed_snapshot();
    let hostile = "<img src=x onerror=document.title='pwned'>";
    snapshot.servers[0].problem = hostile.to_owned();
    snapshot.groups[1].name = hostile.to_owned();
    snapshot.storage_versions[0].name = hostile.to_owned();
    let stage = PageServer::start(snapshot);
    let Some(mut browser) = open_page(&stage) else { return };
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);
    check_text(&mut browser, "#versions tbody th", hostile);
    assert_eq!(browser.logged_errors(), [] as [&str; 0]);
}
