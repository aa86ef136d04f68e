//! Rolling upgrade: moves one server after another to its new release while a probe measures what clients notice.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{AdminClient, AdminRequest};
use crate::lab::LabHandle;
use crate::plan::{self, PlanError};
use crate::probe::Probe;
use crate::status::compose::PeersPage;
use crate::status::{Phase, RolloutStatus};
use crate::supervisor::{ProcessTable, ServerAction};

/// Limits for a server to become ready again, and for its peers to consider it live.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const MEMBERSHIP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the probe's counts are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);
/// How long the probe runs before the first server stops and after the last is back.
const PROBE_MARGIN: Duration = Duration::from_millis(500);

/// [`RolloutStatus::outcome`] of a rollout that finished.
pub const OUTCOME_DONE: &str = "done";

/// Why a rollout does not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// Another rollout is running.
    #[error("a rollout is in progress: `unskew status` shows it")]
    InProgress,
    /// The number of releases does not fit the servers.
    #[error("--to: {0}")]
    Releases(#[from] PlanError),
    /// No rollout was made since the lab was created or its releases changed.
    #[error("--back: there is no rollout to revert; name releases with --to")]
    NothingToUndo,
}

/// A server to move to another release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// Index in [`ProcessTable::servers`].
    pub index: usize,
    /// Name of the server.
    pub name: String,
    /// Target release.
    pub release: String,
}

/// Returns a step for each server whose release differs from its target, in order.
pub fn plan_steps(process_table: &ProcessTable, targets: &[String]) -> Vec<RolloutStep> {
    let servers = process_table.servers.iter().zip(targets).enumerate();
    let changes = servers.filter(|(_, (process, to))| process.server.release != **to);
    changes
        .map(|(at, (process, to))| RolloutStep { index: at, name: process.server.name.clone(), release: to.clone() })
        .collect()
}

/// Starts a rollout and returns its status, which updates until `outcome` is set. An empty `to` reverts the last
/// rollout. After `cancel` is cancelled, the rollout stops once the current server is done.
pub async fn start_rollout(
    lab: &LabHandle,
    to: &[String],
    cancel: CancellationToken,
) -> Result<watch::Receiver<Option<RolloutStatus>>, RolloutError> {
    let rollout_lock = lab.rollout_lock.clone().try_lock_owned().map_err(|_| RolloutError::InProgress)?;
    let process_table = lab.supervisor.process_table().borrow().clone();
    let targets = match to {
        [] => process_table.previous_releases.clone().ok_or(RolloutError::NothingToUndo)?,
        releases => plan::expand_releases(releases, process_table.servers.len())?,
    };
    let from: Vec<String> = process_table.servers.iter().map(|process| process.server.release.clone()).collect();
    let steps = plan_steps(&process_table, &targets);
    let initial_status =
        RolloutStatus { from: from.clone(), to: targets, steps: steps.len(), ..RolloutStatus::default() };
    let status_updates = lab.rollout_status.subscribe();
    lab.rollout_status.send_replace(Some(initial_status));
    let _ = lab.supervisor.set_previous_releases(from).await;
    lab.tasks.spawn_once("rollout", run_rollout(lab.clone(), steps, cancel, rollout_lock));
    Ok(status_updates)
}

/// Runs the probe around all steps, then unlocks and publishes the outcome.
async fn run_rollout(
    lab: LabHandle,
    steps: Vec<RolloutStep>,
    cancel: CancellationToken,
    rollout_lock: OwnedMutexGuard<()>,
) {
    let probe = Arc::new(Probe::start(&lab).await);
    let telling = CancellationToken::new();
    let teller = publish_counts_repeatedly(lab.rollout_status.clone(), probe.clone(), telling.clone());
    lab.tasks.spawn_once("rollout counts", teller);
    tokio::time::sleep(PROBE_MARGIN).await;
    let outcome = run_steps(&lab, &steps, &probe, &cancel).await;
    update_status(&lab, |rollout| rollout.current_action = "waiting for the last events".to_owned());
    tokio::time::sleep(PROBE_MARGIN).await;
    telling.cancel();
    let counts = match take_probe(probe).await {
        Some(probe) => Some(probe.finish().await),
        None => None,
    };
    // Unlock before publishing the outcome: a client that reads it may start the next rollout.
    drop(rollout_lock);
    update_status(&lab, |rollout| {
        rollout.current_action.clear();
        rollout.probe = counts.unwrap_or_else(|| rollout.probe.clone());
        rollout.outcome = outcome;
    });
}

