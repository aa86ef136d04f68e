//! What another release does to stored objects that it can read: fields that it drops, values that it refuses, and fields
//! and values of feature gates that are set differently there.

use std::collections::{BTreeMap, BTreeSet};

use api::{FieldError, GroupVersion, GroupVersionKind};
use kinds::feature_gates::{FeatureSpec, feature_spec};
use kinds::gated_fields::{drop_disabled_fields, visit_gated_fields};
use kinds::value_validation::validate_object;
use kinds::{FeatureGates, KindStrategy, Release, defaults, types_of};
use serde_json::{Map, Value};

use crate::envelope::{Envelope, StoredMediaType};
use crate::key_layout::{KeyOwner, ResourceClass};
use crate::releases::{self, Readability, TargetServer};
use crate::verdict::{Finding, FindingEffect, OBJECTS_NAMED_MAX, count_of, qualified_name};

/// Problems that are told apart; a release adds fewer fields and values to all kinds together.
const PROBLEMS_MAX: usize = 1024;
/// Managers that are named per object.
const MANAGERS_MAX: usize = 4;

/// The problems of stored objects with a target release.
#[derive(Debug, Default)]
pub(crate) struct ObjectFindings {
    /// By resource name.
    problems: BTreeMap<(String, Problem), ObjectsConcerned>,
    /// Why a value is refused: looked up once, because it takes a validation for each feature gate.
    causes: BTreeMap<(String, String), Option<RefusalCause>>,
    unread: u64,
    is_protobuf_read: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Problem {
    /// The server cannot decode the object.
    Undecodable,
    /// The server has no such field.
    DroppedField(String),
    /// kube-apiserver's words for the value, which begin with the field; without list indices.
    RefusedValue(String, RefusalCause),
    /// A field of a gate that is off.
    GatedField { field: &'static str, gate: &'static str },
}

/// Why a release refuses a value that another release accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusalCause {
    /// The release does not know the value.
    Release,
    /// The gate is off, or on, and the value would be accepted otherwise.
    Gate { gate: &'static str, is_on: bool },
}

#[derive(Debug, Default)]
struct ObjectsConcerned {
    count: u64,
    objects: Vec<String>,
}

impl ObjectFindings {
    /// Looks into a stored value, if it is an object of a built-in kind that the target reads.
    pub(crate) fn add(&mut self, target: &TargetServer, owner: &KeyOwner<'_>, envelope: &Envelope<'_>, plain: &[u8]) {
        let Envelope::Object { media_type, api_version, kind } = envelope else { return };
        if owner.class != ResourceClass::BuiltIn
            || target.readability(owner.group, owner.resource, api_version) != Readability::Readable
        {
            return;
        }
        let Ok(GroupVersion { group, version }) = GroupVersion::parse(api_version) else { return };
        let Some(expected) = kinds::groups::find_kind(owner.group, owner.resource) else { return };
        let kind = GroupVersionKind { group, version, kind: &**kind };
        let decoded = match kind.kind == expected.name {
            true => decode_body(target.release(), *media_type, plain, kind),
            false => Some(Err(format!("it is a {}", kind.kind))),
        };
        let object = match decoded {
            Some(Ok(object)) => object,
            Some(Err(reason)) => return self.record(owner, Problem::Undecodable, &format!(": {reason}")),
            None => {
                self.unread += 1;
                return;
            }
        };
        self.is_protobuf_read |= *media_type == StoredMediaType::Protobuf;
        for (problem, managers) in
            self.problems_of(target, owner, &StoredObject { kind, strategy: expected.strategy, object })
        {
            self.record(owner, problem, &set_by(&managers));
        }
    }

    fn problems_of(
        &mut self,
        target: &TargetServer,
        owner: &KeyOwner<'_>,
        stored: &StoredObject<'_>,
    ) -> Vec<(Problem, Vec<String>)> {
        let mut kept = stored.object.clone();
        let Some(dropped) = releases::drop_fields(target.release(), &mut kept, stored.kind) else {
            self.unread += 1;
            return Vec::new();
        };
        let with_managers = |path: String| {
            let managers = managers_of(&stored.object, &path);
            (Problem::DroppedField(path), managers)
        };
        let mut problems: Vec<_> = dropped.into_iter().map(with_managers).collect();
        // The status of a stored object is kept, and a new object has none.
        kept.remove("status");
        problems.extend(gated_fields(target, stored.kind, &kept));
        problems.extend(self.refused_values(target, owner, stored));
        problems
    }

