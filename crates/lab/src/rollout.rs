//! A rolling upgrade: one server after another becomes another release, while a probe watches.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Ask, Client};
use crate::lab::Inside;
use crate::plan::{self, PlanError};
use crate::probe::Probe;
use crate::status::compose::PeersPage;
use crate::status::{Phase, Rollout};
use crate::supervisor::{Act, Board};

/// How long a server may take to be ready again, and the others to see it.
const READY_PATIENCE: Duration = Duration::from_secs(60);
const SEEN_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often the counts are told.
const TELL_INTERVAL: Duration = Duration::from_millis(200);
/// The probe looks at the cluster for so long before the first server stops and after the last is back.
const CALM: Duration = Duration::from_millis(500);

/// What a rollout that came to its end is called.
pub const DONE: &str = "done";

/// Why a rollout does not begin.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// Another one is under way.
    #[error("a rollout is under way: `unskew status` shows it")]
    Busy,
    /// The releases do not fit the servers.
    #[error("--to: {0}")]
    Releases(#[from] PlanError),
    /// There was none before.
    #[error("--back: there was no rollout that could be undone; --to names releases")]
    NoWayBack,
}

/// One server that has to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its place on the board.
    pub at: usize,
    /// Its name.
    pub name: String,
    /// What it becomes.
    pub to: String,
}

/// The servers that have to change, one after the other, in their order.
pub fn steps(board: &Board, targets: &[String]) -> Vec<Step> {
    let servers = board.servers.iter().zip(targets).enumerate();
    let changes = servers.filter(|(_, (standing, to))| standing.server.release != **to);
    changes.map(|(at, (standing, to))| Step { at, name: standing.server.name.clone(), to: to.clone() }).collect()
}

/// Begins a rollout; what is returned tells of it until its outcome is there. It stops after the server that it is at once
/// `listening` is cancelled.
pub async fn start(
    inside: &Inside,
    to: &[String],
    listening: CancellationToken,
) -> Result<watch::Receiver<Option<Rollout>>, RolloutError> {
    let busy = inside.busy.clone().try_lock_owned().map_err(|_| RolloutError::Busy)?;
    let board = inside.handle.board().borrow().clone();
    let targets = match to {
        [] => board.before.clone().ok_or(RolloutError::NoWayBack)?,
        releases => plan::targets(releases, board.servers.len())?,
    };
    let from: Vec<String> = board.servers.iter().map(|standing| standing.server.release.clone()).collect();
    let steps = steps(&board, &targets);
    let begun = Rollout { from: from.clone(), to: targets, steps: steps.len(), ..Rollout::default() };
    let told = inside.rollout.subscribe();
    inside.rollout.send_replace(Some(begun));
    let _ = inside.handle.remember(from).await;
    let conduct = conduct(inside.clone(), steps, listening, busy);
    inside.tasks.spawn_once("rollout", conduct);
    Ok(told)
}

async fn conduct(inside: Inside, steps: Vec<Step>, listening: CancellationToken, busy: OwnedMutexGuard<()>) {
    let probe = Arc::new(Probe::start(&inside).await);
    let telling = CancellationToken::new();
    let teller = tell(inside.rollout.clone(), probe.clone(), telling.clone());
    inside.tasks.spawn_once("rollout counts", teller);
    tokio::time::sleep(CALM).await;
    let outcome = climb(&inside, &steps, &probe, &listening).await;
    change(&inside, |rollout| rollout.doing = "waiting for the last events".to_owned());
    tokio::time::sleep(CALM).await;
    telling.cancel();
    let counts = match settle(probe).await {
        Some(probe) => Some(probe.finish().await),
        None => None,
    };
    // Free before the outcome is told: whoever hears it may begin the next.
    drop(busy);
    change(&inside, |rollout| {
        rollout.doing.clear();
        rollout.probe = counts.unwrap_or_else(|| rollout.probe.clone());
        rollout.outcome = outcome;
    });
}

