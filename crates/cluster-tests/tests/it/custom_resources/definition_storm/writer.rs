//! Takes one definition after another through its life.

use super::watcher::{WatchGoal, WatchedEvents, follow_objects};
use super::*;

/// A definition that lives again and again under the same name.
pub(super) struct DefinitionSlot {
    number: usize,
}

/// What a slot went through.
#[derive(Default)]
pub(super) struct DefinitionLives {
    pub(super) count: usize,
    /// The watch of the objects of each life.
    pub(super) watched: Vec<WatchedEvents>,
}

impl DefinitionSlot {
    pub(super) fn new(number: usize) -> Self {
        Self { number }
    }

    pub(super) fn plural(&self) -> String {
        format!("things{}", self.number)
    }

    fn kind(&self) -> String {
        format!("Thing{}", self.number)
    }

    fn group(&self) -> String {
        format!("g{}.storm.example.com", self.number % 2)
    }

    /// Below it, the objects are stored.
    pub(super) fn stored_prefix(&self) -> String {
        format!("/registry/{}/{}/", self.group(), self.plural())
    }

    /// True if the definition of the last life stays.
    pub(super) fn is_left_at_end(&self) -> bool {
        self.number < 2
    }

    fn definition_path(&self) -> String {
        format!("{CRD_PATH}/{}.{}", self.plural(), self.group())
    }

    pub(super) fn collection(&self, version: &str) -> String {
        format!("/apis/{}/{version}/namespaces/default/{}", self.group(), self.plural())
    }

    fn versions(&self, storage: &str, default_size: i64) -> Value {
        let version = |name: &str| {
            let spec = json!({"type": "object", "properties": {
                "note": {"type": "string"}, "size": {"type": "integer", "default": default_size},
            }});
            json!({"name": name, "served": true, "storage": name == storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
        };
        json!([version("v1"), version("v2")])
    }

    fn definition(&self) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural(), self.group())},
            "spec": {
                "group": self.group(), "scope": "Namespaced", "versions": self.versions("v1", 1),
                "names": {"plural": self.plural(), "kind": self.kind()},
            },
        })
    }

    fn object(&self, version: &str, name: &str) -> Value {
        json!({
            "apiVersion": format!("{}/{version}", self.group()), "kind": self.kind(), "metadata": {"name": name},
            "spec": {"note": name},
        })
    }
}

/// Lives of one slot until `stop`; a life that has begun is completed.
pub(super) async fn write_lives(
    clients: &StormClients,
    slot: &DefinitionSlot,
    round: usize,
    stop: &AtomicBool,
) -> DefinitionLives {
    let mut lives = DefinitionLives::default();
    // Left by the previous round.
    delete_definition(clients, slot, round).await;
    loop {
        let first = round + slot.number + lives.count;
        let is_last = stop.load(Ordering::Relaxed);
        create_definition(clients, slot, first).await;
        let goal = WatchGoal::default();
        let life = async {
            use_objects(clients, slot, first).await;
            let last_revision = change_definition(clients, slot, first).await;
            if is_last && slot.is_left_at_end() {
                goal.set(last_revision);
            } else {
                let late = create_until_refused(clients, slot, first + 1);
                tokio::join!(late, delete_definition(clients, slot, first + 2));
            }
        };
        let (watched, ()) = tokio::join!(follow_objects(clients, slot, first + 1, &goal), life);
        lives.watched.push(watched);
        lives.count += 1;
        if is_last {
            return lives;
        }
    }
}

/// Creates the definition through one server and waits until it is established.
async fn create_definition(clients: &StormClients, slot: &DefinitionSlot, first: usize) {
    let created = clients.send(first, Method::POST, CRD_PATH, &slot.definition()).await;
    expect(&created, 201, 409, "create a definition");
    eventually(&format!("{} is established", slot.plural()), async || {
        let found = clients.get(first, &slot.definition_path()).await;
        let established = condition(&found.json(), "Established");
        if established.starts_with("True ") { Ok(()) } else { Err(format!("{} {established}", found.summary())) }
    })
    .await;
}

