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

use super::identity::Identity;

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
pub enum Refusal {
    /// As many of its user wait as may.
    #[error("too many requests of this user wait already")]
    UserFull,
    /// As many wait as may, and its user has no fewer than the others.
    #[error("too many requests wait already")]
    Full,
    /// It was the last of the user who had the most, and made room for one of a user who had fewer.
    #[error("it waited behind others of its user, and made room for a user who has fewer")]
    PushedOut,
    /// It waited for as long as it may.
    #[error("it waited for as long as it may")]
    TimedOut,
}

impl Refusal {
    /// A word for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::UserFull => "user_full",
            Self::Full => "full",
            Self::PushedOut => "pushed_out",
            Self::TimedOut => "timeout",
        }
    }
}

/// A user among those who wait. Two users with the same number would share their turns, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow(u64);

/// Gives users their numbers, which nobody can choose or foresee, and from which nobody learns a token.
#[derive(Debug, Default)]
pub(super) struct Flows(RandomState);

impl Flows {
    /// By the user we vouch for; otherwise by the token, which only the peer can tell whose it is; otherwise by the address.
    pub(super) fn of(&self, user: &Identity, headers: &HeaderMap, client: IpAddr) -> Flow {
        if let Some(name) = user.name() {
            return Flow(self.0.hash_one(("user", name)));
        }
        let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
        let mut offered = protocols.flat_map(|line| line.split(',')).map(str::trim);
        let in_protocol = || offered.find(|protocol| protocol.starts_with(BEARER_PROTOCOL_PREFIX)).map(str::as_bytes);
        let token = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).or_else(in_protocol);
        Flow(match token {
            Some(token) => self.0.hash_one(("token", token)),
            None => self.0.hash_one(("address", client)),
        })
    }
}

/// The requests that wait for one peer.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    length_max: usize,
    user_max: usize,
    /// What each user has waiting; none of these is empty.
    lines: HashMap<Flow, VecDeque<(Ticket, T)>>,
    /// The users that have something waiting, the next one in front.
    turns: VecDeque<Flow>,
    length: usize,
    tickets: u64,
}

/// By which a waiting request can be found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    flow: Flow,
    number: u64,
}

/// A request that waits from now on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Joined<T> {
    pub(super) ticket: Ticket,
    /// One that had to go for it.
    pub(super) pushed_out: Option<T>,
}

impl<T> FairQueue<T> {
    pub(super) fn new(limits: QueueLimits) -> Self {
        let QueueLimits { length_max, user_max, .. } = limits;
        Self { length_max, user_max, lines: HashMap::new(), turns: VecDeque::new(), length: 0, tickets: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Lets a request wait behind those of its user. A new user's turn comes after everybody's who waits. Where as many wait as
    /// may, the last of the user who has the most goes, if that user has more than this one has then.
    pub(super) fn push(&mut self, flow: Flow, waiting: T) -> Result<Joined<T>, Refusal> {
        let own = self.length_of(flow);
        if own >= self.user_max {
            return Err(if self.user_max == 0 { Refusal::Full } else { Refusal::UserFull });
        }
        let pushed_out = if self.length >= self.length_max { Some(self.push_out(own + 1)?) } else { None };
        self.tickets += 1;
        let ticket = Ticket { flow, number: self.tickets };
        let line = self.lines.entry(flow).or_default();
        if line.is_empty() {
            self.turns.push_back(flow);
        }
        line.push_back((ticket, waiting));
        self.length += 1;
        Ok(Joined { ticket, pushed_out })
    }

    /// Who is next.
    pub(super) fn pop(&mut self) -> Option<T> {
        let flow = self.turns.pop_front()?;
        let line = self.lines.get_mut(&flow)?;
        let (_, waiting) = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&flow);
        } else {
            self.turns.push_back(flow);
        }
        self.length -= 1;
        Some(waiting)
    }

    /// Takes one out that does not wait any longer, if it is still there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let line = self.lines.get(&ticket.flow)?;
        let index = line.iter().position(|(other, _)| *other == ticket)?;
        self.take(ticket.flow, index)
    }

    /// Takes out the last of the user who has the most, if that is more than `than`.
    fn push_out(&mut self, than: usize) -> Result<T, Refusal> {
        let longest = self.turns.iter().copied().max_by_key(|flow| self.length_of(*flow));
        let longest = longest.map(|flow| (flow, self.length_of(flow))).filter(|(_, length)| *length > than);
        longest.and_then(|(flow, length)| self.take(flow, length - 1)).ok_or(Refusal::Full)
    }

    fn take(&mut self, flow: Flow, index: usize) -> Option<T> {
        let line = self.lines.get_mut(&flow)?;
        let (_, taken) = line.remove(index)?;
        if line.is_empty() {
            self.lines.remove(&flow);
            self.turns.retain(|other| *other != flow);
        }
        self.length -= 1;
        Some(taken)
    }

    fn length_of(&self, flow: Flow) -> usize {
        self.lines.get(&flow).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests;
