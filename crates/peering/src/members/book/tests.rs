use expect_test::{Expect, expect};

use super::*;
use crate::documents::Source;
use crate::identity::{HolderIdentity, LeaseForm};
use crate::testing::{server, server_document};

/// A book, its clock, and the servers it is told about.
struct Story {
    book: Book,
    now: Instant,
}

impl Story {
    fn new() -> Self {
        Self { book: Book::new(Patience::default()), now: Instant::now() }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// The server's lease, held by its process of this number and renewed for the so-manieth time.
    fn lease(&mut self, name: &str, process: u128, renewal: i64) {
        self.see_lease(name, Some(lease(name, process, renewal)));
    }

    fn no_lease(&mut self, name: &str) {
        self.see_lease(name, None);
    }

    fn see_lease(&mut self, name: &str, lease: Option<Lease>) {
        self.book.see_leases(Taken::Changes(vec![(server(name), lease.map(Arc::new))]), self.now);
    }

    fn record(&mut self, name: &str, port: u16) {
        let record = Address::new("10.0.0.1", port).unwrap().to_record(&server(name), 1);
        self.book.see_records(Taken::Changes(vec![(server(name), Some(Arc::new(record)))]), self.now);
    }

    fn no_record(&mut self, name: &str) {
        self.book.see_records(Taken::Changes(vec![(server(name), None)]), self.now);
    }

    fn document(&mut self, name: &str, process: u128, tenure: Tenure) {
        let stored = StoredDocument {
            holder: HolderIdentity::new(&server(name), process),
            source: Source::Published,
            tenure,
            document: Arc::new(server_document("apps/v1 deployments:get")),
        };
        self.see_document(name, Some(Content::Document(stored)));
    }

    fn see_document(&mut self, name: &str, content: Option<Content>) {
        let found = content.map(|content| FoundDocument { version: Version(1), content });
        self.book.see_documents(Taken::Changes(vec![(server(name), found)]), self.now);
    }

    fn no_document(&mut self, name: &str) {
        self.see_document(name, None);
    }

    /// `name state` of each member, with `?` if it may serve more than we know.
    fn members(&mut self) -> String {
        let members = self.book.members(&server("me"), self.now);
        let members = members.iter().map(|member| {
            let mark = if member.is_unheard() { "?" } else { "" };
            format!("{} {}{mark}", member.server.as_str().trim_start_matches("apiserver-"), member.state)
        });
        members.collect::<Vec<_>>().join(", ")
    }

    fn chores(&self) -> String {
        let chores = self.book.chores(&server("me"), self.now);
        let chores = chores.iter().map(|chore| match chore {
            Chore::Sweep { lease, document } => format!("sweep {} {document:?}", lease.server),
            Chore::Linger { server, ttl, .. } => format!("linger {server} {ttl:?}"),
            Chore::Keep { server, .. } => format!("keep {server}"),
            Chore::Forget { server, .. } => format!("forget {server}"),
        });
        chores.collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(&mut self, expected: &Expect) {
        let (members, chores) = (self.members(), self.chores());
        expected.assert_eq(&if chores.is_empty() { members } else { format!("{members}; {chores}") });
    }

    /// Seconds until something happens by itself.
    fn next(&self) -> Option<u64> {
        self.book.next_change(self.now).map(|next| (next - self.now).as_secs())
    }
}

fn lease(name: &str, process: u128, renewal: i64) -> Lease {
    let server = server(name);
    let form = LeaseForm {
        holder: HolderIdentity::new(&server, process),
        server,
        hostname: name.to_owned(),
        address: None,
        duration: Duration::from_secs(3600),
    };
    let mut lease = form.new_lease(jiff::Timestamp::from_second(renewal).unwrap().into());
    lease.metadata.uid = format!("uid-{process}");
    lease
}

#[test]
fn a_server_joins_lives_and_leaves() {
    let mut story = Story::new();
    story.document("a", 1, Tenure::Staying);
    story.check(&expect!["a left"]);
    story.record("a", 1);
    story.lease("a", 1, 0);
    story.check(&expect!["a live"]);
    story.no_lease("a");
    story.document("a", 1, Tenure::Leaving);
    story.check(&expect!["a left"]);
    story.no_record("a");
    story.wait(59);
    story.check(&expect!["a left"]);
    story.no_document("a");
    story.check(&expect![""]);
    assert_eq!(story.next(), None);
}

#[test]
fn a_crashed_server_is_suspect_until_its_lease_expires_and_is_then_swept() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    story.record("a", 1);
    story.document("a", 1, Tenure::Staying);
    story.wait(15);
    story.no_record("a");
    story.check(&expect!["a suspect"]);
    story.wait(3584);
    story.check(&expect!["a suspect"]);
    assert_eq!(story.next(), Some(1));
    story.wait(1);
    story.check(&expect!["; sweep apiserver-a Some(Version(1))"]);
}

#[test]
fn renewals_count_by_our_own_time_whatever_they_say() {
    let mut story = Story::new();
    story.lease("a", 1, 2_000_000_000);
    story.document("a", 1, Tenure::Staying);
    story.wait(3000);
    // Seen again without a renewal, as after a reconnect.
    story.lease("a", 1, 2_000_000_000);
    story.wait(599);
    story.check(&expect!["a suspect"]);
    // A renewal that goes back in time is one nevertheless.
    story.lease("a", 1, 0);
    story.wait(3599);
    story.check(&expect!["a suspect"]);
    story.wait(1);
    story.check(&expect!["; sweep apiserver-a Some(Version(1))"]);
}

#[test]
fn a_server_without_record_and_document_turns_mute() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    story.check(&expect!["a unknown?"]);
    assert_eq!(story.next(), Some(60));
    story.wait(60);
    story.check(&expect!["a mute?"]);
    // Another process of it has all the time again.
    story.lease("a", 2, 1);
    story.check(&expect!["a unknown?"]);
    story.wait(59);
    story.record("a", 1);
    story.wait(60);
    story.check(&expect!["a unknown?"]);
}

