use expect_test::expect;

use super::*;
use crate::documents::Retention;
use crate::identity::IdentityLease;
use crate::testing::memory_storage::{MemoryStorage, StorageMode};
use crate::testing::{groups_from_notation, server_id};

/// A server, its storage, and the task that follows it.
struct PresenceFixture {
    storage: MemoryStorage,
    config: PresenceConfig,
    tasks: Tasks,
    local_groups: watch::Sender<Arc<GroupDiscoveryList>>,
    own_document: watch::Sender<OwnDocument>,
    milestones: Milestones,
}

impl PresenceFixture {
    fn new() -> Self {
        let tasks = Tasks::new();
        Self {
            storage: MemoryStorage::new(&Tasks::new()),
            config: config("a", 1, 6443),
            tasks,
            local_groups: watch::Sender::new(groups_from_notation("v1 pods:get")),
            own_document: watch::Sender::new(OwnDocument::Absent),
            milestones: Milestones::new(),
        }
    }

    fn join(&self) -> Presence {
        let ports = PresencePorts {
            leases: Arc::new(self.storage.clone()),
            records: Arc::new(self.storage.clone()),
            documents: Arc::new(self.storage.clone()),
        };
        let config = Arc::new(self.config.clone());
        Presence::start(
            &config,
            &ports,
            self.local_groups.subscribe(),
            self.own_document.subscribe(),
            &self.milestones,
            &self.tasks,
        )
    }

    async fn claim_identity(&self) -> Result<(), DuplicateIdentityError> {
        claim_identity(&self.config, &self.storage, &self.storage).await
    }

    /// Writes the lease, and with a port the record, of another process with our identity.
    async fn put_remains_of_process(&self, process: u128, port: Option<u16>) {
        let other = config("a", process, port.unwrap_or(1));
        self.storage.put_lease(other.lease_template().new_lease(other.current_time()));
        if port.is_some() {
            let record = crate::endpoint_record::new_record(&other.address, &other.server, 1);
            RecordStorage::put(&self.storage, &other.server, record, other.timings.record_ttl).await.unwrap();
        }
        self.storage.take_log();
    }

    fn lease_holder(&self) -> Option<String> {
        self.storage.lease(&server_id("a")).and_then(|lease| lease.spec.holder_identity.clone())
    }
}

fn config(name: &str, process: u128, port: u16) -> PresenceConfig {
    let server = server_id(name);
    PresenceConfig {
        holder: HolderIdentity::new(&server, process),
        server,
        hostname: name.to_owned(),
        address: Address::new("10.0.0.1", port).unwrap(),
        scope: PresenceScope::Full,
        unimplemented: Vec::new(),
        publishes_document: true,
        linger: Duration::from_secs(60),
        timings: PresenceTimings::default(),
        clock: || Timestamp::from_second(1_000_000_000).unwrap(),
        seed: 7,
    }
}

async fn sleep_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn join_writes_document_then_record_then_lease() {
    let fixture = PresenceFixture::new();
    let presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    assert_eq!(fixture.storage.take_log(), "put-document a, put-record a, create-lease a");
    assert_eq!(fixture.lease_holder(), Some(fixture.config.holder.to_string()));
    assert_eq!(fixture.milestones.endpoint_record.check(), Ok(()));
    assert!(presence.last_renewal().borrow().is_some());
}

#[tokio::test(start_paused = true)]
async fn lease_and_record_are_renewed_periodically() {
    let fixture = PresenceFixture::new();
    let presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    fixture.storage.take_log();
    let first = *presence.last_renewal().borrow();
    sleep_seconds(35).await;
    let log = fixture.storage.take_log();
    let count = |what: &str| log.split(", ").filter(|entry| *entry == what).count();
    // A lease renewal every 10 s and up to 0.4 s more; a record every 10 s.
    assert_eq!((count("put-record a"), count("renew-lease a")), (3, 3), "{log}");
    assert!(*presence.last_renewal().borrow() > first);
}