    fn refused_values(
        &mut self,
        target: &TargetServer,
        owner: &KeyOwner<'_>,
        stored: &StoredObject<'_>,
    ) -> Vec<(Problem, Vec<String>)> {
        let mut problems = Vec::new();
        for error in stored.errors_as_new(target.release(), target.gates()).unwrap_or_default() {
            let text = without_indices(&error.to_string());
            let place = (qualified_name(owner.group, owner.resource), text.clone());
            if self.causes.len() >= PROBLEMS_MAX && !self.causes.contains_key(&place) {
                self.unread += 1;
                break;
            }
            let find_cause = || stored.refusal_cause(target, error.field());
            if let Some(cause) = *self.causes.entry(place).or_insert_with(find_cause) {
                let managers = managers_of(&stored.object, &without_indices(error.field()));
                problems.push((Problem::RefusedValue(text, cause), managers));
            }
        }
        problems
    }

    /// `detail` follows the name of the object.
    fn record(&mut self, owner: &KeyOwner<'_>, problem: Problem, detail: &str) {
        let place = (qualified_name(owner.group, owner.resource), problem);
        if self.problems.len() >= PROBLEMS_MAX && !self.problems.contains_key(&place) {
            return;
        }
        let found = self.problems.entry(place).or_default();
        found.count += 1;
        if found.objects.len() < OBJECTS_NAMED_MAX {
            found.objects.push(format!("{}{detail}", owner.name));
        }
    }

    /// The number of objects whose fields could not be looked at.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// True if an object was read of which only the newest release's fields are known.
    pub(crate) fn is_protobuf_read(&self) -> bool {
        self.is_protobuf_read
    }

    pub(crate) fn finish(self, target: &TargetServer) -> Vec<Finding> {
        let finding = |((resource, problem), concerned): ((String, Problem), ObjectsConcerned)| {
            problem.finding(target, resource, concerned)
        };
        self.problems.into_iter().map(finding).collect()
    }
}

impl Problem {
    fn finding(self, target: &TargetServer, resource: String, concerned: ObjectsConcerned) -> Finding {
        let release = target.release();
        let ObjectsConcerned { count, objects } = concerned;
        let count = count_of(count, "object");
        let field = match &self {
            Self::Undecodable => String::new(),
            Self::DroppedField(field) => field.clone(),
            Self::RefusedValue(text, _) => text.split_once(": ").map_or("", |(field, _)| field).to_owned(),
            Self::GatedField { field, .. } => (*field).to_owned(),
        };
        let (effect, evidence, cure) = match self {
            Self::Undecodable => (
                FindingEffect::Unreadable,
                format!("{count} that a kube-apiserver of {release} cannot decode"),
                "Restore or delete these keys in storage.".to_owned(),
            ),
            Self::DroppedField(field) => (
                FindingEffect::FieldsDropped,
                format!(
                    "{count} with {field}, which a kube-apiserver of {release} does not have and drops at their next write"
                ),
                "Have the owners remove the field, or accept the loss.".to_owned(),
            ),
            Self::RefusedValue(text, RefusalCause::Release) => (
                FindingEffect::WritesRefused,
                format!(
                    "{count} that a kube-apiserver of {release} refuses at every write but those of the status: {text}"
                ),
                "Have the owners change the value.".to_owned(),
            ),
            Self::RefusedValue(text, RefusalCause::Gate { gate, is_on }) => (
                FindingEffect::GateDiffers,
                format!(
                    "{count} that {release} would refuse as new, because the gate {gate} is {} there; stored ones keep the value: {text}",
                    if is_on { "on" } else { "off" }
                ),
                gate_cure(target.gates().release(), gate, !is_on, "change the value"),
            ),
            Self::GatedField { field, gate } => (
                FindingEffect::GateDiffers,
                format!(
                    "{count} with {field}, a field of the gate {gate}, which is off in {release}: stored objects keep it, new ones lose it"
                ),
                gate_cure(target.gates().release(), gate, true, "remove the field"),
            ),
        };
        Finding { effect, resource, field, evidence, cure, objects }
    }
}

fn gate_cure(release: Release, gate: &str, value: bool, otherwise: &str) -> String {
    match feature_spec(release, gate) {
        Some(_) => format!("Start the servers with --feature-gates={gate}={value}, or have the owners {otherwise}."),
        None => format!("Have the owners {otherwise}."),
    }
}

/// The object in a stored value, or why the release cannot decode it; `None` if its fields are not known.
fn decode_body(
    release: Release,
    media_type: StoredMediaType,
    plain: &[u8],
    kind: GroupVersionKind<&str>,
) -> Option<Result<Map<String, Value>, String>> {
    let object: Result<Map<String, Value>, String> = match media_type {
        StoredMediaType::Json => serde_json::from_slice(plain).map_err(|error| error.to_string()),
        StoredMediaType::Protobuf => releases::decode_protobuf(plain, kind)?.map_err(|error| error.to_string()),
        StoredMediaType::Cbor => return None,
    };
    Some(object.and_then(|object| releases::decoding_error(release, &object, kind).map_or(Ok(object), Err)))
}

/// The fields of an object that belong to gates which are off.
fn gated_fields(
    target: &TargetServer,
    kind: GroupVersionKind<&str>,
    object: &Map<String, Value>,
) -> Vec<(Problem, Vec<String>)> {
    let Some(shape) = types_of(target.release()).for_kind(kind) else { return Vec::new() };
    let mut gated = BTreeSet::new();
    visit_gated_fields(object, shape, &mut |field, gate| {
        if target.gates().is_disabled(gate) {
            gated.insert((field, gate));
        }
    });
    let problem = |(field, gate)| (Problem::GatedField { field, gate }, managers_of(object, field));
    gated.into_iter().map(problem).collect()
}

/// A stored object.
struct StoredObject<'o> {
    kind: GroupVersionKind<&'o str>,
    strategy: &'static KindStrategy,
    object: Map<String, Value>,
}

