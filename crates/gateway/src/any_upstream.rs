//! What *here* means in a gateway: any upstream.
//!
//! What is about no resource, and what nobody has, is answered by an upstream in its own words, so that a 404 or a 403 is
//! theirs.

use api::Target;
use edge::audit::AUDIT_ID;
use edge::{AuthorizedRequest, Error, LocalHandler, Request, Response};
use futures_util::future::BoxFuture;
use http::Method;
use peering::forward::{Effect, Lifetime, ResponseOrigin};

use crate::access_control::GatewayCaller;
use crate::upstream_client::{UpstreamClient, UpstreamRequest};

/// Any upstream.
#[derive(Debug)]
pub struct AnyUpstream(pub UpstreamClient);

impl LocalHandler<GatewayCaller> for AnyUpstream {
    fn serve<'a>(
        &'a self,
        authorized: AuthorizedRequest<'a, GatewayCaller>,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(async move {
            let audit_id = request.headers().get(AUDIT_ID).cloned();
            let (effect, origin) = effect_and_origin(authorized.target, request.method());
            let upstream_request = UpstreamRequest {
                user: &authorized.caller.user,
                client_ip: authorized.caller.client_ip,
                audit_id: audit_id.as_ref(),
                effect,
                origin,
                lifetime: if authorized.target.is_long_running() {
                    Lifetime::LongRunning
                } else {
                    Lifetime::Until(authorized.deadline)
                },
            };
            Ok(self.0.forward_to_any(upstream_request, request).await?)
        })
    }
}

/// Whether the request may be resent, and which process writes its response. A request that an upstream relays to a pod, service
/// or node is safe to resend only if the API says so, whatever its HTTP method.
fn effect_and_origin(target: &Target<'_>, method: &Method) -> (Effect, ResponseOrigin) {
    match target {
        Target::Resource(resource) if resource.reaches_backend() => {
            (Effect::for_resource(resource), ResponseOrigin::ProxiedBackend)
        }
        Target::Resource(_) | Target::NonResource(_) => {
            let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
            (if is_safe { Effect::Reads } else { Effect::Writes }, ResponseOrigin::AnyServer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_backends_are_not_resent_by_method_alone() {
        use {Effect::*, ResponseOrigin::*};
        for (method, line, expected) in [
            ("GET", "/version", (Reads, AnyServer)),
            ("OPTIONS", "/api/v1/pods", (Reads, AnyServer)),
            ("POST", "/apis/x.io/v1/things", (Writes, AnyServer)),
            ("GET", "/api/v1/namespaces/a/pods/b/exec", (Writes, ProxiedBackend)),
            ("GET", "/api/v1/namespaces/a/pods/b/log", (Reads, ProxiedBackend)),
            ("HEAD", "/api/v1/namespaces/a/services/b/proxy/", (Writes, ProxiedBackend)),
            ("OPTIONS", "/api/v1/nodes/n/proxy/metrics", (Writes, ProxiedBackend)),
            ("GET", "/api/v1/proxy/nodes/n", (Writes, ProxiedBackend)),
        ] {
            let target = Target::parse(method, line).unwrap();
            assert_eq!(effect_and_origin(&target, &method.parse().unwrap()), expected, "{method} {line}");
        }
    }
}
