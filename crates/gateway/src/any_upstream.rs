//! The gateway's [`LocalHandler`]: forwards to any ready upstream.
//!
//! Requests for non-resource paths and for unknown resources get the response of an upstream, so that 404s and 403s are
//! genuine.

use api::Target;
use edge::{AuthorizedRequest, Error, LocalHandler, Request, Response};
use forward::{Effect, ForwardRequest, Lifetime, ResponseOrigin};
use futures_util::future::BoxFuture;
use http::Method;

use crate::access_control::GatewayCaller;
use crate::upstream_client::UpstreamClient;

/// Serves requests by forwarding them to any upstream.
#[derive(Debug)]
pub struct AnyUpstream(pub UpstreamClient);

impl LocalHandler<GatewayCaller> for AnyUpstream {
    fn serve<'a>(
        &'a self,
        authorized: AuthorizedRequest<'a, GatewayCaller>,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(async move {
            let (effect, origin) = effect_and_origin(authorized.target, request.method());
            let lifetime = match authorized.target.is_long_running() {
                true => Lifetime::LongRunning,
                false => Lifetime::Until(authorized.deadline),
            };
            let GatewayCaller { user, client_ip } = &authorized.caller;
            let forward_request = ForwardRequest::new(user, *client_ip, effect, origin, lifetime);
            self.0.forward_to_any(forward_request, authorized.record, request).await
        })
    }
}

/// Whether the request may be resent, and which process writes its response. A request that an upstream proxies to a
/// pod, service or node may be resent only if the API defines it as a read, regardless of its HTTP method.
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
