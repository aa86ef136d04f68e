//! The commands of the lab: `up`, `down`, `status`, `rollout` and their like.

pub(crate) mod args;
mod demo;
mod detach;
mod look;
mod place;
mod up;

pub(crate) use up::leashed;

use std::process::ExitCode;

use ::lab::control::Wish;
use ::lab::control::client::Line;
use ::lab::folder::Folder;
use ::lab::status::Phase;
use ::lab::status::table::progress;

use crate::{EXIT_NOT_CLEAN, EXIT_UNAVAILABLE, complain, say};

/// A server that is told to start may take so long to be ready before we say so.
const READY_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// A lab that is told to stop lets its servers drain for some seconds.
const DOWN_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Up(args::Up),
    Down(args::Down),
    Kubeconfig(args::Kubeconfig),
    Status(args::Status),
    Order(&'static str, args::Order),
    Rollout(args::Rollout),
    Demo,
}

/// Does it.
pub(crate) fn main(task: Task) -> ExitCode {
    // The main thread waits here: the processes of a lab end with the thread that started them.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(perform(task)),
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        complain("unskew", &error);
        ExitCode::from(EXIT_UNAVAILABLE)
    })
}

async fn perform(task: Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Up(up) if up.detach => detach::up(up).await,
        Task::Up(up) => up::run(up).await,
        Task::Down(down) => stop(&down).await,
        Task::Kubeconfig(asked) => kubeconfig(&asked),
        Task::Status(status) => look::run(status).await,
        Task::Order(verb, order) => tell(verb, &order).await,
        Task::Rollout(rollout) => roll_out(&rollout).await,
        Task::Demo => demo::run().await,
    }
}

fn kubeconfig(asked: &args::Kubeconfig) -> anyhow::Result<ExitCode> {
    let layout = place::layout(&asked.place)?;
    let folder = layout.folder().display();
    let Some(state) = layout.read_state()? else { anyhow::bail!("there is no lab in {folder}: `unskew up` makes one") };
    let file = match &asked.server {
        None => layout.kubeconfig(),
        Some(name) => {
            let known: Vec<&str> = state.servers.iter().map(|server| &*server.name).collect();
            anyhow::ensure!(
                known.contains(&&**name),
                "--server: the lab in {folder} has no server {name}: it has {}",
                known.join(", ")
            );
            layout.server_kubeconfig(name)
        }
    };
    say(&mut std::io::stdout(), &file.display().to_string());
    Ok(ExitCode::SUCCESS)
}

async fn stop(down: &args::Down) -> anyhow::Result<ExitCode> {
    let layout = place::layout(&down.place)?;
    let folder = layout.folder().display().to_string();
    if layout.holder().is_some() {
        Line::open(&layout).await?.down().await?;
        let deadline = tokio::time::Instant::now() + DOWN_PATIENCE;
        while let Some(pid) = layout.holder() {
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "the lab of process {pid} does not stop");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        say(&mut std::io::stdout(), &format!("the lab in {folder} is stopped"));
    } else {
        say(&mut std::io::stdout(), &format!("no lab runs in {folder}"));
    }
    if down.purge && layout.folder().exists() {
        Folder::take(layout)?.purge()?;
        say(&mut std::io::stdout(), &format!("{folder} is deleted"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn tell(verb: &str, order: &args::Order) -> anyhow::Result<ExitCode> {
    let layout = place::layout(&order.place)?;
    let mut line = Line::open(&layout).await?;
    line.order(&order.server, verb).await?;
    let awaited = match verb {
        "start" | "resume" => Phase::Ready,
        "pause" => Phase::Paused,
        _ => Phase::Stopped,
    };
    let deadline = tokio::time::Instant::now() + READY_PATIENCE;
    loop {
        let snapshot = line.status().await?;
        let server = snapshot.servers.iter().find(|server| server.name == order.server);
        let server = server.ok_or_else(|| anyhow::anyhow!("server {} is gone", order.server))?;
        if server.phase == awaited {
            say(&mut std::io::stdout(), &format!("server {} is {}", server.name, awaited.as_str()));
            return Ok(ExitCode::SUCCESS);
        }
        anyhow::ensure!(server.phase != Phase::Failed, "server {} failed: {}", server.name, server.trouble);
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "server {} is still {}. {}",
            server.name,
            server.phase.as_str(),
            server.trouble
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn roll_out(rollout: &args::Rollout) -> anyhow::Result<ExitCode> {
    use std::io::{IsTerminal as _, Write as _};
    let layout = place::layout(&rollout.place)?;
    let mut line = Line::open(&layout).await?;
    let wish = Wish { to: rollout.to.iter().map(ToString::to_string).collect() };
    let is_terminal = std::io::stdout().is_terminal();
    let mut last = String::new();
    let ended = line.roll_out(&wish, |rollout| {
        let mut out = std::io::stdout();
        if is_terminal {
            // Over the line before, and what is left of it cleared.
            let _ = write!(out, "\r{}\x1b[K", progress(rollout));
            let _ = out.flush();
        } else if last != rollout.doing && !rollout.doing.is_empty() {
            last.clone_from(&rollout.doing);
            say(&mut out, &progress(rollout));
        }
    });
    let ended = ended.await?;
    if is_terminal {
        say(&mut std::io::stdout(), "");
    }
    say(&mut std::io::stdout(), ::lab::rollout::report(&ended).trim_end());
    Ok(if ::lab::rollout::is_clean(&ended) { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_CLEAN) })
}