/// The probe, once the teller has let go of it.
async fn settle(mut probe: Arc<Probe>) -> Option<Probe> {
    for _ in 0..100 {
        match Arc::try_unwrap(probe) {
            Ok(probe) => return Some(probe),
            Err(shared) => probe = shared,
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    None
}

async fn climb(inside: &Inside, steps: &[Step], probe: &Probe, listening: &CancellationToken) -> String {
    for (done, step) in steps.iter().enumerate() {
        if listening.is_cancelled() || inside.stop.is_cancelled() {
            return format!("stopped after {done} of {} servers", steps.len());
        }
        change(inside, |rollout| rollout.doing = format!("{} becomes {}", step.name, step.to));
        if let Err(reason) = take(inside, step, probe).await {
            return format!("failed at server {}: {reason}", step.name);
        }
        change(inside, |rollout| rollout.done = done + 1);
    }
    DONE.to_owned()
}

/// One server: stopped, started as the other release, ready, and known to the others.
async fn take(inside: &Inside, step: &Step, probe: &Probe) -> Result<(), String> {
    let Step { at, name, to } = step;
    let text = |error: crate::supervisor::OrderError| error.to_string();
    let is_running = inside.handle.board().borrow().servers[*at].phase.is_running();
    if is_running {
        probe.stopping(*at);
        inside.handle.order(name, Act::Stop).await.map_err(text)?;
    }
    probe.starting(*at);
    inside.handle.order(name, Act::StartAs(to.clone())).await.map_err(text)?;
    let mut board = inside.handle.board();
    let over = |board: &Arc<Board>| matches!(board.servers[*at].phase, Phase::Ready | Phase::Failed | Phase::Stopped);
    let waited = tokio::time::timeout(READY_PATIENCE, board.wait_for(over)).await;
    drop(waited);
    let standing = board.borrow().servers[*at].clone();
    if standing.phase != Phase::Ready {
        return Err(format!("it is {}. {}", standing.phase.as_str(), standing.trouble));
    }
    probe.ready(*at, &inside.clients[*at]).await;
    seen_by_all(inside, *at).await
}

/// Waits until every other server that is ready takes this one for live: only then may the next one go.
async fn seen_by_all(inside: &Inside, at: usize) -> Result<(), String> {
    let deadline = Instant::now() + SEEN_PATIENCE;
    let Some(identity) = peers(&inside.clients[at]).await.map(|page| page.server) else { return Ok(()) };
    let board = inside.handle.board().borrow().clone();
    for (other, standing) in board.servers.iter().enumerate() {
        if other == at || standing.phase != Phase::Ready {
            continue;
        }
        while !peers(&inside.clients[other]).await.is_none_or(|page| takes_for_live(&page, &identity)) {
            if Instant::now() > deadline {
                return Err(format!("server {} does not see it", standing.server.name));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
    Ok(())
}

/// Without peering there is nothing to see.
fn takes_for_live(page: &PeersPage, identity: &str) -> bool {
    page.peering == "disabled" || page.members.iter().any(|member| member.server == identity && member.state == "live")
}

async fn peers(client: &Client) -> Option<PeersPage> {
    let answer = client.ask(Ask::get("/debug/peers")).await.ok().filter(|answer| answer.status.is_success())?;
    serde_json::from_slice(&answer.body).ok()
}

async fn tell(rollout: Arc<watch::Sender<Option<Rollout>>>, probe: Arc<Probe>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(TELL_INTERVAL)).await.is_some() {
        rollout.send_modify(|rollout| {
            if let Some(rollout) = rollout {
                rollout.probe = probe.counts();
            }
        });
    }
}

fn change(inside: &Inside, change: impl FnOnce(&mut Rollout)) {
    inside.rollout.send_modify(|rollout| {
        if let Some(rollout) = rollout {
            change(rollout);
        }
    });
}

/// Whether it came to its end and clients noticed nothing that must not be. 503 may be, while nobody who can is there.
pub fn is_clean(rollout: &Rollout) -> bool {
    let probe = &rollout.probe;
    rollout.outcome == DONE
        && probe.requests > 0
        && probe.wrong_not_found == 0
        && probe.lost_events == 0
        && probe.shrunk_discovery == 0
}

/// The report at the end.
pub fn report(rollout: &Rollout) -> String {
    let probe = &rollout.probe;
    let mut text = format!("{} → {}: {}\n", rollout.from.join(","), rollout.to.join(","), rollout.outcome);
    for (what, figure) in [
        ("requests", probe.requests.to_string()),
        ("wrong 404", probe.wrong_not_found.to_string()),
        ("503", probe.unavailable.to_string()),
        ("failed otherwise", probe.failed.to_string()),
        ("longest gap", format!("{} ms", probe.longest_gap_millis)),
        ("writes", probe.writes.to_string()),
        ("lost events", format!("{} of {}, {} watches began anew", probe.lost_events, probe.writes, probe.relists)),
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
    use crate::folder::state::tests::state;
    use crate::status::Counts;

    #[test]
    fn only_servers_of_another_release_change() {
        let board = Board::new(&state("a=1.33:1 b=1.37:2 c=1.36:3"), Instant::now());
        let to = plan::targets(&["1.37".to_owned()], 3).unwrap();
        let steps: Vec<_> =
            steps(&board, &to).iter().map(|step| format!("{}@{}={}", step.name, step.at, step.to)).collect();
        assert_eq!(steps, ["a@0=1.37", "c@2=1.37"]);
    }

    fn rollout(probe: Counts) -> Rollout {
        let releases = |text: &str| text.split(',').map(str::to_owned).collect();
        Rollout {
            from: releases("1.33,1.36"),
            to: releases("1.37,1.37"),
            outcome: DONE.to_owned(),
            probe,
            ..Rollout::default()
        }
    }

    #[test]
    fn a_rollout_is_clean_if_clients_noticed_nothing_that_must_not_be() {
        let fine = Counts { requests: 9, unavailable: 3, ..Counts::default() };
        assert!(is_clean(&rollout(fine.clone())));
        assert!(!is_clean(&rollout(Counts::default())), "nobody looked");
        assert!(!is_clean(&rollout(Counts { wrong_not_found: 1, ..fine })));
        assert!(!is_clean(&rollout(Counts { lost_events: 1, ..fine })));
        assert!(!is_clean(&rollout(Counts { shrunk_discovery: 1, ..fine })));
        assert!(!is_clean(&Rollout { outcome: "stopped".to_owned(), ..rollout(fine) }));
    }

    #[test]
    fn the_report_has_all_figures() {
        let probe = Counts {
            requests: 812,
            unavailable: 3,
            writes: 120,
            documents: 40,
            longest_gap_millis: 61,
            ..Counts::default()
        };
        expect![[r#"
            1.33,1.36 → 1.37,1.37: done
              requests          812
              wrong 404         0
              503               3
              failed otherwise  0
              longest gap       61 ms
              writes            120
              lost events       0 of 120, 0 watches began anew
              discovery shrunk  0 of 40 documents
        "#]]
        .assert_eq(&report(&rollout(probe)));
    }

    #[test]
    fn a_server_is_seen_when_the_others_take_it_for_live() {
        let page = |text: &str| serde_json::from_str::<PeersPage>(text).unwrap();
        let members =
            r#"{"server":"x","peering":"enabled","members":[{"server":"y","state":"STATE","stateSeconds":1}]}"#;
        assert!(takes_for_live(&page(&members.replace("STATE", "live")), "y"));
        assert!(!takes_for_live(&page(&members.replace("STATE", "left")), "y"));
        assert!(!takes_for_live(&page(members), "z"));
        assert!(takes_for_live(&page(r#"{"server":"x","peering":"disabled"}"#), "y"));
    }
}
