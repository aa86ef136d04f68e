//! Tests of the sequence with a view, kinds and webhooks that the tests script.

#![allow(clippy::needless_pass_by_value, reason = "cases are written as literals")]

mod flags;
mod matching;
mod node_restriction;
mod plugins;
mod pod_security;
mod policies;
mod webhooks;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use access::User;
use api::json::JsonObject;
use api::{GroupResource, GroupVersionKind, GroupVersionResource, Status};
use kinds::{FeatureGates, Release};
use serde_json::{Value, json};

use crate::{
    Answers, Attributes, CallFailure, Chain, Context, EquivalentResource, Interruption, Notes, Operation, PluginSet,
    Refusal, RunLookups, ServedKinds, Settings, View, WebhookSet, Write,
};

pub(crate) fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else { panic!("not an object: {value}") };
    object
}

/// Objects by resource, namespace and name.
#[derive(Clone, Default)]
pub(crate) struct Objects(BTreeMap<(String, String, String), JsonObject>);

impl Objects {
    pub(crate) fn with(mut self, resource: &str, value: Value) -> Self {
        let text = |name: &str| value["metadata"][name].as_str().unwrap_or_default().to_owned();
        self.0.insert((resource.to_owned(), text("namespace"), text("name")), object(value.clone()));
        self
    }
}

impl View for Objects {
    fn get(&self, resource: GroupResource<&str>, namespace: &str, name: &str) -> Result<Option<JsonObject>, Refusal> {
        Ok(self.0.get(&(resource.resource.to_owned(), namespace.to_owned(), name.to_owned())).cloned())
    }

    fn list(&self, resource: GroupResource<&str>, namespace: &str) -> Result<Vec<JsonObject>, Refusal> {
        let is_wanted = |key: &&(String, String, String)| {
            key.0 == resource.resource && (namespace.is_empty() || key.1 == namespace)
        };
        Ok(self.0.iter().filter(|(key, _)| is_wanted(key)).map(|(_, object)| object.clone()).collect())
    }
}

/// Kinds whose versions differ in `apiVersion` alone.
struct PlainKinds;

impl ServedKinds for PlainKinds {
    fn equivalents(&self, resource: GroupVersionResource<&str>, subresource: &str) -> Vec<EquivalentResource> {
        if resource.resource != "widgets" || !subresource.is_empty() {
            return Vec::new();
        }
        let versions = ["v1", "v2"];
        let named = |version| EquivalentResource {
            resource: GroupVersionResource { version, ..resource }.owned(),
            kind: GroupVersionKind { group: resource.group, version, kind: "Widget" }.owned(),
        };
        versions.map(named).into()
    }

    fn convert(&self, object: &JsonObject, kind: GroupVersionKind<&str>) -> Result<JsonObject, String> {
        let mut object = object.clone();
        object.insert("apiVersion".to_owned(), kind.group_version().to_string().into());
        Ok(object)
    }

    fn read_patched(
        &self,
        object: JsonObject,
        _kind: GroupVersionKind<&str>,
        _is_strict: bool,
    ) -> Result<JsonObject, String> {
        if object.contains_key("broken") { Err("json: broken".to_owned()) } else { Ok(object) }
    }

    fn is_equal(&self, left: &JsonObject, right: &JsonObject, _kind: GroupVersionKind<&str>) -> bool {
        left == right
    }
}

/// Allows the verbs of a list.
pub(crate) struct AllowedVerbs(pub(crate) &'static [&'static str]);

impl crate::Authorization for AllowedVerbs {
    fn is_allowed(&self, _user: &User, _check: &access::ResourceAttributes<'_>, verb: &str) -> bool {
        self.0.contains(&verb)
    }

    fn decide(&self, _user: &User, check: &k8s_cel::CheckAttributes) -> k8s_cel::AuthorizerDecision {
        let allowed = self.0.contains(&check.verb.as_str());
        k8s_cel::AuthorizerDecision { allowed, ..k8s_cel::AuthorizerDecision::default() }
    }
}

/// A write as a test describes it.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    pub(crate) resource: GroupVersionResource<&'static str>,
    pub(crate) kind: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) object: Option<Value>,
    pub(crate) old_object: Option<Value>,
    pub(crate) is_dry_run: bool,
    pub(crate) user: User,
}

impl Case {
    pub(crate) fn new(operation: Operation, group: &'static str, resource: &'static str, kind: &'static str) -> Self {
        Self {
            operation,
            resource: GroupVersionResource { group, version: "v1", resource },
            kind,
            subresource: "",
            object: None,
            old_object: None,
            is_dry_run: false,
            user: User::named("alice"),
        }
    }

    pub(crate) fn create_pod(pod: Value) -> Self {
        Self { object: Some(pod), ..Self::new(Operation::Create, "", "pods", "Pod") }
    }
}

