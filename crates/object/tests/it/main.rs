//! Life cycle of an object through the functions of this crate, in the order of a server.

use api::GroupVersionKind;
use api::json::JsonObject;
use api::time::Time;
use object::decode::{self, BodyEncoding};
use object::delete::{self, DeleteOptions, DeleteOutcome};
use object::metadata::{self, CreateContext};
use object::patch::{self, MergePatch};
use object::{KindRules, Rejection, validate};
use serde_json::{Value, json};

const KIND: GroupVersionKind<&str> = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };
const RULES: KindRules = KindRules::NAMESPACED;

/// A store for one object: the last write and its revision.
struct FakeStorage {
    object: JsonObject,
    revision: u64,
}

impl FakeStorage {
    /// The stored object with its revision as resourceVersion.
    fn current(&self) -> JsonObject {
        let mut object = self.object.clone();
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        object
    }

    fn put(&mut self, object: JsonObject) {
        self.revision += 1;
        self.object = object;
    }
}

fn time(text: &str) -> Time {
    text.parse().expect("test value is a time")
}

fn create(body: &Value) -> Result<FakeStorage, Rejection> {
    let mut object = decode::decode_object(body.to_string().as_bytes(), BodyEncoding::Json, KIND)?.value;
    decode::ensure_namespace_matches(&mut object, "default")?;
    metadata::dedup_owner_references(&mut object);
    let stamp = CreateContext { now: time("2026-01-01T00:00:00Z"), uid: "u-1", random: 42 };
    metadata::reject_resource_version(&object)?;
    metadata::prepare_create(&mut object, &RULES, &stamp);
    Rejection::ensure_no_errors(validate::validate_metadata(&object, &RULES))?;
    Ok(FakeStorage { object, revision: 1 })
}

/// Effect of an update on the stored object.
#[derive(Debug, PartialEq)]
enum UpdateOutcome {
    Written,
    Unchanged,
    Removed,
}

fn finish_update(stored: &mut FakeStorage, mut new: JsonObject, subresource: &str) -> Result<UpdateOutcome, Rejection> {
    let old = stored.current();
    let prepare = if subresource.is_empty() { metadata::prepare_update } else { metadata::prepare_status_update };
    prepare(&old, &mut new, &RULES)?;
    Rejection::ensure_no_errors(validate::validate_metadata_update(&old, &new, &RULES))?;
    if delete::is_removed_by_update(&old, &new) {
        return Ok(UpdateOutcome::Removed);
    }
    if metadata::is_no_op(&old, &new) {
        return Ok(UpdateOutcome::Unchanged);
    }
    stored.put(new);
    Ok(UpdateOutcome::Written)
}

fn put(stored: &mut FakeStorage, body: &Value, subresource: &str) -> Result<UpdateOutcome, Rejection> {
    let mut new = decode::decode_object(body.to_string().as_bytes(), BodyEncoding::Json, KIND)?.value;
    decode::ensure_namespace_matches(&mut new, "default")?;
    decode::ensure_name_matches(&new, "web-tcbbb")?;
    finish_update(stored, new, subresource)
}

fn patch(stored: &mut FakeStorage, patch: &Value) -> Result<UpdateOutcome, Rejection> {
    let patch = MergePatch::parse(patch.to_string().as_bytes())?.value;
    let new = patch::expect_kind(patch.apply(&stored.current()), KIND)?;
    finish_update(stored, new, "")
}

#[test]
fn object_lifecycle_from_create_to_removal() {
    let mut stored =
        create(&json!({"metadata": {"generateName": "web-"}, "spec": {"replicas": 1}, "status": {"x": 1}})).unwrap();
    let created = stored.current();
    assert_eq!(created["metadata"]["name"], "web-tcbbb");
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created.get("status"), None);

    // A write of the unchanged object is a no-op.
    let read = Value::Object(stored.current());
    assert_eq!(put(&mut stored, &read, ""), Ok(UpdateOutcome::Unchanged));
    assert_eq!(stored.revision, 1);

    let mut changed = read.clone();
    changed["spec"]["replicas"] = 3.into();
    assert_eq!(put(&mut stored, &changed, ""), Ok(UpdateOutcome::Written));
    assert_eq!(stored.current()["metadata"]["generation"], 2);
    // The same write again has an outdated resourceVersion.
    assert!(matches!(put(&mut stored, &changed, ""), Err(Rejection::Conflict { .. })));

    let mut status = Value::Object(stored.current());
    status["status"] = json!({"replicas": 3});
    status["spec"]["replicas"] = 99.into();
    assert_eq!(put(&mut stored, &status, "status"), Ok(UpdateOutcome::Written));
    assert_eq!(stored.current()["spec"]["replicas"], 3);
    assert_eq!(stored.current()["metadata"]["generation"], 2);

    assert_eq!(
        patch(&mut stored, &json!({"metadata": {"finalizers": ["example.com/wait"]}})),
        Ok(UpdateOutcome::Written)
    );
    assert!(matches!(
        patch(&mut stored, &json!({"metadata": {"labels": {"a b": ""}}})),
        Err(Rejection::Invalid { .. })
    ));

    let now = time("2026-01-03T00:00:00Z");
    let decision = delete::decide_deletion(&stored.current(), &DeleteOptions::default(), &RULES, now);
    let Ok(DeleteOutcome::Mark(marked)) = decision else { panic!("{decision:?}") };
    stored.put(marked);
    assert!(patch(&mut stored, &json!({"metadata": {"finalizers": ["example.com/wait", "x"]}})).is_err());
    assert_eq!(patch(&mut stored, &json!({"metadata": {"finalizers": null}})), Ok(UpdateOutcome::Removed));
}

#[test]
fn accepted_objects_can_be_parsed_again() {
    // The object itself is one level.
    let levels = decode::DEPTH_MAX - 1;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let body = format!(r#"{{"metadata":{{"name":"a"}},"spec":{}1{}}}"#, open.repeat(levels), close.repeat(levels));
        let value: Value = serde_json::from_str(&body).unwrap();
        let stored = create(&value).unwrap();
        let text = Value::Object(stored.object).to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
        let deeper = format!(r#"{{"spec":{open}{}1{}{close}}}"#, open.repeat(levels), close.repeat(levels));
        assert!(decode::decode_object(deeper.as_bytes(), BodyEncoding::Json, KIND).is_err());
    }
}
