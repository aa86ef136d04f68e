//! The order in which a server applies the rules, from the creation of an object to its end.

use api::GroupVersionKind;
use api::time::Time;
use object::decode::{self, Encoding};
use object::delete::{self, DeleteOptions, Deletion};
use object::managed_fields::{self, Writer};
use object::metadata::{self, Stamp};
use object::patch::{self, MergePatch};
use object::{KindRules, Refusal, validate};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

const KIND: GroupVersionKind<&str> = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };
const RULES: KindRules = KindRules::NAMESPACED;

/// What is stored: the last write and its revision.
struct Stored {
    object: Object,
    revision: u64,
}

impl Stored {
    /// As it is read: with the revision as resourceVersion.
    fn current(&self) -> Object {
        let mut object = self.object.clone();
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        object
    }

    fn put(&mut self, object: Object) {
        self.revision += 1;
        self.object = object;
    }
}

fn time(text: &str) -> Time {
    text.parse().expect("a test writes times")
}

fn writer(subresource: &str) -> Writer<'_> {
    Writer { manager: "test", api_version: "apps/v1", subresource, now: time("2026-01-02T00:00:00Z") }
}

fn create(body: &Value) -> Result<Stored, Refusal> {
    let mut object = decode::object(body.to_string().as_bytes(), Encoding::Json, KIND)?.value;
    decode::match_namespace(&mut object, "default")?;
    metadata::dedup_owner_references(&mut object);
    let stamp = Stamp { now: time("2026-01-01T00:00:00Z"), uid: "u-1", random: 42 };
    metadata::prepare_create(&mut object, &RULES, &stamp)?;
    managed_fields::update(&Map::new(), &mut object, &writer(""));
    Refusal::invalid_unless_empty(validate::metadata(&object, &RULES))?;
    Ok(Stored { object, revision: 1 })
}

/// Whether the write changed, kept or removed the object.
#[derive(Debug, PartialEq)]
enum Outcome {
    Written,
    Unchanged,
    Removed,
}

fn finish(stored: &mut Stored, mut new: Object, subresource: &str) -> Result<Outcome, Refusal> {
    let old = stored.current();
    let prepare = if subresource.is_empty() { metadata::prepare_update } else { metadata::prepare_status_update };
    prepare(&old, &mut new, &RULES)?;
    managed_fields::update(&old, &mut new, &writer(subresource));
    Refusal::invalid_unless_empty(validate::metadata_update(&old, &new, &RULES))?;
    if delete::is_removed_by_update(&old, &new) {
        return Ok(Outcome::Removed);
    }
    if metadata::is_no_op(&old, &new) {
        return Ok(Outcome::Unchanged);
    }
    stored.put(new);
    Ok(Outcome::Written)
}

fn put(stored: &mut Stored, body: &Value, subresource: &str) -> Result<Outcome, Refusal> {
    let mut new = decode::object(body.to_string().as_bytes(), Encoding::Json, KIND)?.value;
    decode::match_namespace(&mut new, "default")?;
    decode::match_name(&new, "web-tcbbb")?;
    finish(stored, new, subresource)
}

fn patch(stored: &mut Stored, patch: &Value) -> Result<Outcome, Refusal> {
    let patch = MergePatch::parse(patch.to_string().as_bytes())?.value;
    let new = patch::accept(patch.apply(&stored.current()), KIND)?;
    finish(stored, new, "")
}

#[test]
fn an_object_lives_and_dies() {
    let mut stored =
        create(&json!({"metadata": {"generateName": "web-"}, "spec": {"replicas": 1}, "status": {"x": 1}})).unwrap();
    let created = stored.current();
    assert_eq!(created["metadata"]["name"], "web-tcbbb");
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created.get("status"), None);

    // What was read, written back: nothing happens.
    let read = Value::Object(stored.current());
    assert_eq!(put(&mut stored, &read, ""), Ok(Outcome::Unchanged));
    assert_eq!(stored.revision, 1);

    let mut changed = read.clone();
    changed["spec"]["replicas"] = 3.into();
    assert_eq!(put(&mut stored, &changed, ""), Ok(Outcome::Written));
    assert_eq!(stored.current()["metadata"]["generation"], 2);
    // The same again comes too late.
    assert!(matches!(put(&mut stored, &changed, ""), Err(Refusal::Conflict { .. })));

    let mut status = Value::Object(stored.current());
    status["status"] = json!({"replicas": 3});
    status["spec"]["replicas"] = 99.into();
    assert_eq!(put(&mut stored, &status, "status"), Ok(Outcome::Written));
    assert_eq!(stored.current()["spec"]["replicas"], 3);
    assert_eq!(stored.current()["metadata"]["generation"], 2);

    assert_eq!(patch(&mut stored, &json!({"metadata": {"finalizers": ["example.com/wait"]}})), Ok(Outcome::Written));
    assert!(matches!(patch(&mut stored, &json!({"metadata": {"labels": {"a b": ""}}})), Err(Refusal::Invalid { .. })));

    let now = time("2026-01-03T00:00:00Z");
    let decision = delete::decide(&stored.current(), &DeleteOptions::default(), &RULES, now);
    let Ok(Deletion::Mark(marked)) = decision else { panic!("{decision:?}") };
    stored.put(marked);
    assert!(patch(&mut stored, &json!({"metadata": {"finalizers": ["example.com/wait", "x"]}})).is_err());
    assert_eq!(patch(&mut stored, &json!({"metadata": {"finalizers": null}})), Ok(Outcome::Removed));
}

#[test]
fn whatever_is_accepted_can_be_read_again() {
    // One level is the object itself.
    let levels = decode::DEPTH_MAX - 1;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let body = format!(r#"{{"metadata":{{"name":"a"}},"spec":{}1{}}}"#, open.repeat(levels), close.repeat(levels));
        let value: Value = serde_json::from_str(&body).unwrap();
        let stored = create(&value).unwrap();
        let text = Value::Object(stored.object).to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
        let deeper = format!(r#"{{"spec":{open}{}1{}{close}}}"#, open.repeat(levels), close.repeat(levels));
        assert!(decode::object(deeper.as_bytes(), Encoding::Json, KIND).is_err());
    }
}
