//! Starts and stops the processes of a lab, and publishes the process table.
//!
//! One task owns every process; other tasks send commands and read the table. It must run on the main thread, because
//! the processes are killed when the thread that started them ends ([`crate::parent_death`]).

pub(crate) mod process;
pub mod process_table;

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tasks::Tasks;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use process::Process;
pub use process_table::{ActionError, ProcessTable, Readiness, ServerAction, ServerProcess};

use crate::client::{AdminClient, AdminRequest};
use crate::data_dir::LockedDataDir;
use crate::data_dir::state::{LabState, ServerSpec};
use crate::pki::LabPki;
use crate::status::Phase;
use crate::{parent_death, process_args};

/// Time between SIGTERM and SIGKILL; a server drains for at most 10 s.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// Readiness poll intervals of a starting server, and of a ready one.
const STARTING_POLL_INTERVAL: Duration = Duration::from_millis(20);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// More commands than users and a rollout send at once.
const COMMANDS_MAX: usize = 64;

/// Sends commands to the supervisor and reads the process table. Clones share the supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorHandle {
    commands: mpsc::Sender<SupervisorCommand>,
    process_table: watch::Receiver<Arc<ProcessTable>>,
}

impl SupervisorHandle {
    /// Runs an action and waits for it: a start until the process runs, a stop until it has exited.
    pub async fn run_action(&self, server: &str, action: ServerAction) -> Result<(), ActionError> {
        let (reply, outcome) = oneshot::channel();
        let order = SupervisorCommand::RunAction { server: server.to_owned(), action, reply };
        self.commands.send(order).await.map_err(|_| ActionError::Stopping)?;
        outcome.await.unwrap_or(Err(ActionError::Stopping))
    }

    /// Stores the current releases before a rollout, so that it can be reverted.
    pub async fn set_previous_releases(&self, releases: Vec<String>) -> Result<(), ActionError> {
        self.commands.send(SupervisorCommand::SetPreviousReleases(releases)).await.map_err(|_| ActionError::Stopping)
    }

    /// Subscribes to the process table.
    pub fn process_table(&self) -> watch::Receiver<Arc<ProcessTable>> {
        self.process_table.clone()
    }
}

#[derive(Debug)]
enum SupervisorCommand {
    RunAction { server: String, action: ServerAction, reply: oneshot::Sender<Result<(), ActionError>> },
    SetPreviousReleases(Vec<String>),
}

#[derive(Debug)]
enum ServerEvent {
    Exited { server: usize, generation: u64, exit_status: String },
    Readiness { server: usize, generation: u64, readiness: Readiness },
    StopTimedOut { server: usize, generation: u64 },
}

/// Owns the server processes.
#[derive(Debug)]
pub struct Supervisor {
    data_dir: Arc<LockedDataDir>,
    state: LabState,
    pki: LabPki,
    clients: Vec<AdminClient>,
    tasks: Tasks,
    process_table: watch::Sender<Arc<ProcessTable>>,
    processes: Vec<Option<RunningProcess>>,
    commands: mpsc::Receiver<SupervisorCommand>,
    events: mpsc::Receiver<ServerEvent>,
    event_sender: mpsc::Sender<ServerEvent>,
}

#[derive(Debug)]
struct RunningProcess {
    process: Process,
    /// Cancels the readiness poll.
    stop_polling: CancellationToken,
    /// Replies of stop and kill actions, sent when the process has exited.
    exit_waiters: Vec<oneshot::Sender<Result<(), ActionError>>>,
}

impl Supervisor {
    /// Creates a supervisor without processes. `clients` are in the order of the servers.
    pub fn new(
        folder: Arc<LockedDataDir>,
        state: LabState,
        keys: LabPki,
        clients: Vec<AdminClient>,
        tasks: Tasks,
    ) -> (Self, SupervisorHandle) {
        let (sender, orders) = mpsc::channel(COMMANDS_MAX);
        let (reports, events) = mpsc::channel(COMMANDS_MAX);
        let (process_table, reader) = watch::channel(Arc::new(ProcessTable::new(&state, Instant::now())));
        let processes = state.servers.iter().map(|_| None).collect();
        let supervisor = Self {
            data_dir: folder,
            state,
            pki: keys,
            clients,
            tasks,
            process_table,
            processes,
            commands: orders,
            events,
            event_sender: reports,
        };
        (supervisor, SupervisorHandle { commands: sender, process_table: reader })
    }

