//! Cases of a kind, from its manifests and a seed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::manifests::{Kind, Manifest};
use super::mutation::{Case, Change, child};
use super::outcome::hash;
use super::schema::Schemas;

/// Tried in place of every string.
const STRINGS: [&str; 10] = ["", "NoSuchValue", "-1", "a_b", "a b", "A.b-", "1.2.3.4/33", "/../x", "1a", "0.5m"];
/// Tried in place of every number.
const NUMBERS: [i64; 7] = [-1, 0, 1, 101, 65_536, 2_147_483_648, 9_007_199_254_740_993];
/// Around the limits of labels, names and annotations.
const LENGTHS: [usize; 3] = [64, 254, 1100];
/// Tried as additional keys of every map of strings.
const KEYS: [&str; 4] = ["-bad-", "a/b/c", "", "Example.com/ok"];

/// What the cases of one kind are made of.
pub(crate) struct Generator<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) schemas: &'a Schemas,
    pub(crate) can_update: bool,
    pub(crate) has_status: bool,
}

impl Generator<'_> {
    /// About `count` cases: half of them creates, the rest updates and subresources. A large type gets more: at 200 a tenth
    /// of its creates. Each manifest unchanged is always one of them.
    pub(crate) fn cases(&self, seed: u64, count: usize) -> Vec<Case> {
        let mut random = Random(seed ^ hash(&self.kind.file_stem()));
        let mut pools: BTreeMap<String, Vec<Case>> = BTreeMap::new();
        let mut cases = Vec::new();
        for (index, manifest) in self.kind.manifests.iter().enumerate() {
            for operation in self.operations(manifest) {
                let changes = self.changes(manifest, &operation);
                let case = |changes: Vec<Change>| Case { operation: operation.clone(), manifest: index, changes };
                cases.push(case(Vec::new()));
                let pool = pools.entry(operation.clone()).or_default();
                for _ in 0..changes.len() / 6 {
                    let pair = [random.pick(&changes).clone(), random.pick(&changes).clone()];
                    pool.extend(applies(&manifest.object, &pair).then(|| case(pair.to_vec())));
                }
                pool.extend(changes.into_iter().map(|change| case(vec![change])));
            }
        }
        for (operation, mut pool) in pools {
            let share = match operation.as_str() {
                "create" => (count / 2).max(pool.len() * count / 2000),
                "update" => (count * 3 / 10).max(pool.len() * count / 4000),
                _ => count / 5,
            };
            random.shuffle(&mut pool);
            cases.extend(pool.into_iter().take(share));
        }
        cases.sort_by_cached_key(|case| (case.operation.clone(), case.manifest, case.to_string()));
        cases.dedup();
        cases
    }

    /// The operations that a manifest is sent with.
    fn operations(&self, manifest: &Manifest) -> Vec<String> {
        if let Some(subresource) = &manifest.subresource {
            return vec![subresource.name.clone()];
        }
        let mut operations = vec!["create".to_owned()];
        if self.can_update && manifest.is_stored {
            operations.push("update".to_owned());
            if self.has_status && manifest.object.get("status").is_some() {
                operations.push("status".to_owned());
            }
        }
        operations
    }

    fn changes(&self, manifest: &Manifest, operation: &str) -> Vec<Change> {
        let mut changes = Vec::new();
        let object = &manifest.object;
        let kind = object["kind"].as_str().unwrap_or_default();
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let schema = self.schemas.of_kind(api_version, kind);
        let is_status = operation == "status";
        for (key, value) in object.as_object().into_iter().flatten() {
            if key == "apiVersion" || key == "kind" {
                changes.extend(type_changes(key));
            } else if (key == "status") == is_status || manifest.subresource.is_some() {
                let schema = schema.and_then(|schema| self.schemas.field(schema, key));
                self.add_changes(&child("", key), value, schema, &mut changes);
            }
        }
        if !is_status {
            changes.push(Change::Unknown(String::new()));
            self.add_absent_fields("", object, schema, &mut changes);
            changes.extend(metadata_changes());
        }
        changes
    }

    fn add_changes(&self, pointer: &str, value: &Value, schema: Option<&Value>, changes: &mut Vec<Change>) {
        let at = || pointer.to_owned();
        changes.push(Change::Delete(at()));
        match value {
            Value::Object(fields) => {
                changes.extend([Change::Set(at(), json!({})), Change::Set(at(), json!([])), Change::Unknown(at())]);
                changes.extend(sibling_changes(pointer, fields));
                if schema.is_some_and(|schema| self.schemas.is_map(schema)) {
                    changes.extend(KEYS.map(|key| Change::Set(child(pointer, key), "x".into())));
                }
                self.add_absent_fields(pointer, value, schema, changes);
            }
            Value::Array(items) => {
                changes.extend([Change::Set(at(), json!([])), Change::Set(at(), "x".into())]);
                changes.extend((0..items.len()).map(|index| Change::Duplicate(format!("{pointer}/{index}"))));
                changes.extend((0..items.len()).map(|index| Change::Set(format!("{pointer}/{index}"), Value::Null)));
                if items.len() > 1 {
                    changes.push(Change::Set(at(), items.iter().rev().cloned().collect()));
                }
            }
            Value::String(text) => {
                changes.push(Change::Set(at(), 7.into()));
                let others = STRINGS.iter().filter(|other| *other != text);
                changes.extend(others.map(|other| Change::Set(at(), (*other).into())));
                changes.extend(LENGTHS.map(|length| Change::SetLong(at(), length)));
            }
            Value::Number(_) => {
                changes.extend([Change::Set(at(), "x".into()), Change::Set(at(), json!(1.5))]);
                let others = NUMBERS.iter().filter(|other| value != *other);
                changes.extend(others.map(|other| Change::Set(at(), (*other).into())));
            }
            Value::Bool(is_set) => changes.extend([Change::Set(at(), (!is_set).into()), Change::Set(at(), "x".into())]),
            Value::Null => (),
        }
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        for (key, value) in children {
            let schema = schema.and_then(|schema| self.schemas.field(schema, &key));
            self.add_changes(&child(pointer, &key), value, schema, changes);
        }
    }

    /// Fields of the type that the manifest does not have.
    fn add_absent_fields(&self, pointer: &str, object: &Value, schema: Option<&Value>, changes: &mut Vec<Change>) {
        let Some(schema) = schema else { return };
        let absent = self.schemas.field_names(schema).filter(|key| object.get(key.as_str()).is_none());
        for key in absent.filter(|key| key.as_str() != "status") {
            let sample = self.schemas.field(schema, key).map(|field| self.schemas.sample(field));
            changes.extend(sample.map(|sample| Change::Set(child(pointer, key), sample)));
        }
    }
}

