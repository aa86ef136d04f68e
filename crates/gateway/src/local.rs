//! What *here* means in a gateway: any upstream.
//!
//! What is about no resource, and what nobody has, is answered by an upstream in its own words, so that a 404 or a 403 is
//! theirs.

use edge::audit::AUDIT_ID;
use edge::{Call, Error, Local, Request, Response};
use futures_util::future::BoxFuture;
use http::Method;
use peering::forward::{Effect, Span};

use crate::gate::Caller;
use crate::way::{Errand, Way};

/// Any upstream.
#[derive(Debug)]
pub struct AnyUpstream(pub Way);

impl Local<Caller> for AnyUpstream {
    fn serve<'a>(&'a self, call: Call<'a, Caller>, request: Request) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(async move {
            let audit_id = request.headers().get(AUDIT_ID).cloned();
            let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
            let errand = Errand {
                user: &call.caller.identity,
                client: call.caller.client,
                audit_id: audit_id.as_ref(),
                effect: if is_read { Effect::Reads } else { Effect::Writes },
                span: if call.target.is_long_running() { Span::Open } else { Span::Until(call.deadline) },
            };
            Ok(self.0.ask_anyone(errand, request).await?)
        })
    }
}