    /// Starts every server, runs commands until `stop` is cancelled, then stops every server.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ActionError> {
        for at in 0..self.state.servers.len() {
            self.start_server(at)?;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(order) = self.commands.recv() => match order {
                    SupervisorCommand::RunAction { server, action, reply } => self.handle_action(&server, action, reply),
                    SupervisorCommand::SetPreviousReleases(releases) => self.set_previous_releases(releases),
                },
                Some(event) = self.events.recv() => self.handle_event(event),
            }
        }
        self.stop_all().await;
        Ok(())
    }

    /// Stops all servers and waits for their exits.
    async fn stop_all(&mut self) {
        for at in 0..self.processes.len() {
            if self.process_table.borrow().servers[at].phase != Phase::Stopping {
                self.stop_server(at);
            }
        }
        while self.processes.iter().any(Option::is_some) {
            let Some(event) = self.events.recv().await else { return };
            self.handle_event(event);
        }
    }

    fn set_previous_releases(&mut self, releases: Vec<String>) {
        self.state.previous_releases = Some(releases.clone());
        self.write_state();
        self.process_table.send_modify(|process_table| Arc::make_mut(process_table).previous_releases = Some(releases));
    }

    fn write_state(&self) {
        if let Err(error) = self.data_dir.write_state(&self.state) {
            tracing::warn!(%error, "failed to write the lab's state file");
        }
    }

    /// Runs an action if the phase permits it. A stop or kill replies when the process has exited.
    fn handle_action(&mut self, server: &str, action: ServerAction, reply: oneshot::Sender<Result<(), ActionError>>) {
        let process_table = self.process_table.borrow().clone();
        let permitted = process_table
            .index_of(server)
            .and_then(|at| process_table.servers[at].check_permitted(&action).map(|()| at));
        let at = match permitted {
            Ok(at) => at,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let outcome = match action {
            ServerAction::Start => self.start_server(at),
            ServerAction::StartAs(release) => {
                self.state.servers[at].release = release;
                self.start_server(at)
            }
            ServerAction::Stop | ServerAction::Kill => {
                match action {
                    ServerAction::Kill => self.kill_server(at),
                    ServerAction::Start
                    | ServerAction::StartAs(_)
                    | ServerAction::Stop
                    | ServerAction::Pause
                    | ServerAction::Resume => self.stop_server(at),
                }
                if let Some(running) = &mut self.processes[at] {
                    running.exit_waiters.push(reply);
                }
                return;
            }
            ServerAction::Pause => {
                self.signal_server(at, Signal::STOP);
                self.update_process(at, |process, now| process.set_phase(Phase::Paused, now));
                Ok(())
            }
            ServerAction::Resume => {
                self.signal_server(at, Signal::CONT);
                self.update_process(at, |process, now| process.set_phase(Phase::NotReady, now));
                Ok(())
            }
        };
        let _ = reply.send(outcome);
    }

    /// Starts the process, its readiness poll and a task that waits for its exit.
    fn start_server(&mut self, at: usize) -> Result<(), ActionError> {
        let server = self.state.servers[at].clone();
        let failed = |reason: String| ActionError::Failed { name: server.name.clone(), reason };
        let (process, child) = self.spawn_process(&server).map_err(failed)?;
        self.write_state();
        let generation = self.process_table.borrow().servers[at].generation + 1;
        let pid = process.pid;
        self.update_process(at, |process, now| {
            process.server = server.clone();
            process.generation = generation;
            process.pid = Some(pid);
            process.problem.clear();
            process.set_phase(Phase::Starting, now);
        });
        let ended = CancellationToken::new();
        let pulse = poll_readiness(
            self.clients[at].clone(),
            at,
            generation,
            self.event_sender.clone(),
            self.process_table.subscribe(),
        );
        let until = ended.clone();
        self.tasks.spawn_once("readiness poll", async move {
            until.run_until_cancelled(pulse).await;
        });
        let (reports, log) = (self.event_sender.clone(), self.data_dir.data_dir().log_file(&server.name));
        self.tasks.spawn_once("wait for exit", async move {
            let how = process::wait_for_exit(child).await;
            let how = format!("{how}; last lines of {}:\n{}", log.display(), process::log_tail(&log));
            let _ = reports.send(ServerEvent::Exited { server: at, generation, exit_status: how }).await;
        });
        self.processes[at] = Some(RunningProcess { process, stop_polling: ended, exit_waiters: Vec::new() });
        Ok(())
    }

    fn spawn_process(&self, server: &ServerSpec) -> Result<(Process, tokio::process::Child), String> {
        let layout = self.data_dir.data_dir();
        if !crate::ports::is_free(server.port) {
            return Err(format!(
                "port {} is in use by another program: stop it, or let the lab choose new ports with `unskew down --purge`",
                server.port
            ));
        }
        let serving = self.pki.serving_certificate(&server.name).map_err(|error| error.to_string())?;
        let args = process_args::server_args(layout, &self.state, server, &self.pki, &serving);
        let started =
            parent_death::command_tied_to_parent(args, &layout.log_file(&server.name)).and_then(Process::start);
        started.map_err(|error| format!("cannot start the process: {error}"))
    }

    /// Sends SIGTERM, and SIGKILL if the server has not exited after `STOP_GRACE`.
    fn stop_server(&mut self, at: usize) {
        if self.processes[at].is_none() {
            return;
        }
        // Update the table first, so that the load balancer sends no new connections.
        let is_paused = self.process_table.borrow().servers[at].phase == Phase::Paused;
        self.update_process(at, |process, now| process.set_phase(Phase::Stopping, now));
        self.signal_server(at, Signal::TERM);
        if is_paused {
            // A suspended process handles SIGTERM only after SIGCONT.
            self.signal_server(at, Signal::CONT);
        }
        let (reports, generation) = (self.event_sender.clone(), self.process_table.borrow().servers[at].generation);
        let stopping = self.tasks.stop_token();
        self.tasks.spawn_once("stop timeout", async move {
            if stopping.run_until_cancelled(tokio::time::sleep(STOP_GRACE)).await.is_some() {
                let _ = reports.send(ServerEvent::StopTimedOut { server: at, generation }).await;
            }
        });
    }

    fn kill_server(&mut self, at: usize) {
        self.update_process(at, |process, now| {
            process.problem = "killed".to_owned();
            process.set_phase(Phase::Stopping, now);
        });
        self.signal_server(at, Signal::KILL);
    }

    /// Applies an event; events of an earlier process of the server are ignored.
    fn handle_event(&mut self, event: ServerEvent) {
        let (ServerEvent::Exited { server: at, generation, .. }
        | ServerEvent::Readiness { server: at, generation, .. }
        | ServerEvent::StopTimedOut { server: at, generation }) = event;
        if self.process_table.borrow().servers[at].generation != generation {
            return;
        }
        match event {
            ServerEvent::Exited { exit_status, .. } => {
                self.update_process(at, |process, now| process.apply_exit(&exit_status, now));
                let Some(running) = self.processes[at].take() else { return };
                running.stop_polling.cancel();
                running.exit_waiters.into_iter().for_each(|waiting| drop(waiting.send(Ok(()))));
            }
            ServerEvent::Readiness { readiness, .. } => {
                self.update_process(at, |process, now| process.apply_readiness(readiness, now))
            }
            ServerEvent::StopTimedOut { .. } => self.signal_server(at, Signal::KILL),
        }
    }

    fn signal_server(&self, at: usize, signal: Signal) {
        if let Some(running) = &self.processes[at] {
            running.process.signal(signal);
        }
    }

    fn update_process(&self, at: usize, change: impl FnOnce(&mut ServerProcess, Instant)) {
        self.process_table
            .send_modify(|process_table| change(&mut Arc::make_mut(process_table).servers[at], Instant::now()));
    }
}

/// Polls `/readyz` until dropped: often while the server starts, less often once it is ready.
async fn poll_readiness(
    client: AdminClient,
    server: usize,
    generation: u64,
    event_sender: mpsc::Sender<ServerEvent>,
    process_table: watch::Receiver<Arc<ProcessTable>>,
) {
    loop {
        let health = match client.request(AdminRequest::get("/readyz")).await {
            Ok(answer) if answer.status.is_success() => Readiness::Ready,
            Ok(answer) => Readiness::NotReady(format!("/readyz returns {}", answer.status.as_u16())),
            Err(error) => Readiness::NotReady(error.to_string()),
        };
        let is_steady = health == Readiness::Ready && process_table.borrow().servers[server].phase == Phase::Ready;
        if event_sender.send(ServerEvent::Readiness { server, generation, readiness: health }).await.is_err() {
            return;
        }
        tokio::time::sleep(if is_steady { READY_POLL_INTERVAL } else { STARTING_POLL_INTERVAL }).await;
    }
}