/// Every field with the value of the next one.
fn sibling_changes(pointer: &str, fields: &Map<String, Value>) -> Vec<Change> {
    let pairs = fields.keys().zip(fields.values().cycle().skip(1)).filter(|_| fields.len() > 1);
    // Changes are recorded as text, in which this separates them.
    let pairs = pairs.filter(|(_, value)| !value.to_string().contains(" && "));
    pairs.map(|(key, value)| Change::Set(child(pointer, key), value.clone())).collect()
}

/// Few for `apiVersion` and `kind`: every kind decodes them alike.
fn type_changes(key: &str) -> Vec<Change> {
    let pointer = child("", key);
    vec![Change::Delete(pointer.clone()), Change::Set(pointer, "NoSuchValue".into())]
}

/// Metadata that manifests rarely have, and that every kind validates.
fn metadata_changes() -> Vec<Change> {
    let set = |key: &str, value: Value| Change::Set(format!("/metadata/{key}"), value);
    vec![
        set("labels", json!({"-bad-": "x"})),
        set("labels", json!({"a": "not valid!"})),
        set("annotations", json!({"a b": "x"})),
        set("finalizers", json!(["bad"])),
        set("finalizers", json!(["example.com/a b"])),
        set("ownerReferences", json!([{}])),
        set("ownerReferences", json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "1"}])),
        set("generateName", "Bad_".into()),
        set("namespace", "other".into()),
        set("generation", (-1).into()),
        set("uid", "x".into()),
        set("resourceVersion", "x".into()),
        set("deletionGracePeriodSeconds", (-1).into()),
        set("managedFields", json!([{"operation": "Bad"}])),
    ]
}

/// True if both changes of a pair find their place.
fn applies(object: &Value, changes: &[Change]) -> bool {
    let mut object = object.clone();
    changes.iter().all(|change| change.apply(&mut object).is_ok())
}

/// SplitMix64: small, and the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.next() % length as u64).expect("it is below a usize")
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::manifests::load_kinds;

    #[test]
    fn cases_are_the_same_for_the_same_seed() {
        let kinds = load_kinds();
        let kind = kinds.iter().find(|kind| kind.kind == "Deployment").unwrap();
        let schemas = Schemas::new(&Value::Null);
        let generator = Generator { kind, schemas: &schemas, can_update: true, has_status: true };
        let cases = generator.cases(7, 200);
        assert_eq!(cases, generator.cases(7, 200));
        assert_ne!(cases, generator.cases(8, 200));
        assert!((200..=400).contains(&cases.len()), "{} cases", cases.len());
        for case in cases.iter().filter(|case| case.operation == "create") {
            let mut object = kind.manifests[case.manifest].object.clone();
            case.changes.iter().for_each(|change| change.apply(&mut object).unwrap());
        }
    }
}
