//! Who is next at a peer that has as many requests as it may: users take turns, and each user's own requests come in the order
//! in which they were made.
//!
//! Values in, values out: nothing here waits, and nobody who waits is known by more than a number.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use api::headers::BEARER_PROTOCOL_PREFIX;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

use super::identity::ForwardedUser;

/// How many requests may wait for one peer, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// All of them; 0: none waits.
    pub length_max: usize,
    /// Those of one user.
    pub user_max: usize,
    /// For how long.
    pub wait_max: Duration,
}

impl QueueLimits {
    /// Nobody waits.
    pub const NONE: Self = Self { length_max: 0, user_max: 0, wait_max: Duration::ZERO };
}

/// Why a request does not wait, or does not wait any longer. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueRejection {
    /// As many of its user wait as may.
    #[error("too many requests of this user wait already")]
    UserQueueFull,
    /// As many wait as may, and its user has no fewer than the others.
    #[error("too many requests wait already")]
    QueueFull,
    /// It was the last of the user who had the most, and made room for one of a user who had fewer.
    #[error("it waited behind others of its user, and made room for a user who has fewer")]
    Evicted,
    /// It waited for as long as it may.
    #[error("it waited for as long as it may")]
    TimedOut,
}

impl QueueRejection {
    /// A word for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::UserQueueFull => "user_full",
            Self::QueueFull => "full",
            Self::Evicted => "pushed_out",
            Self::TimedOut => "timeout",
        }
    }
}

/// A user among those who wait. Two users with the same number would share their turns, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow(u64);

/// Gives users their numbers, which nobody can choose or foresee, and from which nobody learns a token.
#[derive(Debug, Default)]
pub(super) struct FlowHasher(RandomState);

impl FlowHasher {
    /// By the user we vouch for; otherwise by the token, which only the peer can tell whose it is; otherwise by the address.
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

/// The requests that wait for one peer.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    length_max: usize,
    user_max: usize,
    /// What each user has waiting; none of these is empty.
    queues_by_flow: HashMap<Flow, VecDeque<(Ticket, T)>>,
    /// The users that have something waiting, the next one in front.
    flow_order: VecDeque<Flow>,
    length: usize,
    last_ticket: u64,
}

/// By which a waiting request can be found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    flow: Flow,
    number: u64,
}

/// A request that waits from now on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Enqueued<T> {
    pub(super) ticket: Ticket,
    /// One that had to go for it.
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

    /// Lets a request wait behind those of its user. A new user's turn comes after everybody's who waits. Where as many wait as
    /// may, the last of the user who has the most goes, if that user has more than this one has then.
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

    /// Who is next.
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

    /// Takes one out that does not wait any longer, if it is still there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let queue = self.queues_by_flow.get(&ticket.flow)?;
        let index = queue.iter().position(|(other, _)| *other == ticket)?;
        self.remove_at(ticket.flow, index)
    }

    /// Takes out the last of the user who has the most, if that is more than `than`.
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
