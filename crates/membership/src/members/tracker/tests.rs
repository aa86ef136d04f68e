use api::objects::Lease;
use expect_test::{Expect, expect};

use super::*;
use crate::documents::DocumentSource;
use crate::identity::{HolderIdentity, IdentityLeaseTemplate};
use crate::storage_feeds::decode_lease;
use crate::testing::{server_document_from_notation, server_id};

/// A tracker and its clock.
struct TrackerFixture {
    tracker: MemberTracker,
    now: Instant,
}

impl TrackerFixture {
    fn new() -> Self {
        Self { tracker: MemberTracker::new(MemberTimeouts::default()), now: Instant::now() }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Observes the lease of a server; `process` becomes its holder, `renewal` its renewTime.
    fn renew_lease(&mut self, name: &str, process: u128, renewal: i64) {
        self.observe_lease(name, Some(lease(name, process, renewal)));
    }

    fn remove_lease(&mut self, name: &str) {
        self.observe_lease(name, None);
    }

    fn observe_lease(&mut self, name: &str, lease: Option<Lease>) {
        let presence = lease.and_then(|lease| decode_lease(&server_id(name), &Arc::new(lease)));
        self.tracker.observe_presence(FeedUpdate::Changes(vec![(server_id(name), presence)]), self.now);
    }

    fn put_record(&mut self, name: &str, port: u16) {
        self.observe_address(name, Address::new("10.0.0.1", port));
    }

    fn remove_record(&mut self, name: &str) {
        self.observe_address(name, None);
    }

    fn observe_address(&mut self, name: &str, address: Option<Address>) {
        self.tracker.observe_addresses(FeedUpdate::Changes(vec![(server_id(name), address)]), self.now);
    }

    fn put_document(&mut self, name: &str, process: u128, retention: Retention) {
        let stored = StoredDocument {
            holder: HolderIdentity::new(&server_id(name), process),
            source: DocumentSource::Published,
            retention,
            document: Arc::new(server_document_from_notation("apps/v1 deployments:get")),
        };
        self.observe_document(name, Some(DocumentContent::Document(stored)));
    }

    fn observe_document(&mut self, name: &str, content: Option<DocumentContent>) {
        let observed = content.map(|content| ObservedDocument { version: EntryVersion(1), content });
        self.tracker.observe_documents(FeedUpdate::Changes(vec![(server_id(name), observed)]), self.now);
    }

    fn remove_document(&mut self, name: &str) {
        self.observe_document(name, None);
    }

    /// `name state` of each member, with `?` if it may serve more than we know.
    fn members(&mut self) -> String {
        let members = self.tracker.members(&server_id("me"), self.now);
        let members = members.iter().map(|member| {
            let mark = if member.may_serve_more() { "?" } else { "" };
            format!("{} {}{mark}", member.server.as_str().trim_start_matches("apiserver-"), member.state)
        });
        members.collect::<Vec<_>>().join(", ")
    }

    fn cleanup_actions(&self) -> String {
        let actions = self.tracker.cleanup_actions(&server_id("me"), self.now);
        let actions = actions.iter().map(|action| match action {
            CleanupAction::DeleteExpiredLease { lease, document } => format!("sweep {} {document:?}", lease.server),
            CleanupAction::StartLinger { server, ttl, .. } => format!("linger {server} {ttl:?}"),
            CleanupAction::CancelLinger { server, .. } => format!("keep {server}"),
            CleanupAction::DeleteDocument { server, .. } => format!("forget {server}"),
        });
        actions.collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(&mut self, expected: &Expect) {
        let (members, actions) = (self.members(), self.cleanup_actions());
        expected.assert_eq(&if actions.is_empty() { members } else { format!("{members}; {actions}") });
    }

    /// Seconds until the next change without an observation.
    fn seconds_until_next_change(&self) -> Option<u64> {
        self.tracker.next_change(self.now).map(|next| (next - self.now).as_secs())
    }
}

fn lease(name: &str, process: u128, renewal: i64) -> Lease {
    let server = server_id(name);
    let form = IdentityLeaseTemplate {
        holder: HolderIdentity::new(&server, process),
        server,
        component: crate::identity::IDENTITY_LABEL_VALUE.to_owned(),
        hostname: name.to_owned(),
        address: None,
        duration: Duration::from_secs(3600),
    };
    let mut lease = form.new_lease(jiff::Timestamp::from_second(renewal).unwrap().into());
    lease.metadata.uid = format!("uid-{process}");
    lease
}

#[test]
fn member_states_follow_join_and_leave() {
    let mut fixture = TrackerFixture::new();
    fixture.put_document("a", 1, Retention::UntilReplaced);
    fixture.check(&expect!["a left"]);
    fixture.put_record("a", 1);
    fixture.renew_lease("a", 1, 0);
    fixture.check(&expect!["a live"]);
    fixture.remove_lease("a");
    fixture.put_document("a", 1, Retention::Lingering);
    fixture.check(&expect!["a left"]);
    fixture.remove_record("a");
    fixture.wait(59);
    fixture.check(&expect!["a left"]);
    fixture.remove_document("a");
    fixture.check(&expect![""]);
    assert_eq!(fixture.seconds_until_next_change(), None);
}

#[test]
fn crashed_server_is_suspect_until_lease_expires() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    fixture.put_record("a", 1);
    fixture.put_document("a", 1, Retention::UntilReplaced);
    fixture.wait(15);
    fixture.remove_record("a");
    fixture.check(&expect!["a suspect"]);
    fixture.wait(3584);
    fixture.check(&expect!["a suspect"]);
    assert_eq!(fixture.seconds_until_next_change(), Some(1));
    fixture.wait(1);
    fixture.check(&expect!["; sweep apiserver-a Some(EntryVersion(1))"]);
}

#[test]
fn lease_expiry_uses_local_time_of_renewals() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 2_000_000_000);
    fixture.put_document("a", 1, Retention::UntilReplaced);
    fixture.wait(3000);
    // Seen again without a renewal, as after a reconnect.
    fixture.renew_lease("a", 1, 2_000_000_000);
    fixture.wait(599);
    fixture.check(&expect!["a suspect"]);
    // A renewal that goes back in time is one nevertheless.
    fixture.renew_lease("a", 1, 0);
    fixture.wait(3599);
    fixture.check(&expect!["a suspect"]);
    fixture.wait(1);
    fixture.check(&expect!["; sweep apiserver-a Some(EntryVersion(1))"]);
}

