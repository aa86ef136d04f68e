//! What must hold around an object before it may be written.

use access::rbac::escalation::{self, Write};
use access::{Attributes, User};
use api::{GroupResource, GroupVersionResource, Status};
use catalogue::Served;
use object::Stored;
use registry::Item;
use registry::read::Freshness;
use serde_json::Value;
use store::{Compare, Key};

use crate::faults::{self, About};
use crate::forms::Object;
use crate::{ApiServer, Resource, kinds};

const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

/// The group of requests for certificates.
const SIGNING: &str = "certificates.k8s.io";

/// How new the sight of a namespace must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// As the cache has it: most are as they were for weeks.
    InCache,
    /// As it is.
    Now,
}

/// A role or binding that somebody is about to write, or anything else, which grants nothing.
pub(crate) struct Grant<'a> {
    pub(crate) user: &'a User,
    pub(crate) served: &'a Served,
    /// Of the request; empty at the cluster scope.
    pub(crate) namespace: &'a str,
    /// In the request's path, hence empty for create.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Object>,
    pub(crate) new: &'a Object,
}

/// A write to a part of a request for a certificate, or to anything else.
pub(crate) struct Verdict<'a> {
    pub(crate) user: &'a User,
    pub(crate) served: &'a Served,
    pub(crate) subresource: &'a str,
    pub(crate) old: &'a Object,
    pub(crate) new: &'a Object,
}

impl Verdict<'_> {
    /// What it takes to be allowed; `None` if anybody is who may write at all.
    fn verb(&self) -> Option<&'static str> {
        let is_request = (self.served.group.name, self.served.kind.plural) == (SIGNING, "certificatesigningrequests");
        match self.subresource {
            "approval" if is_request => Some("approve"),
            "status" if is_request && self.old.get("status") != self.new.get("status") => Some("sign"),
            _ => None,
        }
    }
}

impl ApiServer {
    /// Nobody may grant what they do not have.
    pub(crate) fn refuse_escalation(&self, grant: &Grant<'_>) -> Result<(), Status> {
        let Some(kind) = kinds::rbac_kind_of(grant.served) else { return Ok(()) };
        let bytes = |object: &Object| serde_json::to_vec(object).expect("an object has string keys");
        let (new, old) = (bytes(grant.new), grant.old.map(bytes));
        let Grant { user, namespace, name, .. } = *grant;
        let write = Write { user, kind, namespace, name, new: &new, old: old.as_deref() };
        let checked = escalation::check(&self.rules.authorizer, &self.rules.index.load(), &write);
        checked.map_err(|error| {
            let name = grant.new.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
            error.to_status(kind, name)
        })
    }

    /// Whoever approves a request for a certificate, or signs it, must be allowed to for its signer.
    pub(crate) fn refuse_verdict(&self, verdict: &Verdict<'_>) -> Result<(), Status> {
        let Verdict { user, old, .. } = *verdict;
        let Some(verb) = verdict.verb() else { return Ok(()) };
        let text = |part: &str, name: &str| {
            old.get(part).and_then(|part| part.get(name)).and_then(Value::as_str).unwrap_or_default()
        };
        let signer = text("spec", "signerName");
        let domain = signer.split('/').next().unwrap_or_default();
        let index = self.rules.index.load();
        let is_allowed = |name: &str| {
            let signers = access::Resource { group: SIGNING, resource: "signers", name, ..access::Resource::default() };
            self.rules.authorizer.decide(&index, &Attributes::resource(user, verb, signers)).is_allowed()
        };
        if is_allowed(signer) || is_allowed(&format!("{domain}/*")) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        let resource = GroupResource { group: SIGNING, resource: verdict.served.kind.plural };
        Err(Status::forbidden(resource, text("metadata", "name"), why))
    }

    /// Nothing is created in a namespace that is not there, or that is about to go. Gives what must still hold when it is
    /// created: that the namespace is as it was seen. Otherwise it could end in between, and leave the object behind.
    pub(crate) async fn admit_into(
        &self,
        namespace: &str,
        seen: Seen,
        about: About<'_>,
    ) -> Result<Option<Compare>, Status> {
        let Some(namespaces) = self.resolve(NAMESPACES) else { return Ok(None) };
        let key = Key::from([namespaces.shelf.prefix().as_ref(), namespace.as_bytes()].concat());
        let missing = || Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, namespace));
        // What the cache does not know may have been created a moment ago, elsewhere.
        let looks: &[Freshness] = match seen {
            Seen::InCache => &[Freshness::Any, Freshness::Latest],
            Seen::Now => &[Freshness::Latest],
        };
        for freshness in looks {
            let found = self.registry.get(namespaces.shelf, &key, *freshness).await.map_err(faults::unread)?;
            let Some(cached) = found.as_deref() else { continue };
            if let Item::Object(stored) = &cached.item {
                refuse_terminating(stored, namespaces, namespace, about)?;
                return Ok(Some(Compare { key, revision: Some(cached.revision) }));
            }
        }
        missing()
    }
}

fn refuse_terminating(
    stored: &Stored,
    namespaces: Resource<'_>,
    namespace: &str,
    about: About<'_>,
) -> Result<(), Status> {
    let object = crate::forms::object_of(stored, namespaces.served);
    let is_terminating = object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    if !is_terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    Err(Status::forbidden(about.resource, about.name, why)
        .with_cause("NamespaceTerminating", format!("namespace {namespace} is being terminated")))
}