/// Creates, changes, reads and deletes objects, each request through another server.
async fn use_objects(clients: &StormClients, slot: &DefinitionSlot, first: usize) {
    for number in 0..4 {
        let (name, version) = (format!("o{number}"), ["v1", "v2"][number % 2]);
        let created =
            clients.send(first + number, Method::POST, &slot.collection(version), &slot.object(version, &name)).await;
        expect(&created, 201, 409, "create an object");
        let one = format!("{}/{name}", slot.collection("v1"));
        let patch = json!({"spec": {"note": format!("changed {number}")}});
        let patched = clients.send(first + number + 1, Method::PATCH, &one, &patch).await;
        expect(&patched, 200, 200, "change an object");
    }
    let removed = clients.send(first, Method::DELETE, &format!("{}/o3", slot.collection("v2")), &Value::Null).await;
    expect(&removed, 200, 404, "delete an object");
    check_objects(clients, slot, 1).await;
}

/// Every server that answers shows the three objects as they were written, with the default of the definition.
async fn check_objects(clients: &StormClients, slot: &DefinitionSlot, default_size: i64) {
    for first in 0..SERVERS.len() {
        let listed = clients.get(first, &slot.collection(["v1", "v2"][first % 2])).await;
        assert_eq!(listed.status, 200, "{}: {}", slot.plural(), listed.summary());
        let listed = listed.json();
        let shown = listed["items"].as_array().unwrap().iter().map(|object| {
            format!("{} {} {}", object["metadata"]["name"], object["spec"]["note"], object["spec"]["size"])
        });
        let expected = (0..3).map(|number| format!("\"o{number}\" \"changed {number}\" {default_size}"));
        assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", slot.plural());
    }
}

/// Changes storage version and default; the stored objects keep the default of their time. Returns the revision of the last
/// change of an object.
async fn change_definition(clients: &StormClients, slot: &DefinitionSlot, first: usize) -> u64 {
    let patch = json!({"spec": {"versions": slot.versions("v2", 2)}});
    let changed = clients.send(first + 1, Method::PATCH, &slot.definition_path(), &patch).await;
    expect(&changed, 200, 200, "change a definition");
    check_objects(clients, slot, 1).await;
    let created = clients.send(first + 2, Method::POST, &slot.collection("v1"), &slot.object("v1", "later")).await;
    expect(&created, 201, 409, "create an object under the changed definition");
    let later = clients.get(first, &format!("{}/later", slot.collection("v2"))).await;
    let later = later.json();
    assert_eq!(later["spec"]["size"], 2, "{later}");
    later["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Creates objects while the definition is being deleted, until the server refuses them.
async fn create_until_refused(clients: &StormClients, slot: &DefinitionSlot, first: usize) {
    for number in 0.. {
        let object = slot.object("v2", &format!("late{number}"));
        let answer = clients.send(first + number, Method::POST, &slot.collection("v2"), &object).await;
        match answer.response.status.as_u16() {
            201 => {}
            409 if answer.may_be_repeated => {}
            403 | 404 => return,
            _ => panic!("{}: {}", slot.plural(), answer.response.summary()),
        }
    }
}

/// Deletes the definition, if it is there, and waits until it is gone. From then on every server returns 404.
pub(super) async fn delete_definition(clients: &StormClients, slot: &DefinitionSlot, first: usize) {
    let path = slot.definition_path();
    let deleted = clients.send(first, Method::DELETE, &path, &Value::Null).await;
    assert!(matches!(deleted.response.status.as_u16(), 200 | 404), "{}", deleted.response.summary());
    eventually(&format!("{} is gone", slot.plural()), async || {
        let answer = clients.get(first + 1, &path).await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
    for server in 0..SERVERS.len() {
        let answer = clients.get(first + server, &slot.collection("v1")).await;
        assert_eq!(answer.status, 404, "{}: {}", slot.plural(), answer.summary());
    }
}

/// Checks the status of a response: another one if an earlier attempt may have been executed.
fn expect(found: &StormResponse, expected: u16, repeated: u16, what: &str) {
    let status = found.response.status.as_u16();
    let is_expected = status == expected || found.may_be_repeated && status == repeated;
    assert!(is_expected, "{what}: {}", found.response.summary());
}
