//! The commands of the lab: `up`, `down`, `status`, `rollout` and others.

pub(crate) mod args;
mod demo;
mod detach;
mod environment;
mod status;
mod stored_versions;
mod up;

pub(crate) use environment::data_dir;
pub(crate) use status::cluster_access;
pub(crate) use up::run_tied_to_parent;

use std::process::ExitCode;

use ::lab::control::RolloutRequest;
use ::lab::control::client::ControlClient;
use ::lab::data_dir::LockedDataDir;
use ::lab::status::Phase;
use ::lab::status::table::render_progress;

use crate::{EXIT_CHECK_FAILED, EXIT_UNAVAILABLE, print_error, print_line};

/// How long `start` waits for the server to be ready.
const READY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
/// How long `down` waits for the lab; its servers drain for some seconds.
const DOWN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// A command of the lab.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LabCommand {
    Up(args::UpArgs),
    Down(args::DownArgs),
    Kubeconfig(args::KubeconfigArgs),
    Status(args::StatusArgs),
    ServerAction(&'static str, args::ServerActionArgs),
    Rollout(args::RolloutArgs),
    Demo,
}

/// Runs a command of the lab.
pub(crate) fn main(command: LabCommand) -> ExitCode {
    // On the main thread: the processes of a lab end with the thread that started them.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run_command(command)),
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        print_error("unskew", &error);
        ExitCode::from(EXIT_UNAVAILABLE)
    })
}

async fn run_command(command: LabCommand) -> anyhow::Result<ExitCode> {
    match command {
        LabCommand::Up(up) if up.detach => detach::run(up).await,
        LabCommand::Up(up) => up::run(up).await,
        LabCommand::Down(down) => shut_down_lab(&down).await,
        LabCommand::Kubeconfig(asked) => print_kubeconfig(&asked),
        LabCommand::Status(status) => status::run(status).await,
        LabCommand::ServerAction(verb, order) => run_server_action(verb, &order).await,
        LabCommand::Rollout(rollout) => roll_out(&rollout).await,
        LabCommand::Demo => demo::run().await,
    }
}

fn print_kubeconfig(args: &args::KubeconfigArgs) -> anyhow::Result<ExitCode> {
    let data_dir = environment::data_dir(&args.lab)?;
    let folder = data_dir.path().display();
    let Some(state) = data_dir.read_state()? else {
        anyhow::bail!("there is no lab in {folder}: `unskew up` makes one")
    };
    let file = match &args.server {
        None => data_dir.kubeconfig(),
        Some(name) => {
            let known: Vec<&str> = state.servers.iter().map(|server| &*server.name).collect();
            anyhow::ensure!(
                known.contains(&&**name),
                "--server: the lab in {folder} has no server {name}: it has {}",
                known.join(", ")
            );
            data_dir.server_kubeconfig(name)
        }
    };
    print_line(&mut std::io::stdout(), &file.display().to_string());
    Ok(ExitCode::SUCCESS)
}

async fn shut_down_lab(args: &args::DownArgs) -> anyhow::Result<ExitCode> {
    let data_dir = environment::data_dir(&args.lab)?;
    let folder = data_dir.path().display().to_string();
    if data_dir.lock_holder_pid().is_some() {
        ControlClient::connect(&data_dir).await?.shut_down().await?;
        let deadline = tokio::time::Instant::now() + DOWN_TIMEOUT;
        while let Some(pid) = data_dir.lock_holder_pid() {
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "the lab of process {pid} does not stop");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        print_line(&mut std::io::stdout(), &format!("the lab in {folder} is stopped"));
    } else {
        print_line(&mut std::io::stdout(), &format!("no lab runs in {folder}"));
    }
    if args.purge && data_dir.path().exists() {
        LockedDataDir::lock(data_dir)?.purge()?;
        print_line(&mut std::io::stdout(), &format!("{folder} is deleted"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_server_action(verb: &str, args: &args::ServerActionArgs) -> anyhow::Result<ExitCode> {
    let data_dir = environment::data_dir(&args.lab)?;
    let mut client = ControlClient::connect(&data_dir).await?;
    client.send_action(&args.server, verb).await?;
    let expected_phase = match verb {
        "start" | "resume" => Phase::Ready,
        "pause" => Phase::Paused,
        _ => Phase::Stopped,
    };
    let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
    loop {
        let snapshot = client.status().await?;
        let server = snapshot.servers.iter().find(|server| server.name == args.server);
        let server = server.ok_or_else(|| anyhow::anyhow!("server {} is gone", args.server))?;
        if server.phase == expected_phase {
            print_line(&mut std::io::stdout(), &format!("server {} is {}", server.name, expected_phase.as_str()));
            return Ok(ExitCode::SUCCESS);
        }
        anyhow::ensure!(server.phase != Phase::Failed, "server {} failed: {}", server.name, server.problem);
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "server {} is still {}. {}",
            server.name,
            server.phase.as_str(),
            server.problem
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn roll_out(args: &args::RolloutArgs) -> anyhow::Result<ExitCode> {
    use std::io::{IsTerminal as _, Write as _};
    let data_dir = environment::data_dir(&args.lab)?;
    let mut client = ControlClient::connect(&data_dir).await?;
    let request = RolloutRequest { to: args.to.iter().map(ToString::to_string).collect() };
    let is_terminal = std::io::stdout().is_terminal();
    let mut last = String::new();
    let ended = client.roll_out(&request, |rollout| {
        let mut out = std::io::stdout();
        if is_terminal {
            // Overwrite the previous line and clear the rest of it.
            let _ = write!(out, "\r{}\x1b[K", render_progress(rollout));
            let _ = out.flush();
        } else if last != rollout.current_action && !rollout.current_action.is_empty() {
            last.clone_from(&rollout.current_action);
            print_line(&mut out, &render_progress(rollout));
        }
    });
    let ended = ended.await?;
    if is_terminal {
        print_line(&mut std::io::stdout(), "");
    }
    print_line(&mut std::io::stdout(), ::lab::rollout::report(&ended).trim_end());
    Ok(if ::lab::rollout::is_clean(&ended) { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CHECK_FAILED) })
}
