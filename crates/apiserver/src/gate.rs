//! Who may come in: certificates and RBAC, judged here.

use std::sync::{Arc, PoisonError};

use access::attributes::{Attributes, Resource};
use access::rbac::Index;
use access::{Authorizer, Decision, User};
use api::{Target, Verb};
use arc_swap::ArcSwap;
use edge::{Connection, Error, Gate, Request};
use rustls::pki_types::UnixTime;
use transport::{Authorities, Watched};

/// Authentication and authorization of one server.
#[derive(Debug)]
pub struct AccessGate {
    /// `--client-ca-file`.
    pub client_ca: Option<Watched<Authorities>>,
    /// `--authorization-mode`.
    pub authorizer: Authorizer,
    /// What bindings grant, as of now.
    pub index: Arc<ArcSwap<Index>>,
    /// `--anonymous-auth`.
    pub anonymous: bool,
}

/// What a connection's certificate was found to be worth, and by which reading of the bundle.
struct Judged {
    generation: u64,
    user: Result<User, String>,
}

impl AccessGate {
    /// The user of the client certificate; `None` if there is none to be judged.
    fn certificate_user(&self, connection: &Connection) -> Option<Result<User, String>> {
        let authorities = self.client_ca.as_ref()?.get();
        if connection.certificates.is_empty() {
            return None;
        }
        // A judgement is a pure function of its inputs: one made by somebody who panicked later is as good as any.
        let mut memory = connection.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = memory.as_ref().and_then(|judged| judged.downcast_ref::<Judged>());
        if let Some(judged) = remembered.filter(|judged| judged.generation == authorities.generation()) {
            return Some(judged.user.clone());
        }
        let subject = authorities.verify_client(&connection.certificates, UnixTime::now());
        let user = subject
            .map_err(|error| error.to_string())
            .map(|subject| User { groups: subject.organizations, ..User::named(subject.common_name) });
        *memory = Some(Arc::new(Judged { generation: authorities.generation(), user: user.clone() }));
        Some(user)
    }
}

impl Gate for AccessGate {
    type Caller = User;

    fn identify(&self, connection: &Connection, _request: &mut Request) -> Result<User, Error> {
        match self.certificate_user(connection) {
            Some(Ok(user)) => Ok(user.authenticated()),
            Some(Err(reason)) => Err(Error::Unauthorized { reason }),
            None if self.anonymous => Ok(User::anonymous()),
            None => Err(Error::Unauthorized { reason: "no credentials".to_owned() }),
        }
    }

    fn authorize(&self, caller: &User, target: &Target<'_>) -> Result<(), Error> {
        let index = self.index.load();
        let attributes = attributes_of(caller, target);
        match self.authorizer.decide(&index, &attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed { reason } => Err(access::authorize::forbidden(&attributes, &reason).into()),
        }
    }
}

fn attributes_of<'a>(user: &'a User, target: &'a Target<'_>) -> Attributes<'a> {
    match target {
        Target::NonResource(page) => Attributes::path(user, &page.verb, &page.path),
        Target::Resource(asked) => {
            // A list by name is still a list: rules with resource names look at the name all the same.
            let name = if asked.verb == Verb::Create && asked.subresource.is_empty() { "" } else { &*asked.name };
            let resource = Resource {
                group: &asked.group,
                version: &asked.version,
                resource: &asked.resource,
                subresource: &asked.subresource,
                namespace: &asked.namespace,
                name,
            };
            Attributes::resource(user, asked.verb.as_str(), resource)
        }
    }
}
