//! The subresource `serviceaccounts/token`: issues a token without storing anything. Admission decides about it as about a
//! create: NodeRestriction keeps kubelets to the accounts of their pods.

use access::reviews::AUTHENTICATION_GROUP;
use access::tokens::TokenRequest;
use api::json::JsonObject;
use api::{GroupVersionKind, Status};
use edge::Response;
use http::StatusCode;
use jiff::Timestamp;
use object::unstructured::{metadata_mut, metadata_string, nested_object_mut, texts};

use super::BufferedRequest;
use super::{RequestContext, with_warnings};
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::{built_in_types, error_status, json_response};

const TOKEN_REQUEST_KIND: GroupVersionKind<&str> =
    GroupVersionKind { group: AUTHENTICATION_GROUP, version: "v1", kind: "TokenRequest" };

pub(super) async fn create_token(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    let options = WriteOptions::from_request(&request)?;
    let server = context.server;
    let status_context = context.status_context(&context.target.name);
    let expected = ExpectedBody {
        kind: TOKEN_REQUEST_KIND,
        release: server.served_resources.release(),
        custom: None,
        status_context,
    };
    let mut body = request_body::read_object(request, context.record, &expected)?;
    built_in_types::set_defaults(&mut body.object, &server.feature_gates, TOKEN_REQUEST_KIND);
    let complete = |request: &mut JsonObject| complete_request(context, request);
    // It also makes the cache current: the account may have just been created through another server.
    let object = context.admit_unstored(TOKEN_REQUEST_KIND, body.object, &options, complete).await?;
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).expect("the system has random numbers");
    let token_request = TokenRequest {
        namespace: context.namespace(),
        name: &context.target.name,
        body: &serde_json::to_vec(&object).expect("an object has string keys"),
        now: Timestamp::now(),
        random,
    };
    let issued =
        server.access_rules.signing.get().issuer.issue(&token_request, &server.bound_objects).map_err(|error| {
            tracing::debug!(%error, "token request rejected");
            error_status::status_for_token_request(&error)
        })?;
    context.record.annotate("authentication.kubernetes.io/issued-credential-id", || issued.credential_id);
    let mut response = json_response(issued.body);
    *response.status_mut() = StatusCode::CREATED;
    Ok(with_warnings(with_warnings(response, &body.warnings), &issued.warnings))
}

/// Fills in what the path and the server's audiences say, so that validating plugins see what the token will have.
fn complete_request(context: RequestContext<'_>, request: &mut JsonObject) {
    for (field, value) in [("name", &*context.target.name), ("namespace", context.namespace())] {
        if metadata_string(request, field).is_empty() {
            metadata_mut(request).insert(field.to_owned(), value.into());
        }
    }
    if texts(request, &["spec", "audiences"]).next().is_none() {
        let audiences = context.server.access_rules.signing.get().issuer.audiences.clone();
        nested_object_mut(request, "spec").insert("audiences".to_owned(), audiences.into());
    }
}
