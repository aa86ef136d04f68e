//! Candidates on in-memory storage with a paused clock.

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tasks::Tasks;

use super::*;
use crate::ports::LeaseFuture;

/// Storage with one lease. Clones share it.
#[derive(Clone, Default)]
struct MemoryLeaseStorage {
    lease: Arc<Mutex<Option<Lease>>>,
    behavior: Arc<Mutex<StorageBehavior>>,
}

#[derive(Clone, Copy, Default)]
enum StorageBehavior {
    #[default]
    Healthy,
    Failing,
    Hanging,
    /// Writes succeed but their responses are lost.
    LosingResponses,
}

impl MemoryLeaseStorage {
    /// Shares the lease, with a behavior of its own.
    fn with_own_behavior(&self) -> Self {
        Self { behavior: Arc::default(), ..self.clone() }
    }

    fn set_behavior(&self, mood: StorageBehavior) {
        *self.behavior.lock() = mood;
    }

    fn spec(&self) -> api::objects::LeaseSpec {
        self.lease.lock().as_ref().expect("a candidate created the lease").spec.clone()
    }

    fn respond<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce() -> Result<T, PortError> + Send + 'a,
    ) -> LeaseFuture<'a, T> {
        let failed = || PortError::Unavailable { reason: "on purpose".to_owned() };
        async move {
            let mood = *self.behavior.lock();
            match mood {
                StorageBehavior::Healthy => act(),
                StorageBehavior::Failing => Err(failed()),
                StorageBehavior::Hanging => std::future::pending().await,
                StorageBehavior::LosingResponses => act().and_then(|_| Err(failed())),
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

impl LeaseClient for MemoryLeaseStorage {
    fn get(&self, _namespace: &str, _name: &str) -> LeaseFuture<'_, Option<Lease>> {
        self.respond(|| Ok(self.lease.lock().clone()))
    }

    fn create(&self, lease: Lease) -> LeaseFuture<'_, Lease> {
        self.respond(move || {
            let mut current = self.lease.lock();
            if current.is_some() { Err(PortError::Conflict) } else { Ok(Self::put(&mut current, lease)) }
        })
    }

    fn update(&self, lease: Lease) -> LeaseFuture<'_, Lease> {
        self.respond(move || {
            let mut current = self.lease.lock();
            let seen = current.as_ref().ok_or(PortError::NotFound)?;
            if seen.metadata.resource_version != lease.metadata.resource_version {
                return Err(PortError::Conflict);
            }
            Ok(Self::put(&mut current, lease))
        })
    }
}

/// The candidates that currently run the leader's work; more than one would be a bug.
type Leaders = Arc<Mutex<Vec<&'static str>>>;

struct TestCandidate {
    tasks: Tasks,
    storage: MemoryLeaseStorage,
}

fn start_candidate(holder: &'static str, storage: &MemoryLeaseStorage, leaders: &Leaders) -> TestCandidate {
    let storage = storage.with_own_behavior();
    let config = Config {
        namespace: "kube-system".to_owned(),
        name: "chores".to_owned(),
        holder: holder.to_owned(),
        timings: ElectionTimings::default(),
        clock: || Timestamp::UNIX_EPOCH,
        seed: holder.bytes().map(u64::from).sum(),
    };
    let (elector, leaders) = (Elector::new(config, Arc::new(storage.clone())), leaders.clone());
    let tasks = Tasks::new();
    tasks.spawn("elector", |stop| {
        elector.run(stop, move |term| {
            let leading = LeadingGuard { holder, leaders: leaders.clone() };
            leading.leaders.lock().push(holder);
            async move {
                assert!(term.is_current());
                let _leading = leading;
                std::future::pending().await
            }
        })
    });
    TestCandidate { tasks, storage }
}

/// Registers as leader until dropped.
struct LeadingGuard {
    holder: &'static str,
    leaders: Leaders,
}

impl Drop for LeadingGuard {
    fn drop(&mut self) {
        self.leaders.lock().retain(|leader| *leader != self.holder);
    }
}