#[test]
fn member_without_record_and_document_becomes_mute() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    fixture.check(&expect!["a unknown?"]);
    assert_eq!(fixture.seconds_until_next_change(), Some(60));
    fixture.wait(60);
    fixture.check(&expect!["a mute?"]);
    // A new process gets the full time again.
    fixture.renew_lease("a", 2, 1);
    fixture.check(&expect!["a unknown?"]);
    fixture.wait(59);
    fixture.put_record("a", 1);
    fixture.wait(60);
    fixture.check(&expect!["a unknown?"]);
}

#[test]
fn document_of_former_process_is_used_but_may_be_incomplete() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    fixture.put_record("a", 1);
    fixture.put_document("a", 1, Retention::UntilReplaced);
    fixture.check(&expect!["a live"]);
    fixture.renew_lease("a", 2, 1);
    fixture.check(&expect!["a live?"]);
    assert!(fixture.tracker.members(&server_id("me"), fixture.now)[0].needs_discovery_fetch());
    fixture.put_document("a", 2, Retention::UntilReplaced);
    fixture.check(&expect!["a live"]);
    assert!(!fixture.tracker.members(&server_id("me"), fixture.now)[0].needs_discovery_fetch());
}

#[test]
fn document_without_lease_gets_remaining_linger_as_ttl() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    fixture.put_document("a", 1, Retention::UntilReplaced);
    fixture.remove_lease("a");
    fixture.wait(4);
    fixture.check(&expect!["a left"]);
    assert_eq!(fixture.seconds_until_next_change(), Some(1));
    fixture.wait(1);
    fixture.check(&expect!["a left; linger apiserver-a 55s"]);
    fixture.wait(55);
    // No server could write to storage for all that time.
    fixture.check(&expect!["; forget apiserver-a"]);
}

#[test]
fn linger_is_cancelled_when_server_returns() {
    let mut fixture = TrackerFixture::new();
    fixture.put_document("a", 1, Retention::Lingering);
    fixture.check(&expect!["a left"]);
    fixture.renew_lease("a", 2, 0);
    fixture.put_record("a", 1);
    fixture.check(&expect!["a live?; keep apiserver-a"]);
}

