//! The subresource `serviceaccounts/token`: a token is made, and nothing is stored.

use access::tokens::TokenRequest;
use api::{GroupVersionKind, Status};
use edge::audit::Trail;
use edge::{Request, Response};
use http::StatusCode;
use jiff::Timestamp;

use super::{Context, warned};
use crate::bodies::{self, Expected};
use crate::json;
use crate::options::WriteOptions;

const KIND: GroupVersionKind<&str> =
    GroupVersionKind { group: "authentication.k8s.io", version: "v1", kind: "TokenRequest" };

pub(super) async fn create(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    WriteOptions::of(&request)?;
    let server = context.server;
    let about = context.about(&context.asked.name);
    let expected = Expected { kind: KIND, release: server.surface.release(), about };
    let trail = Trail::of(&request);
    let body = bodies::read(request, &expected).await?;
    // The account may have been made a moment ago, through another server.
    server.accounts.catch_up().await;
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).expect("the system has random numbers");
    let asked = TokenRequest {
        namespace: context.namespace(),
        name: &context.asked.name,
        body: &serde_json::to_vec(&body.object).expect("an object has string keys"),
        now: Timestamp::now(),
        random,
    };
    let issued = server.rules.signing.get().issuer.issue(&asked, &server.accounts).map_err(|error| {
        tracing::debug!(%error, "no token was made");
        error.to_status()
    })?;
    if let Some(trail) = trail {
        trail.annotate("authentication.kubernetes.io/issued-credential-id", issued.credential_id);
    }
    let mut response = json(issued.body.into());
    *response.status_mut() = StatusCode::CREATED;
    Ok(warned(warned(response, &body.warnings), &issued.warnings))
}
