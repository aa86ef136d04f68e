//! Reviews: questions about access that are posted as objects, answered, and never stored.

use access::reviews;
use api::target::Resource;
use api::{Scope, Status};
use catalogue::Served;
use edge::{Request, Response};
use http::StatusCode;
use jiff::Timestamp;
use object::decode;

use crate::bodies::{self, Expected};
use crate::faults::{self, About};
use crate::forms::Object;
use crate::gate::Caller;
use crate::rest::warned;
use crate::{ApiServer, json};

/// The six of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Token,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectAccess,
    SelfSubjectRules,
    SelfSubject,
}

/// A review that this server answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Review<'a> {
    kind: Kind,
    served: &'a Served,
}

impl<'a> Review<'a> {
    /// The review that a resource is; `None` if it is something else.
    pub(crate) fn of(served: &'a Served) -> Option<Self> {
        let kind = match (served.group.name, served.kind.plural) {
            ("authentication.k8s.io", "tokenreviews") => Kind::Token,
            ("authentication.k8s.io", "selfsubjectreviews") => Kind::SelfSubject,
            ("authorization.k8s.io", "subjectaccessreviews") => Kind::SubjectAccess,
            ("authorization.k8s.io", "localsubjectaccessreviews") => Kind::LocalSubjectAccess,
            ("authorization.k8s.io", "selfsubjectaccessreviews") => Kind::SelfSubjectAccess,
            ("authorization.k8s.io", "selfsubjectrulesreviews") => Kind::SelfSubjectRules,
            _ => return None,
        };
        Some(Self { kind, served })
    }
}

impl ApiServer {
    /// Answers a review whose path and method fit.
    pub(crate) async fn review(
        &self,
        review: Review<'_>,
        asked: &Resource<'_>,
        caller: &Caller,
        request: Request,
    ) -> Result<Response, Status> {
        let kind = review.served.response_kind();
        let about = About { resource: asked.group_resource(), kind: kind.kind, name: "" };
        let expected = Expected { kind, release: self.surface.release(), about };
        let mut body = bodies::read(request, &expected).await?;
        let namespace = match review.served.kind.scope {
            Scope::Namespaced => &*asked.namespace,
            Scope::Cluster => "",
        };
        let refuse = |refusal| faults::refused(refusal, about);
        decode::match_namespace(&mut body.object, namespace).map_err(refuse)?;
        let answer = self.answer_review(review.kind, &body.object, namespace, caller).await?;
        let mut response = json(in_version(answer, &asked.version).into());
        *response.status_mut() = StatusCode::CREATED;
        Ok(warned(response, &body.warnings))
    }

    async fn answer_review(
        &self,
        kind: Kind,
        object: &Object,
        namespace: &str,
        caller: &Caller,
    ) -> Result<Vec<u8>, Status> {
        let body = serde_json::to_vec(object).expect("an object has string keys");
        if kind == Kind::Token {
            // Whether the account still exists must not depend on which server is asked.
            self.accounts.catch_up().await;
        }
        let index = self.rules.index.load();
        let judge = self.rules.judge(&index);
        let (user, now) = (&caller.user, Timestamp::now());
        let answer = match kind {
            Kind::Token => reviews::token_review(&body, &self.rules.authenticator.get().tokens, &self.accounts, now),
            Kind::SubjectAccess => reviews::subject_access_review(&body, judge),
            Kind::LocalSubjectAccess => reviews::local_subject_access_review(&body, namespace, judge),
            Kind::SelfSubjectAccess => reviews::self_subject_access_review(&body, judge, user),
            Kind::SelfSubjectRules => reviews::self_subject_rules_review(&body, judge, user),
            Kind::SelfSubject => Ok(reviews::self_subject_review(user, now)),
        };
        answer.map_err(|error| error.to_status())
    }
}

/// All versions of a review look the same but for their name.
fn in_version(answer: Vec<u8>, version: &str) -> Vec<u8> {
    if version == "v1" {
        return answer;
    }
    let mut object: Object = serde_json::from_slice(&answer).expect("reviews are answered with objects");
    if let Some(group) =
        object.get("apiVersion").and_then(|name| name.as_str()?.split_once('/')).map(|(group, _)| group)
    {
        let name = format!("{group}/{version}");
        object.insert("apiVersion".to_owned(), name.into());
    }
    api::json::to_go_json(&object)
}