#[test]
fn overdue_lingering_document_is_deleted() {
    let mut fixture = TrackerFixture::new();
    fixture.put_document("a", 1, Retention::Lingering);
    fixture.wait(119);
    fixture.check(&expect!["a left"]);
    assert_eq!(fixture.seconds_until_next_change(), Some(1));
    fixture.wait(1);
    fixture.check(&expect!["a left; forget apiserver-a"]);
}

#[test]
fn foreign_lease_is_ignored() {
    let mut fixture = TrackerFixture::new();
    let mut phantom = lease("a", 1, 0);
    phantom.spec.holder_identity = Some("another".to_owned());
    fixture.observe_lease("a", Some(phantom));
    fixture.put_record("a", 1);
    fixture.check(&expect![""]);
}

#[test]
fn expired_lease_without_document_is_deleted() {
    let mut fixture = TrackerFixture::new();
    let mut timeless = lease("a", 1, 0);
    timeless.spec.renew_time = None;
    fixture.observe_lease("a", Some(timeless));
    fixture.check(&expect!["; sweep apiserver-a None"]);
}

#[test]
fn this_server_is_neither_member_nor_cleaned_up() {
    let mut fixture = TrackerFixture::new();
    fixture.put_document("me", 1, Retention::UntilReplaced);
    fixture.wait(100);
    fixture.check(&expect![""]);
    assert!(fixture.tracker.document(&server_id("me")).is_some());
}

#[test]
fn inspected_member_never_expires() {
    let mut fixture = TrackerFixture::new();
    let presence = MemberPresence::Inspected(HolderIdentity::new(&server_id("a"), 1));
    fixture.tracker.observe_presence(FeedUpdate::Changes(vec![(server_id("a"), Some(presence))]), fixture.now);
    fixture.put_record("a", 1);
    fixture.put_document("a", 1, Retention::UntilReplaced);
    fixture.check(&expect!["a live"]);
    assert_eq!(fixture.seconds_until_next_change(), None);
    fixture.wait(100_000);
    fixture.check(&expect!["a live"]);
}

#[test]
fn full_update_removes_missing_entries() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    fixture.renew_lease("b", 1, 0);
    fixture.put_record("b", 2);
    let present = |name| (server_id(name), decode_lease(&server_id(name), &Arc::new(lease(name, 1, 0))).unwrap());
    fixture.tracker.observe_presence(FeedUpdate::All(vec![present("b"), present("c")]), fixture.now);
    fixture.check(&expect!["b unknown?, c unknown?"]);
    fixture.tracker.observe_addresses(FeedUpdate::All(Vec::new()), fixture.now);
    fixture.wait(60);
    fixture.check(&expect!["b mute?, c mute?"]);
}

#[test]
fn equal_documents_are_interned() {
    let mut fixture = TrackerFixture::new();
    for name in ["a", "b"] {
        fixture.renew_lease(name, 1, 0);
        fixture.put_document(name, 1, Retention::UntilReplaced);
    }
    let members = fixture.tracker.members(&server_id("me"), fixture.now);
    assert!(Arc::ptr_eq(members[0].server_document().unwrap(), members[1].server_document().unwrap()));
}

#[test]
fn members_compare_equal_regardless_of_times() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    let before = fixture.tracker.members(&server_id("me"), fixture.now);
    fixture.wait(10);
    fixture.renew_lease("a", 1, 1);
    assert_eq!(fixture.tracker.members(&server_id("me"), fixture.now), before);
    fixture.put_record("a", 1);
    assert_ne!(fixture.tracker.members(&server_id("me"), fixture.now), before);
}

#[test]
fn unreadable_document_is_deleted_and_newer_format_is_kept() {
    let mut fixture = TrackerFixture::new();
    fixture.renew_lease("a", 1, 0);
    fixture.observe_document("a", Some(DocumentContent::NewerFormat));
    fixture.check(&expect!["a unknown?"]);
    fixture.observe_document("a", Some(DocumentContent::Unreadable));
    fixture.observe_document("me", Some(DocumentContent::Unreadable));
    fixture.check(&expect!["a unknown?; forget apiserver-a, forget apiserver-me"]);
    fixture.remove_document("a");
    fixture.remove_document("me");
    fixture.check(&expect!["a unknown?"]);
}
