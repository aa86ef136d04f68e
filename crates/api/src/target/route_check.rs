//! Checks path and method against the routes that kube-apiserver registers for a resource.
//!
//! Authorization uses the namespace of the path, handlers use the scope of the resource.
//! [`ResourceTarget::check_route`] rejects requests where the two disagree, so that a permission in one namespace
//! never grants access to a cluster-scoped resource. Built-in resources, reviews and the routing of peers' resources
//! share it.

use super::{HttpMethod, PathDepth, ResourceTarget, Verb, VerbPrefix};

/// The scope of a resource's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindScope {
    /// Objects have no namespace.
    Cluster,
    /// Objects have a namespace.
    Namespaced,
}

/// Why a request matches no route of its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteMismatch {
    /// No route has this path: 404.
    NotFound,
    /// The path has routes, but none with this method: 405.
    MethodNotAllowed,
    /// The segment for the object's name is empty: 400.
    NameRequired,
    /// The segment for the namespace is empty and the request is neither a list nor a watch: 400.
    NamespaceRequired,
}

/// A method and the verb that the resource must support for it.
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
/// The subresource `proxy` accepts two more methods, for which discovery has no verbs.
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
    /// Checks path and method against the routes of a resource with this scope and these verbs. For a path with a
    /// subresource, `offers` is about the subresource.
    ///
    /// More supported verbs never match fewer requests. A watch by `?watch=true` uses the route of list; the handler
    /// checks whether the resource supports watch.
    pub fn check_route(&self, scope: KindScope, offers: impl Fn(Verb) -> bool) -> Result<(), RouteMismatch> {
        let routes = self.routes(scope);
        if !routes.iter().any(|&(method, verb)| method == self.method && offers(verb)) {
            let is_known = routes.iter().any(|&(_, verb)| offers(verb));
            return Err(if is_known { RouteMismatch::MethodNotAllowed } else { RouteMismatch::NotFound });
        }
        if self.path_form.depth != PathDepth::Collection && self.name.is_empty() {
            return Err(RouteMismatch::NameRequired);
        }
        // Lists and watches with an empty namespace cover all namespaces; a create fails in validation.
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

    /// Returns the methods and verbs that kube-apiserver registers for a path of this form.
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
            // The subresource segment is empty.
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