/// Returns the probe once the publishing task has dropped its reference; `None` after 5 s.
async fn take_probe(mut probe: Arc<Probe>) -> Option<Probe> {
    for _ in 0..100 {
        match Arc::try_unwrap(probe) {
            Ok(probe) => return Some(probe),
            Err(shared) => probe = shared,
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    None
}

/// Moves one server after another and returns the outcome: done, stopped or failed.
async fn run_steps(lab: &LabHandle, steps: &[RolloutStep], probe: &Probe, cancel: &CancellationToken) -> String {
    for (done, step) in steps.iter().enumerate() {
        if cancel.is_cancelled() || lab.stop.is_cancelled() {
            return format!("stopped after {done} of {} servers", steps.len());
        }
        update_status(lab, |rollout| rollout.current_action = format!("{} becomes {}", step.name, step.release));
        if let Err(reason) = replace_server(lab, step, probe).await {
            return format!("failed at server {}: {reason}", step.name);
        }
        update_status(lab, |rollout| rollout.steps_done = done + 1);
    }
    OUTCOME_DONE.to_owned()
}

/// Stops the server, starts it as the new release, and waits until it is ready and its peers consider it live.
async fn replace_server(lab: &LabHandle, step: &RolloutStep, probe: &Probe) -> Result<(), String> {
    let RolloutStep { index: at, name, release: to } = step;
    let text = |error: crate::supervisor::ActionError| error.to_string();
    let is_running = lab.supervisor.process_table().borrow().servers[*at].phase.is_running();
    if is_running {
        probe.server_stopping(*at);
        lab.supervisor.run_action(name, ServerAction::Stop).await.map_err(text)?;
    }
    probe.server_starting(*at);
    lab.supervisor.run_action(name, ServerAction::StartAs(to.clone())).await.map_err(text)?;
    let mut process_table = lab.supervisor.process_table();
    let over = |process_table: &Arc<ProcessTable>| {
        matches!(process_table.servers[*at].phase, Phase::Ready | Phase::Failed | Phase::Stopped)
    };
    let waited = tokio::time::timeout(READY_TIMEOUT, process_table.wait_for(over)).await;
    drop(waited);
    let process = process_table.borrow().servers[*at].clone();
    if process.phase != Phase::Ready {
        return Err(format!("it is {}. {}", process.phase.as_str(), process.problem));
    }
    probe.server_ready(*at, &lab.clients[*at]).await;
    wait_until_seen_by_all(lab, *at).await
}

/// Waits until every other ready server considers this one live; only then may the next server stop.
async fn wait_until_seen_by_all(lab: &LabHandle, server: usize) -> Result<(), String> {
    let deadline = Instant::now() + MEMBERSHIP_TIMEOUT;
    let Some(identity) = fetch_peers_page(&lab.clients[server]).await.map(|page| page.server) else { return Ok(()) };
    let process_table = lab.supervisor.process_table().borrow().clone();
    for (other, process) in process_table.servers.iter().enumerate() {
        if other == server || process.phase != Phase::Ready {
            continue;
        }
        while !fetch_peers_page(&lab.clients[other]).await.is_none_or(|page| lists_as_live(&page, &identity)) {
            if Instant::now() > deadline {
                return Err(format!("server {} does not list it as live", process.server.name));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// True if the page lists the member as live. With peering disabled there is nothing to wait for.
fn lists_as_live(page: &PeersPage, identity: &str) -> bool {
    page.peering == "disabled" || page.members.iter().any(|member| member.server == identity && member.state == "live")
}

async fn fetch_peers_page(client: &AdminClient) -> Option<PeersPage> {
    let answer =
        client.request(AdminRequest::get("/debug/peers")).await.ok().filter(|answer| answer.status.is_success())?;
    serde_json::from_slice(&answer.body).ok()
}

async fn publish_counts_repeatedly(
    rollout: Arc<watch::Sender<Option<RolloutStatus>>>,
    probe: Arc<Probe>,
    stop: CancellationToken,
) {
    while stop.run_until_cancelled(tokio::time::sleep(PUBLISH_INTERVAL)).await.is_some() {
        rollout.send_modify(|rollout| {
            if let Some(rollout) = rollout {
                rollout.probe = probe.counts();
            }
        });
    }
}

fn update_status(lab: &LabHandle, change: impl FnOnce(&mut RolloutStatus)) {
    lab.rollout_status.send_modify(|rollout| {
        if let Some(rollout) = rollout {
            change(rollout);
        }
    });
}

/// True if the rollout finished without wrong 404s, lost events or incomplete discovery documents. 503s are allowed.
pub fn is_clean(rollout: &RolloutStatus) -> bool {
    let probe = &rollout.probe;
    rollout.outcome == OUTCOME_DONE
        && probe.requests > 0
        && probe.wrong_not_found == 0
        && probe.lost_events == 0
        && probe.shrunk_discovery == 0
}

/// Renders the final report as text.
pub fn report(rollout: &RolloutStatus) -> String {
    let probe = &rollout.probe;
    let mut text = format!("{} → {}: {}\n", rollout.from.join(","), rollout.to.join(","), rollout.outcome);
    for (what, figure) in [
        ("requests", probe.requests.to_string()),
        ("wrong 404", probe.wrong_not_found.to_string()),
        ("503", probe.unavailable.to_string()),
        ("failed otherwise", probe.failed.to_string()),
        ("longest gap", format!("{} ms", probe.longest_gap_millis)),
        ("writes", probe.writes.to_string()),
        ("lost events", format!("{} of {}, {} watches relisted", probe.lost_events, probe.writes, probe.relists)),
        ("discovery shrunk", format!("{} of {} documents", probe.shrunk_discovery, probe.documents)),
    ] {
        let _ = writeln!(text, "  {what:<18}{figure}");
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::data_dir::state::tests::test_lab_state;
    use crate::status::ProbeCounts;

    #[test]
    fn plan_steps_skips_servers_of_the_target_release() {
        let process_table = ProcessTable::new(&test_lab_state("a=1.33:1 b=1.37:2 c=1.36:3"), Instant::now());
        let to = plan::expand_releases(&["1.37".to_owned()], 3).unwrap();
        let steps: Vec<_> = plan_steps(&process_table, &to)
            .iter()
            .map(|step| format!("{}@{}={}", step.name, step.index, step.release))
            .collect();
        assert_eq!(steps, ["a@0=1.37", "c@2=1.37"]);
    }

    fn finished_rollout(probe: ProbeCounts) -> RolloutStatus {
        let releases = |text: &str| text.split(',').map(str::to_owned).collect();
        RolloutStatus {
            from: releases("1.33,1.36"),
            to: releases("1.37,1.37"),
            outcome: OUTCOME_DONE.to_owned(),
            probe,
            ..RolloutStatus::default()
        }
    }

    #[test]
    fn rollout_is_clean_without_wrong_404s_lost_events_or_shrunk_discovery() {
        let fine = ProbeCounts { requests: 9, unavailable: 3, ..ProbeCounts::default() };
        assert!(is_clean(&finished_rollout(fine.clone())));
        assert!(!is_clean(&finished_rollout(ProbeCounts::default())), "the probe sent no request");
        assert!(!is_clean(&finished_rollout(ProbeCounts { wrong_not_found: 1, ..fine })));
        assert!(!is_clean(&finished_rollout(ProbeCounts { lost_events: 1, ..fine })));
        assert!(!is_clean(&finished_rollout(ProbeCounts { shrunk_discovery: 1, ..fine })));
        assert!(!is_clean(&RolloutStatus { outcome: "stopped".to_owned(), ..finished_rollout(fine) }));
    }

    #[test]
    fn rollout_report_lists_all_counts() {
        let probe = ProbeCounts {
            requests: 812,
            unavailable: 3,
            writes: 120,
            documents: 40,
            longest_gap_millis: 61,
            ..ProbeCounts::default()
        };
        expect![[r#"
            1.33,1.36 → 1.37,1.37: done
              requests          812
              wrong 404         0
              503               3
              failed otherwise  0
              longest gap       61 ms
              writes            120
              lost events       0 of 120, 0 watches relisted
              discovery shrunk  0 of 40 documents
        "#]]
        .assert_eq(&report(&finished_rollout(probe)));
    }

    #[test]
    fn server_is_listed_as_live_by_peers_or_peering_is_disabled() {
        let page = |text: &str| serde_json::from_str::<PeersPage>(text).unwrap();
        let members =
            r#"{"server":"x","peering":"enabled","members":[{"server":"y","state":"STATE","stateSeconds":1}]}"#;
        assert!(lists_as_live(&page(&members.replace("STATE", "live")), "y"));
        assert!(!lists_as_live(&page(&members.replace("STATE", "left")), "y"));
        assert!(!lists_as_live(&page(members), "z"));
        assert!(lists_as_live(&page(r#"{"server":"x","peering":"disabled"}"#), "y"));
    }
}