#[tokio::test(start_paused = true)]
async fn leave_deletes_lease_then_record_and_lingers_document() {
    let fixture = PresenceFixture::new();
    let presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    fixture.storage.take_log();
    presence.leave().await;
    assert_eq!(fixture.storage.take_log(), "delete-lease a, delete-record a, linger-document a");
    assert_eq!(fixture.storage.document(&server_id("a")).unwrap().retention, Retention::Lingering);
    // Nothing is written any more, and the document expires.
    sleep_seconds(61).await;
    assert_eq!(fixture.storage.take_log(), "");
    assert!(fixture.storage.document(&server_id("a")).is_none());
    assert_eq!(fixture.tasks.stop(Duration::from_secs(1)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn stop_without_leave_deletes_lease_and_record() {
    let fixture = PresenceFixture::new();
    let _presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    assert_eq!(fixture.tasks.stop(Duration::from_secs(10)).await, Ok(()));
    assert!(fixture.storage.lease(&server_id("a")).is_none() && fixture.storage.record(&server_id("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn failing_storage_delays_neither_start_nor_shutdown() {
    for mood in [StorageMode::Failing, StorageMode::Hanging] {
        let fixture = PresenceFixture::new();
        fixture.storage.set_mode(mood);
        let started = Instant::now();
        assert_eq!(fixture.claim_identity().await, Ok(()));
        let presence = fixture.join();
        fixture.milestones.identity_lease.wait_until_reached().await;
        assert!(started.elapsed() <= Duration::from_secs(16), "{mood:?}: {:?}", started.elapsed());
        let leaving = Instant::now();
        presence.leave().await;
        assert_eq!(fixture.tasks.stop(Duration::from_secs(5)).await, Ok(()), "{mood:?}");
        assert!(leaving.elapsed() <= Duration::from_secs(5), "{mood:?}: {:?}", leaving.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn presence_is_written_after_storage_recovers() {
    let fixture = PresenceFixture::new();
    fixture.storage.set_mode(StorageMode::Failing);
    let _presence = fixture.join();
    sleep_seconds(60).await;
    fixture.storage.set_mode(StorageMode::Working);
    sleep_seconds(8).await;
    let log = fixture.storage.take_log();
    for entry in ["put-document a", "put-record a", "create-lease a"] {
        assert!(log.contains(entry), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated_with_same_holder() {
    let fixture = PresenceFixture::new();
    let _presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    fixture.storage.remove_lease(&server_id("a"));
    sleep_seconds(11).await;
    assert_eq!(fixture.lease_holder(), Some(fixture.config.holder.to_string()));
}

#[tokio::test(start_paused = true)]
async fn externally_edited_lease_is_renewed_with_its_edits() {
    let fixture = PresenceFixture::new();
    let _presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    let mut edited = (*fixture.storage.lease(&server_id("a")).unwrap()).clone();
    edited.metadata.annotations.insert("note".to_owned(), "kept".to_owned());
    fixture.storage.put_lease(edited);
    sleep_seconds(11).await;
    let lease = fixture.storage.lease(&server_id("a")).unwrap();
    assert_eq!(lease.metadata.annotations["note"], "kept");
    assert!(fixture.storage.take_log().contains("renew-lease a"));
}

#[tokio::test(start_paused = true)]
async fn document_is_rewritten_after_local_or_external_change() {
    let fixture = PresenceFixture::new();
    let _presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    fixture.storage.take_log();
    fixture.local_groups.send_replace(groups_from_notation("v1 pods:get | apps/v1 xs:get"));
    let feed = || {
        let stored = fixture.storage.document(&server_id("a")).unwrap();
        let version = fixture.storage.document_version(&server_id("a")).unwrap();
        OwnDocument::Known(crate::members::TrackedDocument { stored, version, since: Instant::now() })
    };
    fixture.own_document.send_replace(feed());
    sleep_seconds(1).await;
    assert_eq!(fixture.storage.document(&server_id("a")).unwrap().document.apis().items().len(), 1);
    fixture.own_document.send_replace(feed());
    sleep_seconds(1).await;
    fixture.storage.take_log();
    // Another server started the linger.
    let mut stored = fixture.storage.document(&server_id("a")).unwrap();
    stored.retention = Retention::Lingering;
    let seen = fixture.storage.document_version(&server_id("a"));
    DocumentStorage::put(&fixture.storage, &server_id("a"), stored.encode(), seen, Some(Duration::from_secs(60)))
        .await
        .unwrap();
    fixture.own_document.send_replace(feed());
    sleep_seconds(61).await;
    assert_eq!(fixture.storage.document(&server_id("a")).unwrap().retention, Retention::UntilReplaced);
    let log = fixture.storage.take_log();
    assert_eq!(log.matches("put-document a").count(), 1, "{log}");
}

#[tokio::test(start_paused = true)]
async fn server_without_publishing_writes_no_document() {
    let mut fixture = PresenceFixture::new();
    fixture.config.publishes_document = false;
    let presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    presence.leave().await;
    expect!["put-record a, create-lease a, delete-lease a, delete-record a"].assert_eq(&fixture.storage.take_log());
}

#[tokio::test(start_paused = true)]
async fn claim_without_lease_writes_nothing() {
    let fixture = PresenceFixture::new();
    assert_eq!(fixture.claim_identity().await, Ok(()));
    assert_eq!(fixture.storage.take_log(), "");
}

#[tokio::test(start_paused = true)]
async fn claim_deletes_stale_lease_of_this_address_at_once() {
    for port in [None, Some(6443)] {
        let fixture = PresenceFixture::new();
        fixture.put_remains_of_process(9, port).await;
        let started = Instant::now();
        assert_eq!(fixture.claim_identity().await, Ok(()));
        assert_eq!(fixture.storage.take_log(), "delete-lease a", "{port:?}");
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn claim_deletes_lease_once_its_record_expires() {
    let fixture = PresenceFixture::new();
    fixture.put_remains_of_process(9, Some(7443)).await;
    let started = Instant::now();
    assert_eq!(fixture.claim_identity().await, Ok(()));
    assert_eq!(fixture.storage.take_log(), "delete-lease a");
    assert!(started.elapsed() < Duration::from_secs(17), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn claim_fails_when_other_address_renews_lease() {
    let first = PresenceFixture::new();
    let _presence = first.join();
    first.milestones.identity_lease.wait_until_reached().await;
    let second =
        PresenceFixture { storage: first.storage.clone(), config: config("a", 2, 7443), ..PresenceFixture::new() };
    // Renewals must be visible, so the clock of the first server has to run.
    let holder = first.lease_holder();
    let renewing = async {
        sleep_seconds(5).await;
        let mut lease = (*first.storage.lease(&server_id("a")).unwrap()).clone();
        lease.spec.renew_time = Some(Timestamp::from_second(1_000_000_005).unwrap().into());
        first.storage.put_lease(lease);
    };
    let (claimed, ()) = tokio::join!(second.claim_identity(), renewing);
    let error = claimed.unwrap_err();
    expect!["another API server with the identity apiserver-a is running at 10.0.0.1:6443: identities are made from host names, and servers on hosts of one name must be told apart with --hostname-override"]
        .assert_eq(&error.to_string());
    // The first server is not affected.
    assert_eq!(first.lease_holder(), holder);
    assert!(first.storage.record(&server_id("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn claim_fails_when_record_outlives_its_ttl() {
    let first = PresenceFixture::new();
    let _presence = first.join();
    first.milestones.identity_lease.wait_until_reached().await;
    // The clock of the first server stands still, so its renewals cannot be told apart.
    let second =
        PresenceFixture { storage: first.storage.clone(), config: config("a", 2, 7443), ..PresenceFixture::new() };
    assert_eq!(second.claim_identity().await.map_err(|twin| twin.address.port()), Err(6443));
}

#[tokio::test(start_paused = true)]
async fn foreign_lease_with_same_name_is_replaced() {
    let fixture = PresenceFixture::new();
    let mut phantom = config("a", 9, 1).lease_template().new_lease(fixture.config.current_time());
    phantom.spec.holder_identity = None;
    phantom.metadata.labels.clear();
    fixture.storage.put_lease(phantom);
    let _presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    assert!(IdentityLease::from_lease(&fixture.storage.lease(&server_id("a")).unwrap()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn presence_with_gate_off_writes_only_the_lease() {
    let mut fixture = PresenceFixture::new();
    fixture.config.scope = PresenceScope::LeaseOnly;
    let presence = fixture.join();
    fixture.milestones.identity_lease.wait_until_reached().await;
    let lease = fixture.storage.lease(&server_id("a")).unwrap();
    assert!(lease.metadata.annotations.is_empty());
    presence.leave().await;
    assert_eq!(fixture.storage.take_log(), "create-lease a, delete-lease a");
    assert_eq!(fixture.tasks.stop(Duration::from_secs(1)).await, Ok(()));
}