async fn sleep_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn current_leaders(leaders: &Leaders) -> Vec<&'static str> {
    leaders.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn one_of_many_candidates_leads_and_keeps_leading() {
    let (storage, leaders) = (MemoryLeaseStorage::default(), Leaders::default());
    let _candidates = ["a", "b", "c"].map(|holder| start_candidate(holder, &storage, &leaders));
    sleep_seconds(1).await;
    let first = current_leaders(&leaders);
    assert_eq!(first.len(), 1);
    for _ in 0..100 {
        sleep_seconds(1).await;
        assert_eq!(current_leaders(&leaders), first);
    }
    assert_eq!(storage.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn stopping_leader_releases_lease_for_immediate_takeover() {
    let (storage, leaders) = (MemoryLeaseStorage::default(), Leaders::default());
    let a = start_candidate("a", &storage, &leaders);
    sleep_seconds(1).await;
    let _b = start_candidate("b", &storage, &leaders);
    sleep_seconds(10).await;
    assert_eq!(current_leaders(&leaders), ["a"]);
    a.tasks.stop(Duration::from_secs(1)).await.unwrap();
    assert_eq!(current_leaders(&leaders), [""; 0]);
    assert_eq!(storage.spec().holder_identity.as_deref(), Some(""));
    sleep_seconds(5).await;
    assert_eq!(current_leaders(&leaders), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_next_one_starts() {
    for mood in [StorageBehavior::Failing, StorageBehavior::Hanging] {
        let (storage, leaders) = (MemoryLeaseStorage::default(), Leaders::default());
        let a = start_candidate("a", &storage, &leaders);
        sleep_seconds(1).await;
        let _b = start_candidate("b", &storage, &leaders);
        sleep_seconds(3).await;
        a.storage.set_behavior(mood);
        let mut seen = Vec::new();
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen.push(current_leaders(&leaders));
        }
        seen.dedup();
        assert_eq!(seen, [vec!["a"], vec![], vec!["b"]]);
        assert_eq!(storage.spec().lease_transitions, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn leader_keeps_lease_when_renewal_response_is_lost() {
    let (storage, leaders) = (MemoryLeaseStorage::default(), Leaders::default());
    let a = start_candidate("a", &storage, &leaders);
    let _b = start_candidate("b", &storage, &leaders);
    sleep_seconds(1).await;
    assert_eq!(current_leaders(&leaders), ["a"]);
    a.storage.set_behavior(StorageBehavior::LosingResponses);
    sleep_seconds(5).await;
    a.storage.set_behavior(StorageBehavior::Healthy);
    sleep_seconds(60).await;
    assert_eq!(current_leaders(&leaders), ["a"]);
    assert_eq!(storage.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn leader_stops_when_lease_has_another_holder() {
    let (storage, leaders) = (MemoryLeaseStorage::default(), Leaders::default());
    let _a = start_candidate("a", &storage, &leaders);
    sleep_seconds(1).await;
    let mut lease = storage.lease.lock().clone().unwrap();
    lease.spec.holder_identity = Some("b".to_owned());
    storage.update(lease).await.unwrap();
    sleep_seconds(3).await;
    assert_eq!(current_leaders(&leaders), [""; 0]);
    assert_eq!(storage.spec().holder_identity.as_deref(), Some("b"), "another holder's lease is not released");
    sleep_seconds(20).await;
    assert_eq!(current_leaders(&leaders), ["a"], "the other holder never renewed");
}

#[tokio::test(start_paused = true)]
async fn leader_recreates_deleted_lease() {
    let (storage, leaders) = (MemoryLeaseStorage::default(), Leaders::default());
    let _a = start_candidate("a", &storage, &leaders);
    sleep_seconds(1).await;
    *storage.lease.lock() = None;
    sleep_seconds(5).await;
    assert_eq!(current_leaders(&leaders), ["a"]);
    assert_eq!(storage.spec().holder_identity.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn term_ends_at_renew_deadline_on_local_clock() {
    let start = Instant::now();
    let (_renewals, last_renewal) = watch::channel(start);
    let term = Term { last_renewal, renew_deadline: Duration::from_secs(10) };
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(term.is_current());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!term.is_current());
}