#[test]
fn a_document_of_a_former_process_is_used_but_not_believed_to_be_all() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    story.record("a", 1);
    story.document("a", 1, Tenure::Staying);
    story.check(&expect!["a live"]);
    story.lease("a", 2, 1);
    story.check(&expect!["a live?"]);
    assert!(story.book.members(&server("me"), story.now)[0].is_to_be_asked());
    story.document("a", 2, Tenure::Staying);
    story.check(&expect!["a live"]);
    assert!(!story.book.members(&server("me"), story.now)[0].is_to_be_asked());
}

#[test]
fn a_document_without_a_lease_is_given_what_is_left_of_the_linger() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    story.document("a", 1, Tenure::Staying);
    story.no_lease("a");
    story.wait(4);
    story.check(&expect!["a left"]);
    assert_eq!(story.next(), Some(1));
    story.wait(1);
    story.check(&expect!["a left; linger apiserver-a 55s"]);
    story.wait(55);
    // Nobody could write to storage for all that time.
    story.check(&expect!["; forget apiserver-a"]);
}

#[test]
fn a_lingering_document_is_kept_if_its_server_returns_in_time() {
    let mut story = Story::new();
    story.document("a", 1, Tenure::Leaving);
    story.check(&expect!["a left"]);
    story.lease("a", 2, 0);
    story.record("a", 1);
    story.check(&expect!["a live?; keep apiserver-a"]);
}

#[test]
fn a_lingering_document_that_storage_does_not_remove_is_removed() {
    let mut story = Story::new();
    story.document("a", 1, Tenure::Leaving);
    story.wait(119);
    story.check(&expect!["a left"]);
    assert_eq!(story.next(), Some(1));
    story.wait(1);
    story.check(&expect!["a left; forget apiserver-a"]);
}

#[test]
fn a_lease_that_makes_no_member_is_as_good_as_none() {
    let mut story = Story::new();
    let mut phantom = lease("a", 1, 0);
    phantom.spec.holder_identity = Some("somebody".to_owned());
    story.see_lease("a", Some(phantom));
    story.record("a", 1);
    story.check(&expect![""]);
}

#[test]
fn an_expired_lease_is_swept_also_if_nothing_else_is_known() {
    let mut story = Story::new();
    let mut timeless = lease("a", 1, 0);
    timeless.spec.renew_time = None;
    story.see_lease("a", Some(timeless));
    story.check(&expect!["; sweep apiserver-a None"]);
}

#[test]
fn we_are_no_member_to_ourselves_and_never_our_own_chore() {
    let mut story = Story::new();
    story.document("me", 1, Tenure::Staying);
    story.wait(100);
    story.check(&expect![""]);
    assert!(story.book.document(&server("me")).is_some());
}

#[test]
fn a_new_list_removes_what_is_not_in_it() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    story.lease("b", 1, 0);
    story.record("b", 2);
    let list = vec![(server("b"), Arc::new(lease("b", 1, 0))), (server("c"), Arc::new(lease("c", 1, 0)))];
    story.book.see_leases(Taken::All(list), story.now);
    story.check(&expect!["b unknown?, c unknown?"]);
    story.book.see_records(Taken::All(Vec::new()), story.now);
    story.wait(60);
    story.check(&expect!["b mute?, c mute?"]);
}

#[test]
fn equal_documents_become_one_value() {
    let mut story = Story::new();
    for name in ["a", "b"] {
        story.lease(name, 1, 0);
        story.document(name, 1, Tenure::Staying);
    }
    let members = story.book.members(&server("me"), story.now);
    assert!(Arc::ptr_eq(members[0].served().unwrap(), members[1].served().unwrap()));
}

#[test]
fn members_compare_without_their_times() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    let before = story.book.members(&server("me"), story.now);
    story.wait(10);
    story.lease("a", 1, 1);
    assert_eq!(story.book.members(&server("me"), story.now), before);
    story.record("a", 1);
    assert_ne!(story.book.members(&server("me"), story.now), before);
}

#[test]
fn garbage_is_removed_and_what_newer_servers_wrote_is_not() {
    let mut story = Story::new();
    story.lease("a", 1, 0);
    story.see_document("a", Some(Content::Newer));
    story.check(&expect!["a unknown?"]);
    story.see_document("a", Some(Content::Garbage));
    story.see_document("me", Some(Content::Garbage));
    story.check(&expect!["a unknown?; forget apiserver-a, forget apiserver-me"]);
    story.no_document("a");
    story.no_document("me");
    story.check(&expect!["a unknown?"]);
}
