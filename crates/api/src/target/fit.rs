//! Whether a path and a method fit a resource, by the routes that kube-apiserver registers for it.
//!
//! Authorization looks at the namespace of a path, handlers look at the scope of the resource. [`Resource::fit`] refuses every
//! request for which the two differ, so that a right in one namespace is never a right on a cluster-scoped resource. Built-in
//! resources, reviews and routing over documents of peers share it.

use super::{Depth, Method, Prefix, Resource, Verb};

/// Whether the objects of a resource live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One per cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// Why a request fits no route of its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misfit {
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
type Route = (Method, Verb);

const COLLECTION: &[Route] =
    &[(Method::Get, Verb::List), (Method::Post, Verb::Create), (Method::Delete, Verb::DeleteCollection)];
const ITEM: &[Route] = &[
    (Method::Get, Verb::Get),
    (Method::Put, Verb::Update),
    (Method::Patch, Verb::Patch),
    (Method::Delete, Verb::Delete),
];
const SUBRESOURCE: &[Route] = &[
    (Method::Get, Verb::Get),
    (Method::Post, Verb::Create),
    (Method::Put, Verb::Update),
    (Method::Patch, Verb::Patch),
    (Method::Delete, Verb::Delete),
];
/// The subresource `proxy` passes on two more methods, which discovery has no verbs for.
const PROXY: &[Route] = &[
    (Method::Get, Verb::Get),
    (Method::Post, Verb::Create),
    (Method::Put, Verb::Update),
    (Method::Patch, Verb::Patch),
    (Method::Delete, Verb::Delete),
    (Method::Head, Verb::Get),
    (Method::Options, Verb::Get),
];
const ACROSS_NAMESPACES: &[Route] = &[(Method::Get, Verb::List)];
const WATCH: &[Route] = &[(Method::Get, Verb::Watch)];
const NONE: &[Route] = &[];

impl Resource<'_> {
    /// Checks the path and method against the routes of a resource with this scope and these verbs; for a path with a
    /// subresource the verbs are those of the subresource.
    ///
    /// A resource that offers more verbs never fits less. A watch by `?watch=true` is a route of list: whether the resource
    /// offers watch is left to the handler.
    pub fn fit(&self, scope: Scope, offers: impl Fn(Verb) -> bool) -> Result<(), Misfit> {
        let routes = self.routes(scope);
        if !routes.iter().any(|&(method, verb)| method == self.method && offers(verb)) {
            let is_known = routes.iter().any(|&(_, verb)| offers(verb));
            return Err(if is_known { Misfit::MethodNotAllowed } else { Misfit::NotFound });
        }
        if self.form.depth != Depth::Collection && self.name.is_empty() {
            return Err(Misfit::NameRequired);
        }
        // Lists and watches over the empty namespace are over all of them; a create is refused by validation of the object.
        let is_one_namespace = match self.verb {
            Verb::List | Verb::Watch => false,
            Verb::Create => self.form.depth != Depth::Collection,
            Verb::Get | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => true,
            Verb::Proxy | Verb::Unknown => true,
        };
        if scope == Scope::Namespaced && self.namespace.is_empty() && is_one_namespace {
            return Err(Misfit::NamespaceRequired);
        }
        Ok(())
    }

    fn routes(&self, scope: Scope) -> &'static [Route] {
        let form = self.form;
        match (scope, form.in_namespace) {
            _ if !form.is_rooted => return NONE,
            (Scope::Cluster, true) => return NONE,
            (Scope::Namespaced, false) if form.depth != Depth::Collection => return NONE,
            (Scope::Namespaced, false) if form.prefix == Prefix::None => return ACROSS_NAMESPACES,
            (Scope::Namespaced, _) | (Scope::Cluster, false) => {}
        }
        let is_proxy = self.subresource == "proxy";
        match (form.prefix, form.depth) {
            (Prefix::Proxy, _) => NONE,
            // An empty segment where a subresource is expected.
            (_, Depth::Subresource | Depth::Beyond) if self.subresource.is_empty() => NONE,
            (Prefix::Watch, Depth::Collection | Depth::Item | Depth::Subresource) => WATCH,
            (Prefix::None, Depth::Collection) => COLLECTION,
            (Prefix::None, Depth::Item) => ITEM,
            (Prefix::None, Depth::Subresource | Depth::Beyond) if is_proxy => PROXY,
            (Prefix::None, Depth::Subresource) => SUBRESOURCE,
            (Prefix::None | Prefix::Watch, Depth::Beyond) => NONE,
        }
    }
}

#[cfg(test)]
mod tests;
