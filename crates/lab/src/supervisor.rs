//! Starts and ends the processes of a lab, and keeps the board of how they stand.
//!
//! One task owns every process; everybody else sends orders and reads the board. It must run on the main thread, because the
//! processes end with the thread that started them ([`crate::leash`]).

pub mod board;
pub(crate) mod process;

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tasks::Tasks;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use board::{Act, Board, Health, OrderError, Standing};
use process::Process;

use crate::client::{Ask, Client};
use crate::folder::Folder;
use crate::folder::state::{Remembered, State};
use crate::keys::Keys;
use crate::status::Phase;
use crate::{launch, leash};

/// How long a server may take to end after it was told; it drains for 10 s at most.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// How often a starting server is asked, and one that was ready.
const STARTING_INTERVAL: Duration = Duration::from_millis(20);
const STEADY_INTERVAL: Duration = Duration::from_millis(500);
/// More orders than people and a rollout give at a time.
const ORDERS_MAX: usize = 64;

/// How orders reach the supervisor, and how the board is read. Clones are the same.
#[derive(Clone, Debug)]
pub struct Handle {
    orders: mpsc::Sender<Order>,
    board: watch::Receiver<Arc<Board>>,
}

impl Handle {
    /// Asks for something and waits until it is done; a start is done when the process runs.
    pub async fn order(&self, server: &str, act: Act) -> Result<(), OrderError> {
        let (reply, answer) = oneshot::channel();
        let order = Order::Server { server: server.to_owned(), act, reply };
        self.orders.send(order).await.map_err(|_| OrderError::Stopping)?;
        answer.await.unwrap_or(Err(OrderError::Stopping))
    }

    /// Remembers the releases of the servers, for the way back.
    pub async fn remember(&self, releases: Vec<String>) -> Result<(), OrderError> {
        self.orders.send(Order::Remember(releases)).await.map_err(|_| OrderError::Stopping)
    }

    /// The board, live.
    pub fn board(&self) -> watch::Receiver<Arc<Board>> {
        self.board.clone()
    }
}

#[derive(Debug)]
enum Order {
    Server { server: String, act: Act, reply: oneshot::Sender<Result<(), OrderError>> },
    Remember(Vec<String>),
}

#[derive(Debug)]
enum Event {
    Ended { at: usize, generation: u64, how: String },
    Health { at: usize, generation: u64, health: Health },
    Overdue { at: usize, generation: u64 },
}

/// Owns the processes of the servers.
#[derive(Debug)]
pub struct Supervisor {
    folder: Arc<Folder>,
    state: State,
    keys: Keys,
    clients: Vec<Client>,
    tasks: Tasks,
    board: watch::Sender<Arc<Board>>,
    processes: Vec<Option<Running>>,
    orders: mpsc::Receiver<Order>,
    events: mpsc::Receiver<Event>,
    reports: mpsc::Sender<Event>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    /// Ends the looks at its health.
    ended: CancellationToken,
    /// Who waits for its end.
    waiting: Vec<oneshot::Sender<Result<(), OrderError>>>,
}

impl Supervisor {
    /// A supervisor that has started nothing yet. `clients` are of the servers, in their order.
    pub fn new(folder: Arc<Folder>, state: State, keys: Keys, clients: Vec<Client>, tasks: Tasks) -> (Self, Handle) {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        let (reports, events) = mpsc::channel(ORDERS_MAX);
        let (board, reader) = watch::channel(Arc::new(Board::new(&state, Instant::now())));
        let processes = state.servers.iter().map(|_| None).collect();
        let supervisor = Self { folder, state, keys, clients, tasks, board, processes, orders, events, reports };
        (supervisor, Handle { orders: sender, board: reader })
    }

