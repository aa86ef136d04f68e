use expect_test::expect;

use super::*;
use crate::documents::Tenure;
use crate::identity::IdentityLease;
use crate::testing::memory::{Memory, Mood};
use crate::testing::{document, server};

/// A server with its storage, and the task that follows it.
struct Rig {
    memory: Memory,
    config: PresenceConfig,
    tasks: Tasks,
    local: watch::Sender<Arc<Groups>>,
    own: watch::Sender<OwnDocument>,
    milestones: Milestones,
}

impl Rig {
    fn new() -> Self {
        let tasks = Tasks::new();
        Self {
            memory: Memory::new(&Tasks::new()),
            config: config("a", 1, 6443),
            tasks,
            local: watch::Sender::new(document("v1 pods:get")),
            own: watch::Sender::new(OwnDocument::Absent),
            milestones: Milestones::new(),
        }
    }

    fn join(&self) -> Presence {
        let ports = PresencePorts {
            leases: Arc::new(self.memory.clone()),
            records: Arc::new(self.memory.clone()),
            documents: Arc::new(self.memory.clone()),
        };
        let config = Arc::new(self.config.clone());
        Presence::start(&config, &ports, self.local.subscribe(), self.own.subscribe(), &self.milestones, &self.tasks)
    }

    async fn claim(&self) -> Result<(), TwinError> {
        claim(&self.config, &self.memory, &self.memory).await
    }

    /// A lease, and a record if there is an address, as another process with our name has them.
    async fn leave_behind(&self, process: u128, port: Option<u16>) {
        let other = config("a", process, port.unwrap_or(1));
        self.memory.put_lease(other.lease_form().new_lease(other.now()));
        if port.is_some() {
            let record = other.address.to_record(&other.server, 1);
            Records::put(&self.memory, &other.server, record, other.pace.record_ttl).await.unwrap();
        }
        self.memory.take_log();
    }

    fn holder(&self) -> Option<String> {
        self.memory.lease(&server("a")).and_then(|lease| lease.spec.holder_identity.clone())
    }
}

