//! A TCP proxy that injects faults.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;
use tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyMode {
    Pass,
    /// Accepts and keeps connections but forwards nothing.
    Stall,
    /// Stalls existing connections; new ones pass.
    StallExisting,
    /// Forwards requests and drops responses.
    DropResponses,
    /// Cuts each connection after a random number of bytes of about this size.
    CutAfter(usize),
}

/// A proxy in front of a local port.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    pub(crate) url: String,
    mode: watch::Sender<ProxyMode>,
    /// Incremented to cut all existing connections.
    cuts: watch::Sender<u64>,
    accepted: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl FaultProxy {
    pub(crate) async fn start(upstream: u16, mode: ProxyMode) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            mode: watch::Sender::new(mode),
            cuts: watch::Sender::new(0),
            accepted: Arc::default(),
            tasks: Tasks::new(),
        };
        let (mode, cuts) = (proxy.mode.clone(), proxy.cuts.clone());
        let (accepted, tasks) = (proxy.accepted.clone(), proxy.tasks.clone());
        proxy.tasks.spawn("proxy", |stop| async move {
            loop {
                let client = tokio::select! {
                    accept = listener.accept() => accept.unwrap().0,
                    () = stop.cancelled() => return,
                };
                let number = accepted.fetch_add(1, Ordering::Relaxed);
                let (mode, mut cuts) = (mode.subscribe(), cuts.subscribe());
                cuts.mark_unchanged();
                tasks.spawn_once("proxied connection", async move {
                    tokio::select! {
                        // If either side closes or fails, both are closed.
                        _ = proxy_connection(client, upstream, mode, Rng::with_seed(number as u64)) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        proxy
    }

    pub(crate) fn set_mode(&self, mode: ProxyMode) {
        self.mode.send_replace(mode);
    }

    /// Cuts every connection; new ones are accepted.
    pub(crate) fn cut_connections(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn accepted_count(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.tasks.stop_token().cancel();
        self.cut_connections();
    }
}

async fn proxy_connection(
    mut client: TcpStream,
    upstream: u16,
    mut mode: watch::Receiver<ProxyMode>,
    mut rng: Rng,
) -> Option<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await.ok()?;
    let (mut from_client, mut from_server) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let is_new = *mode.borrow() == ProxyMode::StallExisting;
    let is_stalled = move |mode: &ProxyMode| *mode == ProxyMode::Stall || *mode == ProxyMode::StallExisting && !is_new;
    let mut left = match *mode.borrow() {
        ProxyMode::CutAfter(bytes) => rng.usize(..2 * bytes),
        ProxyMode::Pass | ProxyMode::Stall | ProxyMode::StallExisting | ProxyMode::DropResponses => usize::MAX,
    };
    loop {
        mode.wait_for(|mode| !is_stalled(mode)).await.ok()?;
        let (count, forward) = tokio::select! {
            count = client.read(&mut from_client) => (count.ok()?, true),
            count = server.read(&mut from_server) => (count.ok()?, false),
            changed = mode.changed() => { changed.ok()?; continue; }
        };
        // The last bytes before a cut still arrive, so that it falls into the middle of a message.
        let passed = count.min(left);
        match forward {
            true => server.write_all(&from_client[..passed]).await.ok()?,
            false if *mode.borrow() == ProxyMode::DropResponses => {}
            false => client.write_all(&from_server[..passed]).await.ok()?,
        }
        left -= passed;
        if count == 0 || left == 0 {
            return None;
        }
    }
}
