use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use http::{HeaderName, HeaderValue};

use super::*;

const LARGE_QUEUE: QueueLimits = QueueLimits { length_max: 1_000, user_max: 1_000, wait_max: Duration::ZERO };

fn flow(user: char) -> Flow {
    Flow(u64::from(u32::from(user)))
}

/// Plays a script: `a1` is a request of the user a, `-a1` one that stops waiting, `.` is a free seat. Returns which requests
/// got seats, which were rejected or evicted, and which wait at the end.
fn run_script(limits: QueueLimits, script: &str) -> String {
    let mut queue = FairQueue::new(limits);
    let mut tickets: BTreeMap<&str, Ticket> = BTreeMap::new();
    let mut output = Vec::new();
    for word in script.split_whitespace() {
        if word == "." {
            output.push(queue.pop().unwrap_or("none").to_owned());
        } else if let Some(name) = word.strip_prefix('-') {
            assert_eq!(queue.remove(tickets[name]), Some(name));
        } else {
            match queue.push(flow(word.chars().next().unwrap()), word) {
                Ok(Enqueued { ticket, evicted }) => {
                    tickets.insert(word, ticket);
                    output.extend(evicted.map(|other| format!("{word} for {other}")));
                }
                Err(rejection) => output.push(format!("{word}: {}", rejection.reason())),
            }
        }
    }
    let count = queue.len();
    let rest: Vec<&str> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!((rest.len(), queue.len(), queue.queues_by_flow.len(), queue.flow_order.len()), (count, 0, 0, 0));
    format!("{} | {}", output.join(", "), rest.join(" "))
}

#[track_caller]
fn check(limits: QueueLimits, script: &str, expected: &Expect) {
    expected.assert_eq(&run_script(limits, script));
}

#[test]
fn queue_serves_one_user_in_order() {
    check(LARGE_QUEUE, "a1 a2 a3 . . . .", &expect!["a1, a2, a3, none | "]);
}

#[test]
fn queue_alternates_between_users() {
    check(LARGE_QUEUE, "a1 a2 a3 a4 b1 c1 b2 . . . . . . .", &expect!["a1, b1, c1, a2, b2, a3, a4 | "]);
    // A later user waits for one turn of each other user, not for all their requests.
    check(LARGE_QUEUE, "a1 a2 a3 . b1 . . .", &expect!["a1, a2, b1, a3 | "]);
    // A user that returns at once is not first.
    check(LARGE_QUEUE, "a1 b1 b2 . a2 . . .", &expect!["a1, b1, a2, b2 | "]);
}

#[test]
fn removed_ticket_is_not_served() {
    check(LARGE_QUEUE, "a1 a2 b1 -a1 . . .", &expect!["a2, b1, none | "]);
    check(LARGE_QUEUE, "a1 b1 -a1 . .", &expect!["b1, none | "]);
    check(LARGE_QUEUE, "a1 -a1 a2 b1", &expect![" | a2 b1"]);
}

#[test]
fn push_rejects_beyond_user_limit() {
    let limits = QueueLimits { user_max: 2, ..LARGE_QUEUE };
    check(limits, "a1 a2 a3 b1 . a4", &expect!["a3: user_full, a1 | b1 a2 a4"]);
}

#[test]
fn full_queue_evicts_from_user_with_most_requests() {
    let limits = QueueLimits { length_max: 3, ..LARGE_QUEUE };
    check(limits, "a1 a2 a3 a4", &expect!["a4: full | a1 a2 a3"]);
    check(limits, "a1 a2 a3 b1", &expect!["b1 for a3 | a1 b1 a2"]);
    // The user has as many as every other: nothing is evicted.
    check(limits, "a1 a2 b1 b2", &expect!["b2: full | a1 b1 a2"]);
    check(limits, "a1 b1 c1 d1", &expect!["d1: full | a1 b1 c1"]);
}

#[test]
fn push_into_disabled_queue_is_rejected() {
    check(QueueLimits::NONE, "a1 .", &expect!["a1: full, none | "]);
}

/// Random arrivals, departures and seats, checked against an independent statement of the rules.
#[test]
fn waiting_user_is_overtaken_at_most_once_by_each_other() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..200 {
        let limits = QueueLimits { length_max: random.usize(1..30), user_max: random.usize(1..10), ..LARGE_QUEUE };
        let mut queue = FairQueue::new(limits);
        let mut waiting: BTreeMap<u64, VecDeque<(u64, Ticket)>> = BTreeMap::new();
        // For each waiting user: how often each other user was served since this one began to wait or was last served.
        let mut passed: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for number in 0..300 {
            let user = random.u64(..6);
            match random.u8(..10) {
                0..6 => {
                    let Ok(joined) = queue.push(Flow(user), (user, number)) else { continue };
                    let line = waiting.entry(user).or_default();
                    line.push_back((number, joined.ticket));
                    passed.entry(user).or_default();
                    if let Some((other, pushed)) = joined.evicted {
                        let line = waiting.get_mut(&other).unwrap();
                        assert_eq!(line.pop_back().unwrap().0, pushed);
                    }
                }
                6..9 => {
                    let Some((served, number)) = queue.pop() else { continue };
                    assert_eq!(waiting.get_mut(&served).unwrap().pop_front().unwrap().0, number, "in order");
                    passed.insert(served, BTreeMap::new());
                    for (_, by) in passed.iter_mut().filter(|(user, _)| **user != served) {
                        *by.entry(served).or_default() += 1;
                    }
                }
                _ => {
                    let Some((number, ticket)) = waiting.get_mut(&user).and_then(VecDeque::pop_back) else { continue };
                    assert_eq!(queue.remove(ticket), Some((user, number)));
                    assert_eq!(queue.remove(ticket), None);
                }
            }
            waiting.retain(|_, line| !line.is_empty());
            passed.retain(|user, _| waiting.contains_key(user));
            assert!(passed.values().flat_map(BTreeMap::values).all(|times| *times <= 1), "{passed:?}");
            assert!(waiting.values().all(|line| line.len() <= limits.user_max));
            assert_eq!(queue.len(), waiting.values().map(VecDeque::len).sum::<usize>());
            assert!(queue.len() <= limits.length_max);
        }
    }
}

#[test]
fn flow_is_by_user_then_token_then_client_ip() {
    let flows = FlowHasher::default();
    let of = |user: Option<&str>, line: Option<(&'static str, &'static str)>, client: u8| {
        let headers: HeaderMap = line
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let user = user.map_or_else(ForwardedUser::with_client_credentials, |name| {
            ForwardedUser::new(name, "", ["g"], []).unwrap()
        });
        flows.flow_for(&user, &headers, IpAddr::from([192, 0, 2, client]))
    };
    let token = |token| Some(("authorization", token));
    assert_eq!(of(Some("jane"), None, 1), of(Some("jane"), token("Bearer a"), 2));
    assert_ne!(of(Some("jane"), None, 1), of(Some("joe"), None, 1));
    assert_eq!(of(None, token("Bearer a"), 1), of(None, token("Bearer a"), 2));
    assert_ne!(of(None, token("Bearer a"), 1), of(None, token("Bearer b"), 1));
    assert_ne!(of(None, token("jane"), 1), of(Some("jane"), None, 1));
    let protocol = Some(("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.YQ"));
    assert_eq!(of(None, protocol, 1), of(None, protocol, 2));
    assert_ne!(of(None, protocol, 1), of(None, None, 1));
    assert_ne!(of(None, None, 1), of(None, None, 2));
}
