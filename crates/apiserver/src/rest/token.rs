//! The subresource `serviceaccounts/token`: issues a token without storing anything.

use access::reviews::AUTHENTICATION_GROUP;
use access::tokens::TokenRequest;
use api::{GroupVersionKind, Status};
use edge::Response;
use http::StatusCode;
use jiff::Timestamp;

use super::BufferedRequest;
use super::{RequestContext, with_warnings};
use crate::request_body::{self, ExpectedBody};
use crate::request_options::WriteOptions;
use crate::{error_status, json_response};

const TOKEN_REQUEST_KIND: GroupVersionKind<&str> =
    GroupVersionKind { group: AUTHENTICATION_GROUP, version: "v1", kind: "TokenRequest" };

pub(super) async fn create_token(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    WriteOptions::from_request(&request)?;
    let server = context.server;
    let status_context = context.status_context(&context.target.name);
    let expected = ExpectedBody {
        kind: TOKEN_REQUEST_KIND,
        release: server.served_resources.release(),
        custom: None,
        status_context,
    };
    let body = request_body::read_object(request, context.record, &expected)?;
    // The account may have just been created through another server.
    server.bound_objects.catch_up().await;
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).expect("the system has random numbers");
    let token_request = TokenRequest {
        namespace: context.namespace(),
        name: &context.target.name,
        body: &serde_json::to_vec(&body.object).expect("an object has string keys"),
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
