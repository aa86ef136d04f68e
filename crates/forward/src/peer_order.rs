//! The order in which candidates are tried: a pure function of what was observed.

use smallvec::SmallVec;

use super::Effect;

/// What was observed of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Whether the last request was answered.
    pub health: PeerHealth,
    /// Short requests in flight.
    pub in_flight: usize,
    /// Long-running requests in flight.
    pub streams: usize,
}

/// Whether the last request to a peer was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerHealth {
    /// It was, or none was sent.
    Healthy,
    /// It failed, and the backoff is over: a read may try the peer first.
    RetryDue,
    /// It failed, and the backoff runs: the peer is tried last.
    BackingOff,
}

/// Indices of all peers in the order of attempts: healthy before failed ones, then the preferred one, then by load, then round
/// robin.
///
/// Only reads probe a failed peer: a read can still go to the next one.
pub(super) fn order_peers(
    statuses: &[PeerStatus],
    effect: Effect,
    preferred: Option<usize>,
    turn: usize,
) -> SmallVec<[usize; 4]> {
    let count = statuses.len();
    let mut order: SmallVec<[usize; 4]> = (0..count).collect();
    order.sort_by_key(|&index| {
        let PeerStatus { health, in_flight, streams } = statuses[index];
        (health_rank(health, effect), preferred != Some(index), in_flight, streams, (index + turn) % count)
    });
    order
}

fn health_rank(health: PeerHealth, effect: Effect) -> u8 {
    match (health, effect) {
        (PeerHealth::Healthy, _) | (PeerHealth::RetryDue, Effect::Reads) => 0,
        (PeerHealth::RetryDue, Effect::Writes) => 1,
        (PeerHealth::BackingOff, _) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: PeerStatus = PeerStatus { health: PeerHealth::Healthy, in_flight: 0, streams: 0 };

    #[track_caller]
    fn check(statuses: &[PeerStatus], effect: Effect, turn: usize, expected: &[usize]) {
        assert_eq!(order_peers(statuses, effect, None, turn)[..], *expected, "{statuses:?} {effect:?} turn {turn}");
    }

    #[test]
    fn equal_peers_are_ordered_round_robin() {
        check(&[IDLE; 3], Effect::Reads, 0, &[0, 1, 2]);
        check(&[IDLE; 3], Effect::Reads, 1, &[2, 0, 1]);
        check(&[IDLE; 3], Effect::Writes, 2, &[1, 2, 0]);
    }

    #[test]
    fn less_loaded_peer_comes_first_then_fewer_streams() {
        let busy = PeerStatus { in_flight: 2, ..IDLE };
        let streaming = PeerStatus { streams: 1, ..IDLE };
        check(&[busy, streaming, IDLE], Effect::Reads, 0, &[2, 1, 0]);
        check(&[busy, PeerStatus { in_flight: 1, streams: 9, ..IDLE }], Effect::Reads, 0, &[1, 0]);
    }

    #[test]
    fn preferred_peer_comes_first_unless_it_failed() {
        let busy = PeerStatus { in_flight: 2, ..IDLE };
        let resting = PeerStatus { health: PeerHealth::BackingOff, ..IDLE };
        assert_eq!(order_peers(&[IDLE, busy], Effect::Reads, Some(1), 0)[..], [1, 0]);
        assert_eq!(order_peers(&[busy, resting], Effect::Reads, Some(1), 0)[..], [0, 1]);
    }

    #[test]
    fn failed_peer_comes_last_even_if_idle() {
        let resting = PeerStatus { health: PeerHealth::BackingOff, ..IDLE };
        let busy = PeerStatus { in_flight: 100, streams: 100, ..IDLE };
        check(&[resting, busy], Effect::Reads, 0, &[1, 0]);
        check(&[resting, resting], Effect::Reads, 0, &[0, 1]);
    }

    #[test]
    fn only_reads_retry_failed_peer_when_due() {
        let due = PeerStatus { health: PeerHealth::RetryDue, ..IDLE };
        let resting = PeerStatus { health: PeerHealth::BackingOff, ..IDLE };
        let busy = PeerStatus { in_flight: 1, ..IDLE };
        check(&[due, busy, resting], Effect::Reads, 0, &[0, 1, 2]);
        check(&[due, busy, resting], Effect::Writes, 0, &[1, 0, 2]);
    }
}
