//! TokenReview and the access reviews: evaluated on create and never stored.

use access::reviews;
use api::json::JsonObject;
use api::target::ResourceTarget;
use api::{KindScope, Status};
use edge::{AuthorizedRequest, Request, Response};
use http::StatusCode;
use jiff::Timestamp;
use kinds::ServedResource;
use kinds::review::ReviewKind;
use object::decode;

use crate::access_control::AuthenticatedCaller;
use crate::error_status::{self, StatusContext};
use crate::representation::ObjectRepresentation;
use crate::request_body::{self, ExpectedBody};
use crate::rest::{self, with_warnings};
use crate::{ApiServer, json_response};

/// A served review resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewResource<'a> {
    kind: ReviewKind,
    resource: &'a ServedResource,
}

impl<'a> ReviewResource<'a> {
    /// `None` if the resource is not a review.
    pub(crate) fn for_resource(served: &'a ServedResource) -> Option<Self> {
        let kind = served.kind.strategy.review?;
        Some(Self { kind, resource: served })
    }
}

impl ApiServer {
    /// Serves a create of a review. The caller has checked that path and method fit the resource.
    pub(crate) async fn serve_review(
        &self,
        review: ReviewResource<'_>,
        target: &ResourceTarget<'_>,
        authorized: &AuthorizedRequest<'_, AuthenticatedCaller>,
        request: Request,
    ) -> Result<Response, Status> {
        let kind = review.resource.group_version_kind();
        let status_context = StatusContext { resource: target.group_resource(), kind: kind.kind, name: "" };
        let expected = ExpectedBody { kind, release: self.served_resources.release(), custom: None, status_context };
        let request = request_body::buffer(request).await?;
        let representation = ObjectRepresentation::negotiate_review(rest::accept_header(&request))?;
        let mut body = request_body::read_object(request, authorized.record, &expected)?;
        let namespace = match review.resource.kind.scope {
            KindScope::Namespaced => &*target.namespace,
            KindScope::Cluster => "",
        };
        let reject = |rejection| error_status::status_for_rejection(rejection, status_context);
        decode::ensure_namespace_matches(&mut body.object, namespace).map_err(reject)?;
        let evaluated = self.evaluate_review(review.kind, &body.object, namespace, &authorized.caller).await?;
        let mut response = json_response(representation.encode_unstored(&with_version(&evaluated, &target.version)));
        *response.status_mut() = StatusCode::CREATED;
        Ok(with_warnings(response, &body.warnings))
    }

    async fn evaluate_review(
        &self,
        kind: ReviewKind,
        object: &JsonObject,
        namespace: &str,
        caller: &AuthenticatedCaller,
    ) -> Result<Vec<u8>, Status> {
        let body = serde_json::to_vec(object).expect("an object has string keys");
        if kind == ReviewKind::Token {
            // A token must be valid or invalid on every server, so the cache must have seen deletions made through
            // others.
            self.bound_objects.catch_up().await;
        }
        let index = self.access_rules.index.load();
        let authorizer = self.access_rules.authorizer_snapshot(&index);
        let (user, now) = (&caller.user, Timestamp::now());
        let evaluated = match kind {
            ReviewKind::Token => reviews::token_review(
                &body,
                &self.access_rules.authenticator.get().token_authenticator,
                &self.bound_objects,
                now,
            ),
            ReviewKind::SubjectAccess => reviews::subject_access_review(&body, authorizer),
            ReviewKind::LocalSubjectAccess => reviews::local_subject_access_review(&body, namespace, authorizer),
            ReviewKind::SelfSubjectAccess => reviews::self_subject_access_review(&body, authorizer, user),
            ReviewKind::SelfSubjectRules => reviews::self_subject_rules_review(&body, authorizer, user),
            ReviewKind::SelfSubject => Ok(reviews::self_subject_review(user, now)),
        };
        evaluated.map_err(|error| error_status::status_for_review(&error))
    }
}

/// Sets the requested `apiVersion`: the versions of a review differ in nothing else.
fn with_version(evaluated: &[u8], version: &str) -> JsonObject {
    let mut object: JsonObject = serde_json::from_slice(evaluated).expect("an evaluated review is an object");
    if let Some(group) =
        object.get("apiVersion").and_then(|name| name.as_str()?.split_once('/')).map(|(group, _)| group)
    {
        let name = format!("{group}/{version}");
        object.insert("apiVersion".to_owned(), name.into());
    }
    object
}
