//! Which peer is tried first: a plain function over what was observed.

use smallvec::SmallVec;

use super::Effect;

/// How a peer has fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Whether it answers.
    pub standing: Standing,
    /// Short requests that it has not answered to the end.
    pub in_flight: usize,
    /// Open watches and the like.
    pub streams: usize,
}

/// Whether a peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The last request was answered.
    Well,
    /// It failed, and enough time has passed for a request to try it again.
    Due,
    /// It failed lately.
    Resting,
}

/// All of them, the one to try first in front: who answers before who failed, then who is preferred, then who has less to do,
/// then by turns.
///
/// A peer that failed is tried again by a read, never by a write: a read can still go elsewhere.
pub(super) fn choose(
    observed: &[Observed],
    effect: Effect,
    preferred: Option<usize>,
    turn: usize,
) -> SmallVec<[usize; 4]> {
    let count = observed.len();
    let mut order: SmallVec<[usize; 4]> = (0..count).collect();
    order.sort_by_key(|&index| {
        let Observed { standing, in_flight, streams } = observed[index];
        (rank(standing, effect), preferred != Some(index), in_flight, streams, (index + turn) % count)
    });
    order
}

fn rank(standing: Standing, effect: Effect) -> u8 {
    match (standing, effect) {
        (Standing::Well, _) | (Standing::Due, Effect::Reads) => 0,
        (Standing::Due, Effect::Writes) => 1,
        (Standing::Resting, _) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Observed = Observed { standing: Standing::Well, in_flight: 0, streams: 0 };

    #[track_caller]
    fn check(observed: &[Observed], effect: Effect, turn: usize, expected: &[usize]) {
        assert_eq!(choose(observed, effect, None, turn)[..], *expected, "{observed:?} {effect:?} turn {turn}");
    }

    #[test]
    fn equals_take_turns() {
        check(&[IDLE; 3], Effect::Reads, 0, &[0, 1, 2]);
        check(&[IDLE; 3], Effect::Reads, 1, &[2, 0, 1]);
        check(&[IDLE; 3], Effect::Writes, 2, &[1, 2, 0]);
    }

    #[test]
    fn less_to_do_comes_first_and_streams_decide_between_equals() {
        let busy = Observed { in_flight: 2, ..IDLE };
        let streaming = Observed { streams: 1, ..IDLE };
        check(&[busy, streaming, IDLE], Effect::Reads, 0, &[2, 1, 0]);
        check(&[busy, Observed { in_flight: 1, streams: 9, ..IDLE }], Effect::Reads, 0, &[1, 0]);
    }

    #[test]
    fn who_is_preferred_comes_first_unless_it_failed() {
        let busy = Observed { in_flight: 2, ..IDLE };
        let resting = Observed { standing: Standing::Resting, ..IDLE };
        assert_eq!(choose(&[IDLE, busy], Effect::Reads, Some(1), 0)[..], [1, 0]);
        assert_eq!(choose(&[busy, resting], Effect::Reads, Some(1), 0)[..], [0, 1]);
    }

    #[test]
    fn who_failed_comes_last_however_idle() {
        let resting = Observed { standing: Standing::Resting, ..IDLE };
        let busy = Observed { in_flight: 100, streams: 100, ..IDLE };
        check(&[resting, busy], Effect::Reads, 0, &[1, 0]);
        check(&[resting, resting], Effect::Reads, 0, &[0, 1]);
    }

    #[test]
    fn only_reads_try_who_failed_again() {
        let due = Observed { standing: Standing::Due, ..IDLE };
        let resting = Observed { standing: Standing::Resting, ..IDLE };
        let busy = Observed { in_flight: 1, ..IDLE };
        check(&[due, busy, resting], Effect::Reads, 0, &[0, 1, 2]);
        check(&[due, busy, resting], Effect::Writes, 0, &[1, 0, 2]);
    }
}
