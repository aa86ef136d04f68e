//! In-flight limits: a seat per request, held until its response is sent.
//!
//! A response that was made for one request costs memory until the client has read it, so its body keeps the seat. The request's
//! deadline bounds that too: [`SendLimit`] ends a response that is still being sent then, as kube-apiserver does.

use std::sync::{Arc, Weak};

use api::{Target, Verb};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::pipeline::RequestLimits;
use crate::{Body, Error, Response};

/// Bounds the requests under way. Long-running requests hold no seat: a watch would hold it for an hour.
#[derive(Debug)]
pub(crate) struct Seats {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    reads_max: usize,
    writes_max: usize,
}

/// The place of one request below a limit; dropping it frees the place.
#[derive(Debug)]
pub struct Seat {
    _permit: OwnedSemaphorePermit,
    /// When the response must have been sent.
    deadline: Instant,
}

impl Seats {
    pub(crate) fn new(limits: RequestLimits) -> Self {
        let most = |limit: usize| if limit == 0 { Semaphore::MAX_PERMITS } else { limit.min(Semaphore::MAX_PERMITS) };
        let (reads_max, writes_max) = (most(limits.reads), most(limits.writes));
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { reads: semaphore(reads_max), writes: semaphore(writes_max), reads_max, writes_max }
    }

    /// How many reads and writes are under way.
    pub(crate) fn occupied(&self) -> (usize, usize) {
        (self.reads_max - self.reads.available_permits(), self.writes_max - self.writes.available_permits())
    }

    /// A seat until `deadline`; `None` for requests that need none.
    pub(crate) fn try_acquire(&self, target: &Target<'_>, deadline: Instant) -> Result<Option<Seat>, Error> {
        if target.is_long_running() {
            return Ok(None);
        }
        let seats = if is_mutating(target) { &self.writes } else { &self.reads };
        match seats.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(Seat { _permit: permit, deadline })),
            Err(_) => Err(Error::Overloaded),
        }
    }
}

impl Seat {
    /// Keeps the seat until the response is sent, if its body occupies memory of its own. The bytes of a cached object are
    /// shared, and a get of one frees its seat at once.
    pub(crate) fn attach_to(self, response: Response) -> Response {
        if !response.body().is_exclusive() {
            return response;
        }
        response.map(|body| Body::with_seat(body, Arc::new(self)))
    }
}

/// When a response must have been sent, and whether it still is being sent.
#[derive(Clone, Debug)]
pub(crate) struct SendLimit {
    deadline: Instant,
    seat: Weak<Seat>,
}

impl SendLimit {
    pub(crate) fn for_seat(seat: &Arc<Seat>) -> Self {
        Self { deadline: seat.deadline, seat: Arc::downgrade(seat) }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// True while the body that holds the seat exists.
    pub(crate) fn is_sending(&self) -> bool {
        self.seat.strong_count() > 0
    }
}

/// True if the request can change something.
pub(crate) fn is_mutating(target: &Target<'_>) -> bool {
    match target {
        Target::NonResource(_) => false,
        Target::Resource(resource) => !matches!(resource.verb, Verb::Get | Verb::List | Verb::Watch),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::BodyExt as _;

    use super::*;

    const LIMITS: RequestLimits = RequestLimits { reads: 1, writes: 1, request_timeout: Duration::from_secs(60) };

    fn acquire_seat(seats: &Seats, method: &str) -> Result<Option<Seat>, Error> {
        let target = Target::parse(method, "/api/v1/namespaces/d/configmaps").unwrap();
        seats.try_acquire(&target, Instant::now() + LIMITS.request_timeout)
    }

    #[tokio::test]
    async fn seat_is_held_until_an_exclusive_body_is_read_or_dropped() {
        let seats = Seats::new(LIMITS);
        let list = || Body::from_parts(vec![Bytes::from_static(b"a"), Bytes::from(vec![b'b'; 200_000])]);
        let read = acquire_seat(&seats, "GET").unwrap().unwrap().attach_to(Response::new(list()));
        assert_eq!(seats.occupied(), (1, 0));
        assert!(matches!(acquire_seat(&seats, "GET"), Err(Error::Overloaded)));
        let whole = read.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((whole.len(), seats.occupied()), (200_001, (0, 0)));
        let dropped =
            acquire_seat(&seats, "POST").unwrap().unwrap().attach_to(Response::new(Body::from(vec![b'x'; 10])));
        assert_eq!(seats.occupied(), (0, 1));
        drop(dropped);
        assert_eq!(seats.occupied(), (0, 0));
    }

    #[tokio::test]
    async fn seat_of_a_shared_body_is_free_at_once() {
        let seats = Seats::new(LIMITS);
        let cached = Bytes::from(vec![b'x'; 100]);
        for body in [Body::Empty, Body::from(Bytes::from_static(b"page")), Body::from(cached.clone())] {
            let response = acquire_seat(&seats, "GET").unwrap().unwrap().attach_to(Response::new(body));
            assert_eq!(seats.occupied(), (0, 0), "{response:?}");
        }
        assert_eq!(cached.len(), 100, "the cache still has it");
    }

    #[tokio::test]
    async fn long_running_request_needs_no_seat() {
        let seats = Seats::new(LIMITS);
        let watch = Target::parse("GET", "/api/v1/pods?watch=1").unwrap();
        assert!(seats.try_acquire(&watch, Instant::now()).unwrap().is_none());
    }
}