impl StoredObject<'_> {
    /// What a server of the release with these gates refuses if the object is created there; `None` if it does not have the
    /// kind.
    fn errors_as_new(&self, release: Release, gates: &FeatureGates) -> Option<Vec<FieldError>> {
        let shape = types_of(release).for_kind(self.kind)?;
        let mut object = self.object.clone();
        // The status of a stored object is kept, and a new object has none.
        object.remove("status");
        releases::drop_fields(release, &mut object, self.kind)?;
        drop_disabled_fields(None, &mut object, shape, gates);
        defaults::apply_defaults(&mut object, shape, gates);
        Some(validate_object(self.strategy, gates, &object))
    }

    /// Why the target refuses the value of a field; `None` if no release accepts it: then the change of release does not
    /// matter.
    fn refusal_cause(&self, target: &TargetServer, field: &str) -> Option<RefusalCause> {
        let accepts = |release: Release, gates: &FeatureGates| {
            let errors = self.errors_as_new(release, gates);
            errors.is_some_and(|errors| errors.iter().all(|error| error.field() != field))
        };
        let gates = target.gates();
        let flipped = |(gate, _, is_on): &(&str, FeatureSpec, bool)| gates.with(gate, !is_on);
        let by_gate = gates.all().find(|row| accepts(target.release(), &flipped(row)));
        if let Some((gate, _, is_on)) = by_gate {
            return Some(RefusalCause::Gate { gate, is_on });
        }
        let all_on = |release: Release| {
            let defaults = FeatureGates::new(release);
            defaults.all().fold(defaults.clone(), |gates, (gate, _, _)| gates.with(gate, true))
        };
        let is_accepted =
            |release: &Release| accepts(*release, &FeatureGates::new(*release)) || accepts(*release, &all_on(*release));
        Release::ALL.iter().any(is_accepted).then_some(RefusalCause::Release)
    }
}

/// `spec.ports[0].name` is `spec.ports[].name`; keys of maps stay.
fn without_indices(text: &str) -> String {
    let mut parts = text.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part
            .split_once(']')
            .filter(|(index, _)| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()));
        match after {
            Some((_, after)) => plain.extend(["[]", after]),
            None => plain.extend(["[", part]),
        }
    }
    plain
}

/// ` (set by kubectl, helm)`; empty without managers.
fn set_by(managers: &[String]) -> String {
    if managers.is_empty() { String::new() } else { format!(" (set by {})", managers.join(", ")) }
}

/// The field managers whose field set has a field of this name, wherever it is in the object.
fn managers_of(object: &Map<String, Value>, path: &str) -> Vec<String> {
    let last = path.rsplit('.').next().unwrap_or_default();
    let field = format!("f:{}", last.trim_end_matches("[]").trim_end_matches("{}"));
    let entries = object.get("metadata").and_then(|metadata| metadata["managedFields"].as_array());
    let has_field = |entry: &&Value| contains_key(&entry["fieldsV1"], &field);
    let managers = entries.into_iter().flatten().filter(has_field).filter_map(|entry| entry["manager"].as_str());
    let mut managers: Vec<String> = managers.take(MANAGERS_MAX).map(str::to_owned).collect();
    managers.dedup();
    managers
}

fn contains_key(fields: &Value, name: &str) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    fields.iter().any(|(key, inner)| key == name || contains_key(inner, name))
}