fn config(name: &str, process: u128, port: u16) -> PresenceConfig {
    let server = server(name);
    PresenceConfig {
        holder: HolderIdentity::new(&server, process),
        server,
        hostname: name.to_owned(),
        address: Address::new("10.0.0.1", port).unwrap(),
        extent: Extent::Full,
        unbuilt: Vec::new(),
        publishes: true,
        linger: Duration::from_secs(60),
        pace: Pace::default(),
        clock: || Timestamp::from_second(1_000_000_000).unwrap(),
        seed: 7,
    }
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn joining_publishes_the_document_then_the_record_then_the_lease() {
    let rig = Rig::new();
    let presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    assert_eq!(rig.memory.take_log(), "put-document a, put-record a, create-lease a");
    assert_eq!(rig.holder(), Some(rig.config.holder.to_string()));
    assert_eq!(rig.milestones.endpoint_record.check(), Ok(()));
    assert!(presence.renewed().borrow().is_some());
}

#[tokio::test(start_paused = true)]
async fn lease_and_record_are_kept_up() {
    let rig = Rig::new();
    let presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    rig.memory.take_log();
    let first = *presence.renewed().borrow();
    wait(35).await;
    let log = rig.memory.take_log();
    let count = |what: &str| log.split(", ").filter(|entry| *entry == what).count();
    // A lease renewal every 10 s and up to 0.4 s more; a record every 10 s.
    assert_eq!((count("put-record a"), count("renew-lease a")), (3, 3), "{log}");
    assert!(*presence.renewed().borrow() > first);
}

#[tokio::test(start_paused = true)]
async fn leaving_releases_the_lease_then_the_record_and_leaves_the_document_to_linger() {
    let rig = Rig::new();
    let presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    rig.memory.take_log();
    presence.leave().await;
    assert_eq!(rig.memory.take_log(), "delete-lease a, delete-record a, linger-document a");
    assert_eq!(rig.memory.document(&server("a")).unwrap().tenure, Tenure::Leaving);
    // Nothing is written any more, and the document goes.
    wait(61).await;
    assert_eq!(rig.memory.take_log(), "");
    assert!(rig.memory.document(&server("a")).is_none());
    assert_eq!(rig.tasks.stop(Duration::from_secs(1)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn stopping_without_leaving_releases_too() {
    let rig = Rig::new();
    let _presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    assert_eq!(rig.tasks.stop(Duration::from_secs(10)).await, Ok(()));
    assert!(rig.memory.lease(&server("a")).is_none() && rig.memory.record(&server("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn storage_in_trouble_holds_up_neither_start_nor_shutdown() {
    for mood in [Mood::Failing, Mood::Hanging] {
        let rig = Rig::new();
        rig.memory.set_mood(mood);
        let started = Instant::now();
        assert_eq!(rig.claim().await, Ok(()));
        let presence = rig.join();
        rig.milestones.identity_lease.reached().await;
        assert!(started.elapsed() <= Duration::from_secs(16), "{mood:?}: {:?}", started.elapsed());
        let leaving = Instant::now();
        presence.leave().await;
        assert_eq!(rig.tasks.stop(Duration::from_secs(5)).await, Ok(()), "{mood:?}");
        assert!(leaving.elapsed() <= Duration::from_secs(5), "{mood:?}: {:?}", leaving.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn after_trouble_everything_is_written() {
    let rig = Rig::new();
    rig.memory.set_mood(Mood::Failing);
    let _presence = rig.join();
    wait(60).await;
    rig.memory.set_mood(Mood::Well);
    wait(8).await;
    let log = rig.memory.take_log();
    for entry in ["put-document a", "put-record a", "create-lease a"] {
        assert!(log.contains(entry), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_removed_is_created_again_with_the_same_holder() {
    let rig = Rig::new();
    let _presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    rig.memory.remove_lease(&server("a"));
    wait(11).await;
    assert_eq!(rig.holder(), Some(rig.config.holder.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_edited_is_renewed_as_it_is_now() {
    let rig = Rig::new();
    let _presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    let mut edited = (*rig.memory.lease(&server("a")).unwrap()).clone();
    edited.metadata.annotations.insert("note".to_owned(), "kept".to_owned());
    rig.memory.put_lease(edited);
    wait(11).await;
    let lease = rig.memory.lease(&server("a")).unwrap();
    assert_eq!(lease.metadata.annotations["note"], "kept");
    assert!(rig.memory.take_log().contains("renew-lease a"));
}

#[tokio::test(start_paused = true)]
async fn the_document_is_written_again_when_it_changes_or_was_changed() {
    let rig = Rig::new();
    let _presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    rig.memory.take_log();
    rig.local.send_replace(document("v1 pods:get | apps/v1 xs:get"));
    let feed = || {
        let stored = rig.memory.document(&server("a")).unwrap();
        let version = rig.memory.document_version(&server("a")).unwrap();
        OwnDocument::Known(crate::members::KnownDocument { stored, version, since: Instant::now() })
    };
    rig.own.send_replace(feed());
    wait(1).await;
    assert_eq!(rig.memory.document(&server("a")).unwrap().document.apis().items().len(), 1);
    rig.own.send_replace(feed());
    wait(1).await;
    rig.memory.take_log();
    // Somebody took us for gone.
    let mut stored = rig.memory.document(&server("a")).unwrap();
    stored.tenure = Tenure::Leaving;
    let seen = rig.memory.document_version(&server("a"));
    Documents::put(&rig.memory, &server("a"), stored.encode(), seen, Some(Duration::from_secs(60))).await.unwrap();
    rig.own.send_replace(feed());
    wait(61).await;
    assert_eq!(rig.memory.document(&server("a")).unwrap().tenure, Tenure::Staying);
    let log = rig.memory.take_log();
    assert_eq!(log.matches("put-document a").count(), 1, "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_publish_leaves_documents_alone() {
    let mut rig = Rig::new();
    rig.config.publishes = false;
    let presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    presence.leave().await;
    expect!["put-record a, create-lease a, delete-lease a, delete-record a"].assert_eq(&rig.memory.take_log());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_where_there_is_nothing() {
    let rig = Rig::new();
    assert_eq!(rig.claim().await, Ok(()));
    assert_eq!(rig.memory.take_log(), "");
}

#[tokio::test(start_paused = true)]
async fn a_stale_lease_of_ours_is_removed_at_once() {
    for port in [None, Some(6443)] {
        let rig = Rig::new();
        rig.leave_behind(9, port).await;
        let started = Instant::now();
        assert_eq!(rig.claim().await, Ok(()));
        assert_eq!(rig.memory.take_log(), "delete-lease a", "{port:?}");
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_record_runs_out_was_stale() {
    let rig = Rig::new();
    rig.leave_behind(9, Some(7443)).await;
    let started = Instant::now();
    assert_eq!(rig.claim().await, Ok(()));
    assert_eq!(rig.memory.take_log(), "delete-lease a");
    assert!(started.elapsed() < Duration::from_secs(17), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_process_renews_at_another_address_is_its_own() {
    let first = Rig::new();
    let _presence = first.join();
    first.milestones.identity_lease.reached().await;
    let second = Rig { memory: first.memory.clone(), config: config("a", 2, 7443), ..Rig::new() };
    // Renewals must show, so that the clock of the first has to go.
    let holder = first.holder();
    let renewing = async {
        wait(5).await;
        let mut lease = (*first.memory.lease(&server("a")).unwrap()).clone();
        lease.spec.renew_time = Some(Timestamp::from_second(1_000_000_005).unwrap().into());
        first.memory.put_lease(lease);
    };
    let (claimed, ()) = tokio::join!(second.claim(), renewing);
    let error = claimed.unwrap_err();
    expect!["another API server with the identity apiserver-a is running at 10.0.0.1:6443: identities are made from host names, and servers on hosts of one name must be told apart with --hostname-override"]
        .assert_eq(&error.to_string());
    // The first is untouched.
    assert_eq!(first.holder(), holder);
    assert!(first.memory.record(&server("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_outlives_its_time_is_renewed_by_somebody_alive() {
    let first = Rig::new();
    let _presence = first.join();
    first.milestones.identity_lease.reached().await;
    // The clock of the first stands still, so its renewals cannot be told apart.
    let second = Rig { memory: first.memory.clone(), config: config("a", 2, 7443), ..Rig::new() };
    assert_eq!(second.claim().await.map_err(|twin| twin.address.port()), Err(6443));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_lease_with_our_name_does_not_keep_us_from_having_one() {
    let rig = Rig::new();
    let mut phantom = config("a", 9, 1).lease_form().new_lease(rig.config.now());
    phantom.spec.holder_identity = None;
    phantom.metadata.labels.clear();
    rig.memory.put_lease(phantom);
    let _presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    assert!(IdentityLease::read(&rig.memory.lease(&server("a")).unwrap()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn with_the_gate_off_there_is_a_lease_and_nothing_else() {
    let mut rig = Rig::new();
    rig.config.extent = Extent::LeaseOnly;
    let presence = rig.join();
    rig.milestones.identity_lease.reached().await;
    let lease = rig.memory.lease(&server("a")).unwrap();
    assert!(lease.metadata.annotations.is_empty());
    presence.leave().await;
    assert_eq!(rig.memory.take_log(), "create-lease a, delete-lease a");
    assert_eq!(rig.tasks.stop(Duration::from_secs(1)).await, Ok(()));
}
