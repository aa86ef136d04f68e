//! A TCP proxy that treats connections badly.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;
use tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are passed on.
    Pass,
    /// They stay where they are: connections are accepted and kept, and nothing is answered.
    Stall,
    /// The bytes of connections that are there stay where they are; new connections pass.
    StallOld,
    /// Requests are passed on, and answers are lost.
    DropAnswers,
    /// Each connection is cut after a random number of bytes of about this size.
    CutAfter(usize),
}

/// A proxy in front of a port of this machine.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) url: String,
    mode: watch::Sender<Mode>,
    /// Rises to cut what is there.
    cuts: watch::Sender<u64>,
    accepted: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Proxy {
    pub(crate) async fn start(upstream: u16, mode: Mode) -> Self {
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
                        // Either side closing, or failing, closes both.
                        _ = pass(client, upstream, mode, Rng::with_seed(number as u64)) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        proxy
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Cuts every connection; new ones are accepted.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many connections were made.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
        self.cut();
    }
}

async fn pass(mut client: TcpStream, upstream: u16, mut mode: watch::Receiver<Mode>, mut rng: Rng) -> Option<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await.ok()?;
    let (mut from_client, mut from_server) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let is_new = *mode.borrow() == Mode::StallOld;
    let is_stalled = move |mode: &Mode| *mode == Mode::Stall || *mode == Mode::StallOld && !is_new;
    let mut left = match *mode.borrow() {
        Mode::CutAfter(bytes) => rng.usize(..2 * bytes),
        Mode::Pass | Mode::Stall | Mode::StallOld | Mode::DropAnswers => usize::MAX,
    };
    loop {
        mode.wait_for(|mode| !is_stalled(mode)).await.ok()?;
        let (count, forward) = tokio::select! {
            count = client.read(&mut from_client) => (count.ok()?, true),
            count = server.read(&mut from_server) => (count.ok()?, false),
            changed = mode.changed() => { changed.ok()?; continue; }
        };
        // The last bytes before a cut still arrive, so that the cut falls into the middle of something.
        let passed = count.min(left);
        match forward {
            true => server.write_all(&from_client[..passed]).await.ok()?,
            false if *mode.borrow() == Mode::DropAnswers => {}
            false => client.write_all(&from_server[..passed]).await.ok()?,
        }
        left -= passed;
        if count == 0 || left == 0 {
            return None;
        }
    }
}
