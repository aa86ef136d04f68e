//! The TCP load balancer of a lab: one address that assigns each connection to a ready server.
//!
//! Bytes are passed through. TLS ends at the server, so client certificates reach it unchanged.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tasks::Tasks;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::status::Phase;
use crate::supervisor::ProcessTable;

/// Far more than tests on one machine open; each connection uses two sockets.
const CONNECTIONS_MAX: usize = 4096;
/// The servers run on this machine: connecting succeeds at once, or the server hangs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay after a failed accept; without it, running out of file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// State of one server when a connection arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBalancerBackend {
    /// Lifecycle phase of the server process.
    pub phase: Phase,
    /// Open connections through this load balancer.
    pub connections: usize,
}

/// Returns the indexes of the servers to try for a connection, best first: ready servers by number of connections, ties
/// round robin by `connection_number`. If none is ready, starting and not-ready servers.
pub fn rank_backends(backends: &[LoadBalancerBackend], connection_number: u64) -> Vec<usize> {
    let number = backends.len().max(1);
    let start = usize::try_from(connection_number % number as u64).unwrap_or_default();
    let rank = |phase: Phase| match phase {
        Phase::Ready => Some(0),
        Phase::NotReady | Phase::Starting => Some(1),
        Phase::Stopped | Phase::Paused | Phase::Stopping | Phase::Failed => None,
    };
    let mut able: Vec<(u8, usize, usize, usize)> = backends
        .iter()
        .enumerate()
        .filter_map(|(at, candidate)| {
            Some((rank(candidate.phase)?, candidate.connections, (at + number - start) % number, at))
        })
        .collect();
    able.sort_unstable();
    let best = able.first().map(|first| first.0);
    able.into_iter().filter(|(rank, ..)| Some(*rank) == best).map(|(.., at)| at).collect()
}

/// Accepts and proxies connections until `stop` is cancelled. Closes a connection at once above `CONNECTIONS_MAX`.
pub async fn run(
    listener: TcpListener,
    process_table: watch::Receiver<Arc<ProcessTable>>,
    tasks: Tasks,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connection_counts: Arc<[AtomicUsize]> =
        process_table.borrow().servers.iter().map(|_| AtomicUsize::new(0)).collect();
    let connection_numbers = AtomicU64::new(0);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((client, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let turn = connection_numbers.fetch_add(1, Ordering::Relaxed);
        let (process_table, connection_counts, stop) = (process_table.clone(), connection_counts.clone(), stop.clone());
        tasks.spawn_once("load balancer connection", async move {
            stop.run_until_cancelled(proxy_connection(client, process_table, &connection_counts, turn)).await;
            drop(permit);
        });
    }
}

/// Proxies one connection until either side closes it, or its server is paused, stopped or replaced.
async fn proxy_connection(
    mut client: TcpStream,
    mut process_table: watch::Receiver<Arc<ProcessTable>>,
    connection_counts: &[AtomicUsize],
    connection_number: u64,
) {
    let now = process_table.borrow_and_update().clone();
    let backends: Vec<LoadBalancerBackend> = now
        .servers
        .iter()
        .zip(connection_counts)
        .map(|(server_process, open)| LoadBalancerBackend {
            phase: server_process.phase,
            connections: open.load(Ordering::Relaxed),
        })
        .collect();
    for at in rank_backends(&backends, connection_number) {
        let server_process = &now.servers[at];
        let Some(mut server) = connect_to_server(server_process.server.port).await else { continue };
        let _counted = ConnectionCountGuard::new(&connection_counts[at]);
        let _ = client.set_nodelay(true);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = wait_until_unavailable(&mut process_table, at, server_process.generation) => {}
        }
        return;
    }
    // No server accepts the connection: close it.
    let _ = client.shutdown().await;
}

async fn connect_to_server(port: u16) -> Option<TcpStream> {
    let connecting = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let server = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.ok()?.ok()?;
    let _ = server.set_nodelay(true);
    Some(server)
}

/// Returns once the server is paused, stopped or failed, or has a new process (another generation).
async fn wait_until_unavailable(
    process_table: &mut watch::Receiver<Arc<ProcessTable>>,
    server: usize,
    generation: u64,
) {
    let is_gone = |process_table: &Arc<ProcessTable>| {
        let process = &process_table.servers[server];
        process.generation != generation || matches!(process.phase, Phase::Paused | Phase::Stopped | Phase::Failed)
    };
    let _ = process_table.wait_for(is_gone).await;
}

/// Counts a connection until drop.
struct ConnectionCountGuard<'a>(&'a AtomicUsize);

impl<'a> ConnectionCountGuard<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for ConnectionCountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::data_dir::state::tests::test_lab_state;

    /// Parses `r2` as a ready server with two connections; s: stopped, p: paused, n: not ready, b: starting.
    #[track_caller]
    fn check(servers: &str, turn: u64, expected: &[usize]) {
        let candidates: Vec<LoadBalancerBackend> = servers
            .split_whitespace()
            .map(|text| LoadBalancerBackend {
                phase: match &text[..1] {
                    "r" => Phase::Ready,
                    "s" => Phase::Stopped,
                    "p" => Phase::Paused,
                    "n" => Phase::NotReady,
                    "b" => Phase::Starting,
                    other => panic!("no phase {other}"),
                },
                connections: text[1..].parse().unwrap(),
            })
            .collect();
        assert_eq!(rank_backends(&candidates, turn), expected, "{servers}, turn {turn}");
    }

    #[test]
    fn equally_loaded_ready_servers_are_ranked_round_robin() {
        check("r0 r0 r0", 0, &[0, 1, 2]);
        check("r0 r0 r0", 1, &[1, 2, 0]);
        check("r0 r0 r0", 5, &[2, 0, 1]);
        check("r2 r0 r1", 0, &[1, 2, 0]);
    }

    /// Starts a server that sends `!` on connect and then echoes every byte.
    async fn start_echo_server(tasks: &Tasks) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tasks.spawn_once("echo", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut reader, mut writer) = stream.split();
                let _ = writer.write_all(b"!").await;
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn connection_is_proxied_until_its_server_is_paused() {
        let tasks = Tasks::new();
        let port = start_echo_server(&tasks).await;
        let mut process_table =
            ProcessTable::new(&test_lab_state(&format!("a=1.33:1 b=1.36:{port}")), tokio::time::Instant::now());
        process_table.servers[1].phase = Phase::Ready;
        let (sender, reader) = watch::channel(Arc::new(process_table));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let balancer = listener.local_addr().unwrap();
        tasks.spawn_once("load balancer", run(listener, reader, tasks.clone(), tasks.stop_token()));

        let mut client = TcpStream::connect(balancer).await.unwrap();
        client.write_all(b"x").await.unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"!x");
        sender.send_modify(|process_table| Arc::make_mut(process_table).servers[1].phase = Phase::Paused);
        assert_eq!(client.read(&mut answer).await.unwrap(), 0, "connections to a paused server are closed");

        let mut unserved = TcpStream::connect(balancer).await.unwrap();
        assert_eq!(unserved.read(&mut answer).await.unwrap(), 0, "no server is ready");
        tasks.stop_token().cancel();
    }

    #[test]
    fn unready_servers_are_ranked_only_if_none_is_ready() {
        check("r5 n0 p0 s0 b0", 1, &[0]);
        check("s0 n1 p0 b0", 0, &[3, 1]);
        check("s0 p0", 0, &[]);
        check("", 7, &[]);
    }
}