/// A server: plugins, objects and webhooks.
pub(crate) struct Fixture {
    pub(crate) plugins: &'static [&'static str],
    pub(crate) objects: Objects,
    pub(crate) webhooks: WebhookSet,
    pub(crate) policies: crate::PolicySet,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) settings: Settings,
    pub(crate) release: Release,
    /// Names of called webhooks, and bodies.
    pub(crate) calls: RefCell<Vec<(String, Value)>>,
    /// The same bodies as they are sent.
    pub(crate) bodies: RefCell<Vec<String>>,
}

impl Fixture {
    pub(crate) fn with_plugins(plugins: &'static [&'static str]) -> Self {
        Self {
            plugins,
            objects: Objects::default(),
            webhooks: WebhookSet::default(),
            policies: crate::PolicySet::default(),
            verbs: &[],
            settings: Settings::default(),
            release: Release::R36,
            calls: RefCell::default(),
            bodies: RefCell::default(),
        }
    }

    /// Runs both phases; `respond` answers calls of webhooks.
    pub(crate) fn run(
        &self,
        case: &Case,
        respond: &dyn Fn(&str, &Value) -> Result<Value, CallFailure>,
    ) -> (Result<Option<Value>, Status>, Notes) {
        let chain = self.chain();
        let mut answers = Answers::default();
        loop {
            let (result, write) = self.with_write(case, &answers, |mut write, context| {
                let result = chain.mutate(&mut write, context).and_then(|()| chain.validate(&mut write, context));
                (result, (write.object, write.notes))
            });
            let (object, notes) = write;
            match result {
                Ok(()) => return (Ok(object.map(Value::Object)), notes),
                Err(Interruption::Refused(status)) => return (Err(*status), notes),
                Err(Interruption::CallsNeeded(calls)) => {
                    for call in calls {
                        let bytes = call.body("uid-1");
                        self.bodies.borrow_mut().push(String::from_utf8(bytes.clone()).unwrap());
                        let body: Value = serde_json::from_slice(&bytes).unwrap();
                        self.calls.borrow_mut().push((call.webhook.name.clone(), body.clone()));
                        let response = respond(&call.webhook.name, &body).map(|value| value.to_string());
                        let response = response.as_ref().map(String::as_bytes).map_err(CallFailure::clone);
                        answers.add(&call, "uid-1", response);
                    }
                }
            }
        }
    }

    fn chain(&self) -> Chain {
        let set = PluginSet::from_flags(self.release, self.plugins, &[], |name| self.plugins.contains(&name));
        Chain::new(&set.unwrap(), self.settings.clone(), FeatureGates::new(self.release))
    }

    /// Prepares one run of a case.
    fn with_write<T>(&self, case: &Case, answers: &Answers, run: impl FnOnce(Write<'_>, &Context<'_>) -> T) -> T {
        let old = case.old_object.clone().map(object);
        let metadata = case.object.as_ref().or(case.old_object.as_ref()).map(|value| value["metadata"].clone());
        let metadata = metadata.unwrap_or_default();
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let (name, namespace) = (text("name"), text("namespace"));
        let namespace = if case.resource.resource == "namespaces" { name.clone() } else { namespace };
        let options = object(json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));
        let attributes = Attributes {
            operation: case.operation,
            resource: case.resource,
            kind: case.resource.group_version().with_kind(case.kind),
            subresource: case.subresource,
            name: &name,
            namespace: &namespace,
            user: &case.user,
            options: Some(&options),
            is_dry_run: case.is_dry_run,
        };
        let object = case.object.clone().map(object);
        let write = Write { attributes, object, old_object: old.as_ref(), notes: Notes::default() };
        let context = Context {
            view: &self.objects,
            kinds: &PlainKinds,
            authorization: &AllowedVerbs(self.verbs),
            webhooks: &self.webhooks,
            policies: &self.policies,
            answers,
            random: 7,
            clock: || Duration::ZERO,
            lookups: &RunLookups::default(),
        };
        run(write, &context)
    }

    /// The names of the validating webhooks that a write is checked against.
    pub(crate) fn candidates(&self, case: &Case) -> Vec<String> {
        self.with_write(case, &Answers::default(), |write, context| {
            let kind = crate::webhook::ConfigurationKind::Validating;
            let candidates = self.webhooks.candidates(kind, &write, write.object.as_ref(), context);
            candidates.into_iter().map(|(_, webhook)| webhook.name.clone()).collect()
        })
    }

    /// Runs a case without webhooks and returns the object or the message of the refusal.
    pub(crate) fn admit(&self, case: &Case) -> Result<Value, String> {
        let (result, _) = self.run(case, &|name, _| panic!("webhook {name} was called"));
        result.map(|object| object.unwrap_or_default()).map_err(|status| format!("{} {}", status.code, status.message))
    }
}