    /// Starts every server, serves orders until `stop`, and ends every server.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), OrderError> {
        for at in 0..self.state.servers.len() {
            self.start(at)?;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(order) = self.orders.recv() => match order {
                    Order::Server { server, act, reply } => self.obey(&server, act, reply),
                    Order::Remember(releases) => self.remember(releases),
                },
                Some(event) = self.events.recv() => self.notice(event),
            }
        }
        self.end_all().await;
        Ok(())
    }

    async fn end_all(&mut self) {
        for at in 0..self.processes.len() {
            if self.board.borrow().servers[at].phase != Phase::Stopping {
                self.stop(at);
            }
        }
        while self.processes.iter().any(Option::is_some) {
            let Some(event) = self.events.recv().await else { return };
            self.notice(event);
        }
    }

    fn remember(&mut self, releases: Vec<String>) {
        self.state.before = Some(releases.clone());
        self.write_state();
        self.board.send_modify(|board| Arc::make_mut(board).before = Some(releases));
    }

    fn write_state(&self) {
        if let Err(error) = self.folder.write_state(&self.state) {
            tracing::warn!(%error, "the lab will not remember this");
        }
    }

    fn obey(&mut self, server: &str, act: Act, reply: oneshot::Sender<Result<(), OrderError>>) {
        let board = self.board.borrow().clone();
        let permitted = board.find(server).and_then(|at| board.servers[at].permits(&act).map(|()| at));
        let at = match permitted {
            Ok(at) => at,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let outcome = match act {
            Act::Start => self.start(at),
            Act::StartAs(release) => {
                self.state.servers[at].release = release;
                self.start(at)
            }
            Act::Stop | Act::Kill => {
                match act {
                    Act::Kill => self.kill(at),
                    Act::Start | Act::StartAs(_) | Act::Stop | Act::Pause | Act::Resume => self.stop(at),
                }
                if let Some(running) = &mut self.processes[at] {
                    running.waiting.push(reply);
                }
                return;
            }
            Act::Pause => {
                self.signal(at, Signal::STOP);
                self.change(at, |standing, now| standing.enter(Phase::Paused, now));
                Ok(())
            }
            Act::Resume => {
                self.signal(at, Signal::CONT);
                self.change(at, |standing, now| standing.enter(Phase::NotReady, now));
                Ok(())
            }
        };
        let _ = reply.send(outcome);
    }

    fn start(&mut self, at: usize) -> Result<(), OrderError> {
        let server = self.state.servers[at].clone();
        let failed = |reason: String| OrderError::Failed { name: server.name.clone(), reason };
        let (process, child) = self.spawn(&server).map_err(failed)?;
        self.write_state();
        let generation = self.board.borrow().servers[at].generation + 1;
        let pid = process.pid;
        self.change(at, |standing, now| {
            standing.server = server.clone();
            standing.generation = generation;
            standing.pid = Some(pid);
            standing.trouble.clear();
            standing.enter(Phase::Starting, now);
        });
        let ended = CancellationToken::new();
        let pulse = pulse(self.clients[at].clone(), at, generation, self.reports.clone(), self.board.subscribe());
        let until = ended.clone();
        self.tasks.spawn_once("pulse", async move {
            until.run_until_cancelled(pulse).await;
        });
        let (reports, log) = (self.reports.clone(), self.folder.layout().log(&server.name));
        self.tasks.spawn_once("wait", async move {
            let how = process::end_of(child).await;
            let how = format!("{how}; the end of {}:\n{}", log.display(), process::tail(&log));
            let _ = reports.send(Event::Ended { at, generation, how }).await;
        });
        self.processes[at] = Some(Running { process, ended, waiting: Vec::new() });
        Ok(())
    }

    fn spawn(&self, server: &Remembered) -> Result<(Process, tokio::process::Child), String> {
        let layout = self.folder.layout();
        if !crate::ports::is_free(server.port) {
            return Err(format!(
                "its port {} is taken by another program: stop that one, or `unskew down --purge` and let the lab choose anew",
                server.port
            ));
        }
        let serving = self.keys.serving(&server.name).map_err(|error| error.to_string())?;
        let args = launch::server(layout, &self.state, server, &self.keys, &serving);
        let started = leash::command(args, &layout.log(&server.name)).and_then(Process::start);
        started.map_err(|error| format!("it cannot be started: {error}"))
    }

    fn stop(&mut self, at: usize) {
        if self.processes[at].is_none() {
            return;
        }
        // The board first: the door must not send anybody to a server that stops.
        let is_paused = self.board.borrow().servers[at].phase == Phase::Paused;
        self.change(at, |standing, now| standing.enter(Phase::Stopping, now));
        self.signal(at, Signal::TERM);
        if is_paused {
            // A paused process hears nothing else.
            self.signal(at, Signal::CONT);
        }
        let (reports, generation) = (self.reports.clone(), self.board.borrow().servers[at].generation);
        let stopping = self.tasks.stopping();
        self.tasks.spawn_once("overdue", async move {
            if stopping.run_until_cancelled(tokio::time::sleep(STOP_GRACE)).await.is_some() {
                let _ = reports.send(Event::Overdue { at, generation }).await;
            }
        });
    }

    fn kill(&mut self, at: usize) {
        self.change(at, |standing, now| {
            standing.trouble = "killed".to_owned();
            standing.enter(Phase::Stopping, now);
        });
        self.signal(at, Signal::KILL);
    }

    fn notice(&mut self, event: Event) {
        let (Event::Ended { at, generation, .. }
        | Event::Health { at, generation, .. }
        | Event::Overdue { at, generation }) = event;
        if self.board.borrow().servers[at].generation != generation {
            return;
        }
        match event {
            Event::Ended { how, .. } => {
                self.change(at, |standing, now| standing.end(&how, now));
                let Some(running) = self.processes[at].take() else { return };
                running.ended.cancel();
                running.waiting.into_iter().for_each(|waiting| drop(waiting.send(Ok(()))));
            }
            Event::Health { health, .. } => self.change(at, |standing, now| standing.hear(health, now)),
            Event::Overdue { .. } => self.signal(at, Signal::KILL),
        }
    }

    fn signal(&self, at: usize, signal: Signal) {
        if let Some(running) = &self.processes[at] {
            running.process.signal(signal);
        }
    }

    fn change(&self, at: usize, change: impl FnOnce(&mut Standing, Instant)) {
        self.board.send_modify(|board| change(&mut Arc::make_mut(board).servers[at], Instant::now()));
    }
}

/// Looks at a server's health until it is dropped: often while it starts, now and then afterwards.
async fn pulse(
    client: Client,
    at: usize,
    generation: u64,
    reports: mpsc::Sender<Event>,
    board: watch::Receiver<Arc<Board>>,
) {
    loop {
        let health = match client.ask(Ask::get("/readyz")).await {
            Ok(answer) if answer.status.is_success() => Health::Ready,
            Ok(answer) => Health::Not(format!("/readyz answers {}", answer.status.as_u16())),
            Err(error) => Health::Not(error.to_string()),
        };
        let is_steady = health == Health::Ready && board.borrow().servers[at].phase == Phase::Ready;
        if reports.send(Event::Health { at, generation, health }).await.is_err() {
            return;
        }
        tokio::time::sleep(if is_steady { STEADY_INTERVAL } else { STARTING_INTERVAL }).await;
    }
}
