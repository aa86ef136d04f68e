//! The connections to one peer that answers share.
//!
//! The first that has room is used, so that the last ones run empty and are closed. If none has, one is opened, by one of those
//! who wait for it; how that ends is told to all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::Connection;
use super::dial::DialError;
use super::shared::{PLACES_MAX, Place, Shared};

/// Shared connections, and those that will be.
#[derive(Default)]
pub(super) struct Streams {
    state: Mutex<State>,
    /// Whether the peer did not want HTTP/2 when it was last asked.
    are_apart: AtomicBool,
}

#[derive(Default)]
struct State {
    shared: Vec<Arc<Shared>>,
    openings: Vec<Opening>,
    /// How many the peer allowed on the last connection.
    room: Option<usize>,
}

struct Opening {
    news: watch::Receiver<News>,
    /// How many wait for it.
    waiting: usize,
}

/// What has become of an opening.
#[derive(Clone)]
pub(super) enum News {
    /// Nothing yet; and nothing at all if whoever opened it went away.
    None,
    /// There is a connection, or it is known that everybody needs one.
    Opened,
    /// There is none.
    Failed(Arc<DialError>),
}

/// What a connection turned out to be.
pub(super) enum Opened {
    /// One for many answers.
    Shared(Arc<Shared>),
    /// One for a single request.
    Own(Connection),
}

/// What somebody who needs a place does next.
pub(super) enum Turn<'a> {
    /// Takes it.
    Take(Place),
    /// Waits for what somebody else is opening.
    Wait(watch::Receiver<News>),
    /// Opens a connection.
    Open(Opener<'a>),
}

impl Streams {
    /// Whether every answer needs a connection of its own.
    pub(super) fn are_apart(&self) -> bool {
        self.are_apart.load(Ordering::Relaxed)
    }

    /// A place on a connection that there is.
    pub(super) fn place(&self, generation: u64) -> Option<Place> {
        self.state.lock().place(generation)
    }

    /// What to do for a place.
    pub(super) fn turn(&self, generation: u64) -> Turn<'_> {
        let mut state = self.state.lock();
        if let Some(place) = state.place(generation) {
            return Turn::Take(place);
        }
        let (sender, news) = watch::channel(News::None);
        if !self.are_apart() {
            let room = state.room.unwrap_or(PLACES_MAX);
            if let Some(opening) = state.openings.iter_mut().find(|opening| opening.waiting < room) {
                opening.waiting += 1;
                return Turn::Wait(opening.news.clone());
            }
            state.openings.push(Opening { news, waiting: 1 });
        }
        Turn::Open(Opener { streams: self, news: sender })
    }

    /// Closes what has carried nothing for so long, and lets go of what takes nothing any more.
    pub(super) fn sweep(&self, generation: u64, idle_age_max: Duration) {
        let now = Instant::now();
        let is_closed = |shared: &mut Arc<Shared>| {
            !shared.is_open(generation) || shared.idle_for(now).is_some_and(|idle| idle >= idle_age_max)
        };
        let closed: Vec<_> = self.state.lock().shared.extract_if(.., is_closed).collect();
        drop(closed);
    }

    /// How many connections take new answers.
    pub(super) fn len(&self) -> usize {
        self.state.lock().shared.len()
    }
}

impl State {
    fn place(&mut self, generation: u64) -> Option<Place> {
        // What a connection carries keeps it; here it is only for what is new.
        self.shared.retain(|shared| shared.is_open(generation));
        self.shared.iter().find_map(Shared::place)
    }
}

/// Waits for what becomes of an opening.
pub(super) async fn heard(mut news: watch::Receiver<News>) -> News {
    match news.wait_for(|news| !matches!(news, News::None)).await {
        Ok(news) => news.clone(),
        Err(_) => News::None,
    }
}

/// Somebody who opens a connection, for itself and for those who wait.
pub(super) struct Opener<'a> {
    streams: &'a Streams,
    news: watch::Sender<News>,
}

impl Opener<'_> {
    /// There is a connection, and the first place on it for who opened it.
    pub(super) fn opened(self, shared: Arc<Shared>) -> Option<Place> {
        let place = shared.place();
        let mut state = self.streams.state.lock();
        state.room = Some(shared.room());
        state.shared.push(shared);
        drop(state);
        self.streams.are_apart.store(false, Ordering::Relaxed);
        self.news.send_replace(News::Opened);
        place
    }

    /// The peer does not want HTTP/2, so that everybody opens a connection.
    pub(super) fn found_apart(self) {
        self.streams.are_apart.store(true, Ordering::Relaxed);
        self.news.send_replace(News::Opened);
    }

    /// There is no connection, for anybody who waited.
    pub(super) fn failed(self, error: &DialError) {
        self.news.send_replace(News::Failed(Arc::new(error.again())));
    }
}

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        let news = self.news.subscribe();
        self.streams.state.lock().openings.retain(|opening| !opening.news.same_channel(&news));
    }
}
