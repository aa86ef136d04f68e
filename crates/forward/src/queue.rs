//! The queue of a peer at its in-flight limit: users take turns, and the requests of one user keep their order.
//!
//! Pure: nothing here waits, and users are known by a hash only.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use api::headers::BEARER_PROTOCOL_PREFIX;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

use super::identity::ForwardedUser;

/// Limits of the queue of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests in the queue; 0 for no queue.
    pub length_max: usize,
    /// Requests of one user in the queue.
    pub user_max: usize,
    /// The longest wait of one request.
    pub wait_max: Duration,
}

impl QueueLimits {
    /// No queue: requests at the limit are rejected.
    pub const NONE: Self = Self { length_max: 0, user_max: 0, wait_max: Duration::ZERO };
}

/// Why a request was not queued, or left the queue without a seat. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueRejection {
    /// The user is at `user_max`.
    #[error("too many requests of this user are queued")]
    UserQueueFull,
    /// The queue is full, and no user has more requests in it than this one would.
    #[error("too many requests are queued")]
    QueueFull,
    /// The request was the last one of the user with the most requests and made room for another user's.
    #[error("this request was evicted from the queue in favour of a less busy user")]
    Evicted,
    /// The request waited for `wait_max`.
    #[error("this request was queued for the longest allowed time")]
    TimedOut,
}

impl QueueRejection {
    /// The label value for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::UserQueueFull => "user_full",
            Self::QueueFull => "full",
            Self::Evicted => "pushed_out",
            Self::TimedOut => "timeout",
        }
    }
}

/// The hash of a user. Users whose hashes collide share their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow(u64);

/// Hashes users with a random seed, so that clients cannot choose a hash and tokens cannot be derived from it.
#[derive(Debug, Default)]
pub(super) struct FlowHasher(RandomState);

impl FlowHasher {
    /// Hashes the name of the user if it is known, otherwise the credentials, otherwise the client address.
    pub(super) fn flow_for(&self, user: &ForwardedUser, headers: &HeaderMap, client_ip: IpAddr) -> Flow {
        if let Some(name) = user.name() {
            return Flow(self.0.hash_one(("user", name)));
        }
        let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
        let mut offered = protocols.flat_map(|line| line.split(',')).map(str::trim);
        let in_protocol = || offered.find(|protocol| protocol.starts_with(BEARER_PROTOCOL_PREFIX)).map(str::as_bytes);
        let token = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).or_else(in_protocol);
        Flow(match token {
            Some(token) => self.0.hash_one(("token", token)),
            None => self.0.hash_one(("address", client_ip)),
        })
    }
}

/// The requests that wait for one peer, by user.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    length_max: usize,
    user_max: usize,
    /// The requests of each user; no entry is empty.
    queues_by_flow: HashMap<Flow, VecDeque<(Ticket, T)>>,
    /// The users with waiting requests, the next one in front.
    flow_order: VecDeque<Flow>,
    length: usize,
    last_ticket: u64,
}

/// Identifies a waiting request for removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    flow: Flow,
    number: u64,
}

/// The result of queueing a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Enqueued<T> {
    pub(super) ticket: Ticket,
    /// The request that was evicted for it.
    pub(super) evicted: Option<T>,
}

impl<T> FairQueue<T> {
    pub(super) fn new(limits: QueueLimits) -> Self {
        let QueueLimits { length_max, user_max, .. } = limits;
        Self {
            length_max,
            user_max,
            queues_by_flow: HashMap::new(),
            flow_order: VecDeque::new(),
            length: 0,
            last_ticket: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Appends a request to those of its user. The turn of a new user comes last. If the queue is full, evicts the last request
    /// of the user with the most requests, provided that this user then still has fewer.
    pub(super) fn push(&mut self, flow: Flow, waiter: T) -> Result<Enqueued<T>, QueueRejection> {
        let own_length = self.flow_length(flow);
        if own_length >= self.user_max {
            return Err(if self.user_max == 0 { QueueRejection::QueueFull } else { QueueRejection::UserQueueFull });
        }
        let evicted =
            if self.length >= self.length_max { Some(self.evict_from_longest(own_length + 1)?) } else { None };
        self.last_ticket += 1;
        let ticket = Ticket { flow, number: self.last_ticket };
        let queue = self.queues_by_flow.entry(flow).or_default();
        if queue.is_empty() {
            self.flow_order.push_back(flow);
        }
        queue.push_back((ticket, waiter));
        self.length += 1;
        Ok(Enqueued { ticket, evicted })
    }

    /// Removes and returns the next request.
    pub(super) fn pop(&mut self) -> Option<T> {
        let flow = self.flow_order.pop_front()?;
        let queue = self.queues_by_flow.get_mut(&flow)?;
        let (_, waiter) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues_by_flow.remove(&flow);
        } else {
            self.flow_order.push_back(flow);
        }
        self.length -= 1;
        Some(waiter)
    }

    /// Removes a request that stopped waiting, if it is still there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let queue = self.queues_by_flow.get(&ticket.flow)?;
        let index = queue.iter().position(|(other, _)| *other == ticket)?;
        self.remove_at(ticket.flow, index)
    }

    /// Removes the last request of the user with the most requests, if that user has more than `min_length`.
    fn evict_from_longest(&mut self, min_length: usize) -> Result<T, QueueRejection> {
        let longest = self.flow_order.iter().copied().max_by_key(|flow| self.flow_length(*flow));
        let longest = longest.map(|flow| (flow, self.flow_length(flow))).filter(|(_, length)| *length > min_length);
        longest.and_then(|(flow, length)| self.remove_at(flow, length - 1)).ok_or(QueueRejection::QueueFull)
    }

    fn remove_at(&mut self, flow: Flow, index: usize) -> Option<T> {
        let queue = self.queues_by_flow.get_mut(&flow)?;
        let (_, taken) = queue.remove(index)?;
        if queue.is_empty() {
            self.queues_by_flow.remove(&flow);
            self.flow_order.retain(|other| *other != flow);
        }
        self.length -= 1;
        Some(taken)
    }

    fn flow_length(&self, flow: Flow) -> usize {
        self.queues_by_flow.get(&flow).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests;
