//! Candidates over storage in memory, in paused time.

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tasks::Tasks;

use super::*;
use crate::ports::Pending;

/// Storage with one lease. Clones share it.
#[derive(Clone, Default)]
struct Memory {
    lease: Arc<Mutex<Option<Lease>>>,
    mood: Arc<Mutex<Mood>>,
}

#[derive(Clone, Copy, Default)]
enum Mood {
    #[default]
    Well,
    Failing,
    Hanging,
    /// Writes happen and their answers are lost.
    Mumbling,
}

impl Memory {
    /// The same storage, with a mood of its own.
    fn seen_by_another(&self) -> Self {
        Self { mood: Arc::default(), ..self.clone() }
    }

    fn set_mood(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn spec(&self) -> api::objects::LeaseSpec {
        self.lease.lock().as_ref().expect("somebody stood").spec.clone()
    }

    fn answer<'a, T: Send + 'a>(&'a self, act: impl FnOnce() -> Result<T, PortError> + Send + 'a) -> Pending<'a, T> {
        let failed = || PortError::Unavailable { reason: "on purpose".to_owned() };
        async move {
            let mood = *self.mood.lock();
            match mood {
                Mood::Well => act(),
                Mood::Failing => Err(failed()),
                Mood::Hanging => std::future::pending().await,
                Mood::Mumbling => act().and_then(|_| Err(failed())),
            }
        }
        .boxed()
    }

    fn put(current: &mut Option<Lease>, mut lease: Lease) -> Lease {
        let last: u64 = current.as_ref().map_or(0, |lease| lease.metadata.resource_version.parse().unwrap());
        lease.metadata.resource_version = (last + 1).to_string();
        current.insert(lease).clone()
    }
}

impl Leases for Memory {
    fn get(&self, _namespace: &str, _name: &str) -> Pending<'_, Option<Lease>> {
        self.answer(|| Ok(self.lease.lock().clone()))
    }

    fn create(&self, lease: Lease) -> Pending<'_, Lease> {
        self.answer(move || {
            let mut current = self.lease.lock();
            if current.is_some() { Err(PortError::Conflict) } else { Ok(Self::put(&mut current, lease)) }
        })
    }

    fn update(&self, lease: Lease) -> Pending<'_, Lease> {
        self.answer(move || {
            let mut current = self.lease.lock();
            let seen = current.as_ref().ok_or(PortError::NotFound)?;
            if seen.metadata.resource_version != lease.metadata.resource_version {
                return Err(PortError::Conflict);
            }
            Ok(Self::put(&mut current, lease))
        })
    }
}

/// Who leads, as the leaders themselves say; more than one at a time would show.
type Leaders = Arc<Mutex<Vec<&'static str>>>;

struct Candidate {
    tasks: Tasks,
    storage: Memory,
}

fn stand(holder: &'static str, storage: &Memory, leaders: &Leaders) -> Candidate {
    let storage = storage.seen_by_another();
    let config = Config {
        namespace: "kube-system".to_owned(),
        name: "chores".to_owned(),
        holder: holder.to_owned(),
        pace: Pace::default(),
        clock: || Timestamp::UNIX_EPOCH,
        seed: holder.bytes().map(u64::from).sum(),
    };
    let (elector, leaders) = (Elector::new(config, Arc::new(storage.clone())), leaders.clone());
    let tasks = Tasks::new();
    tasks.spawn("elector", |stop| {
        elector.run(stop, move |term| {
            let leading = Leading { holder, leaders: leaders.clone() };
            leading.leaders.lock().push(holder);
            async move {
                assert!(term.is_current());
                let _leading = leading;
                std::future::pending().await
            }
        })
    });
    Candidate { tasks, storage }
}

/// Says that it leads until it is dropped.
struct Leading {
    holder: &'static str,
    leaders: Leaders,
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.leaders.lock().retain(|leader| *leader != self.holder);
    }
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn who(leaders: &Leaders) -> Vec<&'static str> {
    leaders.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn of_many_one_leads_and_goes_on_leading() {
    let (storage, leaders) = (Memory::default(), Leaders::default());
    let _candidates = ["a", "b", "c"].map(|holder| stand(holder, &storage, &leaders));
    wait(1).await;
    let first = who(&leaders);
    assert_eq!(first.len(), 1);
    for _ in 0..100 {
        wait(1).await;
        assert_eq!(who(&leaders), first);
    }
    assert_eq!(storage.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_lets_the_next_one_begin_without_waiting_for_the_lease() {
    let (storage, leaders) = (Memory::default(), Leaders::default());
    let a = stand("a", &storage, &leaders);
    wait(1).await;
    let _b = stand("b", &storage, &leaders);
    wait(10).await;
    assert_eq!(who(&leaders), ["a"]);
    a.tasks.stop(Duration::from_secs(1)).await.unwrap();
    assert_eq!(who(&leaders), [""; 0]);
    assert_eq!(storage.spec().holder_identity.as_deref(), Some(""));
    wait(5).await;
    assert_eq!(who(&leaders), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_the_next_one_begins() {
    for mood in [Mood::Failing, Mood::Hanging] {
        let (storage, leaders) = (Memory::default(), Leaders::default());
        let a = stand("a", &storage, &leaders);
        wait(1).await;
        let _b = stand("b", &storage, &leaders);
        wait(3).await;
        a.storage.set_mood(mood);
        let mut seen = Vec::new();
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen.push(who(&leaders));
        }
        seen.dedup();
        assert_eq!(seen, [vec!["a"], vec![], vec!["b"]]);
        assert_eq!(storage.spec().lease_transitions, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_costs_nothing() {
    let (storage, leaders) = (Memory::default(), Leaders::default());
    let a = stand("a", &storage, &leaders);
    let _b = stand("b", &storage, &leaders);
    wait(1).await;
    assert_eq!(who(&leaders), ["a"]);
    a.storage.set_mood(Mood::Mumbling);
    wait(5).await;
    a.storage.set_mood(Mood::Well);
    wait(60).await;
    assert_eq!(who(&leaders), ["a"]);
    assert_eq!(storage.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_away_ends_the_term_at_the_next_renewal() {
    let (storage, leaders) = (Memory::default(), Leaders::default());
    let _a = stand("a", &storage, &leaders);
    wait(1).await;
    let mut lease = storage.lease.lock().clone().unwrap();
    lease.spec.holder_identity = Some("b".to_owned());
    storage.update(lease).await.unwrap();
    wait(3).await;
    assert_eq!(who(&leaders), [""; 0]);
    assert_eq!(storage.spec().holder_identity.as_deref(), Some("b"), "not ours to release");
    wait(20).await;
    assert_eq!(who(&leaders), ["a"], "the other one never renewed it");
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_under_a_leader_is_made_again() {
    let (storage, leaders) = (Memory::default(), Leaders::default());
    let _a = stand("a", &storage, &leaders);
    wait(1).await;
    *storage.lease.lock() = None;
    wait(5).await;
    assert_eq!(who(&leaders), ["a"]);
    assert_eq!(storage.spec().holder_identity.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_term_is_over_by_the_leaders_own_clock() {
    let start = Instant::now();
    let (_renewals, renewed) = watch::channel(start);
    let term = Term { renewed, renew_deadline: Duration::from_secs(10) };
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(term.is_current());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!term.is_current());
}
