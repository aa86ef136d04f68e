//! Whether a path and a method fit a resource, by the routes that kube-apiserver registers for it.
//!
//! Authorization looks at the namespace of a path, handlers look at the scope of the resource. [`ResourceTarget::check_route`] refuses every
//! request for which the two differ, so that a right in one namespace is never a right on a cluster-scoped resource. Built-in
//! resources, reviews and routing over documents of peers share it.

use super::{HttpMethod, PathDepth, ResourceTarget, Verb, VerbPrefix};

/// Whether the objects of a resource live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindScope {
    /// One per cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// Why a request fits no route of its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteMismatch {
    /// No route has this path: 404.
    NotFound,
    /// Routes have this path, and none of them the method: 405.
    MethodNotAllowed,
    /// The path has an empty segment for the name of the object: 400.
    NameRequired,
    /// The path has an empty segment for the namespace, and the request is not a list or a watch: 400.
    NamespaceRequired,
}

/// A method that a path takes, and the verb that the resource must offer for it.
type MethodRoute = (HttpMethod, Verb);

const COLLECTION: &[MethodRoute] =
    &[(HttpMethod::Get, Verb::List), (HttpMethod::Post, Verb::Create), (HttpMethod::Delete, Verb::DeleteCollection)];
const ITEM: &[MethodRoute] = &[
    (HttpMethod::Get, Verb::Get),
    (HttpMethod::Put, Verb::Update),
    (HttpMethod::Patch, Verb::Patch),
    (HttpMethod::Delete, Verb::Delete),
];
const SUBRESOURCE: &[MethodRoute] = &[
    (HttpMethod::Get, Verb::Get),
    (HttpMethod::Post, Verb::Create),
    (HttpMethod::Put, Verb::Update),
    (HttpMethod::Patch, Verb::Patch),
    (HttpMethod::Delete, Verb::Delete),
];
/// The subresource `proxy` passes on two more methods, which discovery has no verbs for.
const PROXY: &[MethodRoute] = &[
    (HttpMethod::Get, Verb::Get),
    (HttpMethod::Post, Verb::Create),
    (HttpMethod::Put, Verb::Update),
    (HttpMethod::Patch, Verb::Patch),
    (HttpMethod::Delete, Verb::Delete),
    (HttpMethod::Head, Verb::Get),
    (HttpMethod::Options, Verb::Get),
];
const ALL_NAMESPACES: &[MethodRoute] = &[(HttpMethod::Get, Verb::List)];
const WATCH: &[MethodRoute] = &[(HttpMethod::Get, Verb::Watch)];
const NO_ROUTES: &[MethodRoute] = &[];

impl ResourceTarget<'_> {
    /// Checks the path and method against the routes of a resource with this scope and these verbs; for a path with a
    /// subresource the verbs are those of the subresource.
    ///
    /// A resource that offers more verbs never fits less. A watch by `?watch=true` is a route of list: whether the resource
    /// offers watch is left to the handler.
    pub fn check_route(&self, scope: KindScope, offers: impl Fn(Verb) -> bool) -> Result<(), RouteMismatch> {
        let routes = self.routes(scope);
        if !routes.iter().any(|&(method, verb)| method == self.method && offers(verb)) {
            let is_known = routes.iter().any(|&(_, verb)| offers(verb));
            return Err(if is_known { RouteMismatch::MethodNotAllowed } else { RouteMismatch::NotFound });
        }
        if self.path_form.depth != PathDepth::Collection && self.name.is_empty() {
            return Err(RouteMismatch::NameRequired);
        }
        // Lists and watches over the empty namespace are over all of them; a create is refused by validation of the object.
        let is_one_namespace = match self.verb {
            Verb::List | Verb::Watch => false,
            Verb::Create => self.path_form.depth != PathDepth::Collection,
            Verb::Get | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => true,
            Verb::Proxy | Verb::Unknown => true,
        };
        if scope == KindScope::Namespaced && self.namespace.is_empty() && is_one_namespace {
            return Err(RouteMismatch::NamespaceRequired);
        }
        Ok(())
    }

    fn routes(&self, scope: KindScope) -> &'static [MethodRoute] {
        let path_form = self.path_form;
        match (scope, path_form.in_namespace) {
            _ if !path_form.is_rooted => return NO_ROUTES,
            (KindScope::Cluster, true) => return NO_ROUTES,
            (KindScope::Namespaced, false) if path_form.depth != PathDepth::Collection => return NO_ROUTES,
            (KindScope::Namespaced, false) if path_form.prefix == VerbPrefix::None => return ALL_NAMESPACES,
            (KindScope::Namespaced, _) | (KindScope::Cluster, false) => {}
        }
        let is_proxy = self.subresource == "proxy";
        match (path_form.prefix, path_form.depth) {
            (VerbPrefix::Proxy, _) => NO_ROUTES,
            // An empty segment where a subresource is expected.
            (_, PathDepth::Subresource | PathDepth::Subpath) if self.subresource.is_empty() => NO_ROUTES,
            (VerbPrefix::Watch, PathDepth::Collection | PathDepth::Item | PathDepth::Subresource) => WATCH,
            (VerbPrefix::None, PathDepth::Collection) => COLLECTION,
            (VerbPrefix::None, PathDepth::Item) => ITEM,
            (VerbPrefix::None, PathDepth::Subresource | PathDepth::Subpath) if is_proxy => PROXY,
            (VerbPrefix::None, PathDepth::Subresource) => SUBRESOURCE,
            (VerbPrefix::None | VerbPrefix::Watch, PathDepth::Subpath) => NO_ROUTES,
        }
    }
}

#[cfg(test)]
mod tests;
