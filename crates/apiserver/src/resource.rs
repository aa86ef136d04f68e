//! A resource as handlers see it: one resource in one version, with the cache of its objects.

use std::borrow::Cow;
use std::sync::Arc;

use api::json::JsonObject;
use api::target::ResourceTarget;
use api::{GroupResource, GroupVersionKind, KindScope, RouteMismatch};
use kinds::{KindStrategy, ServedResource, ServedResources, StoredResource, VerbSet};
use object::KindRules;
use object::convert::convert;
use object::scale::ScalePaths;
use object::selectable_fields::SelectableFields;
use registry::ResourceCache;

/// One stored resource in one version, with the cache of its objects. Requests and watches share it.
#[derive(Debug)]
pub(crate) struct Resource {
    served_resources: Arc<ServedResources>,
    /// The index in `ServedResources::resources`.
    position: usize,
    stored_resource: Arc<StoredResource>,
    /// The objects, in whatever version each is stored.
    pub(crate) cache: Arc<ResourceCache>,
}

/// What a resource or subresource offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceOffer {
    pub(crate) verbs: VerbSet,
    pub(crate) is_implemented: bool,
}

impl Resource {
    /// A built-in resource by its index in `ServedResources::resources`; `None` if it is not stored.
    pub(crate) fn built_in(
        served_resources: &Arc<ServedResources>,
        position: usize,
        cache_of: impl FnOnce(&StoredResource) -> Option<Arc<ResourceCache>>,
    ) -> Option<Self> {
        let stored_resource = served_resources.resources()[position].stored_resource.clone()?;
        let cache = cache_of(&stored_resource)?;
        Some(Self { served_resources: served_resources.clone(), position, stored_resource, cache })
    }

    pub(crate) fn served(&self) -> &ServedResource {
        &self.served_resources.resources()[self.position]
    }

    pub(crate) fn group_version_kind(&self) -> GroupVersionKind<&str> {
        self.served().group_version_kind()
    }

    /// The kind of a list of the objects.
    pub(crate) fn list_kind(&self) -> Cow<'_, str> {
        format!("{}List", self.served().kind.name).into()
    }

    pub(crate) fn scope(&self) -> KindScope {
        self.served().kind.scope
    }

    pub(crate) fn rules(&self) -> &KindRules {
        &self.served().rules
    }

    pub(crate) fn strategy(&self) -> &'static KindStrategy {
        self.served().kind.strategy
    }

    pub(crate) fn selectable_fields(&self) -> &'static SelectableFields {
        self.strategy().selectable_fields
    }

    pub(crate) fn scale_paths(&self) -> &ScalePaths<'_> {
        &self.strategy().scale
    }

    /// The resource in the notation of storage versions.
    pub(crate) fn storage_name(&self) -> GroupResource<&str> {
        GroupResource { group: self.stored_resource.encoding.group, resource: self.stored_resource.resource }
    }

    /// What the resource or one of its subresources offers; `None` if there is no such subresource.
    pub(crate) fn offer(&self, subresource: &str) -> Option<ResourceOffer> {
        offer(self.served(), subresource)
    }

    /// Converts an object to the version of this resource.
    pub(crate) fn convert_to_served(&self, object: &mut JsonObject) {
        convert(object, self.group_version_kind(), self.strategy().conversion);
    }

    /// Converts an object to the version in which objects are stored.
    pub(crate) fn convert_to_stored(&self, object: &mut JsonObject) {
        convert(object, self.stored_resource.encoding, self.strategy().conversion);
    }
}

/// What a built-in resource or one of its subresources offers.
pub(crate) fn offer(served: &ServedResource, subresource: &str) -> Option<ResourceOffer> {
    match subresource {
        "" => Some(ResourceOffer { verbs: served.kind.verbs, is_implemented: served.kind.is_implemented }),
        subresource => {
            let offered = served.subresource(subresource)?;
            Some(ResourceOffer { verbs: offered.verbs, is_implemented: offered.is_implemented })
        }
    }
}

/// Checks the path and method of a request against the scope and verbs of its resource.
pub(crate) fn check_path_and_method(
    scope: KindScope,
    offer: Option<ResourceOffer>,
    target: &ResourceTarget<'_>,
) -> Result<(), RouteMismatch> {
    let verbs = offer.ok_or(RouteMismatch::NotFound)?.verbs;
    target.check_route(scope, |verb| verbs.contains(verb.as_str()))
}
