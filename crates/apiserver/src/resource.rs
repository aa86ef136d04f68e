//! A resource as handlers see it: one resource in one version, built-in or custom, with the cache of its objects.

use std::borrow::Cow;
use std::sync::Arc;

use api::json::JsonObject;
use api::target::ResourceTarget;
use api::{GroupResource, GroupVersionKind, KindScope, RouteMismatch, Status, Verb};
use apiextensions::CustomResourceVersion;
use kinds::{KindStrategy, ServedResource, ServedResources, StoredResource, VerbSet};
use object::convert::convert;
use object::{KindRules, StoredObject};
use registry::ResourceCache;

use crate::definitions::{LiveDefinition, RequestConversions, View};

/// One stored resource in one version, with the cache of its objects. Requests and watches share it.
#[derive(Debug)]
pub(crate) struct Resource {
    origin: ResourceOrigin,
    /// The objects, in whatever version each is stored.
    pub(crate) cache: Arc<ResourceCache>,
}

/// Where a resource comes from.
#[derive(Debug)]
enum ResourceOrigin {
    BuiltIn {
        served_resources: Arc<ServedResources>,
        /// The index in `ServedResources::resources`.
        position: usize,
        stored_resource: Arc<StoredResource>,
    },
    Custom {
        live: Arc<LiveDefinition>,
        /// The index in `LiveDefinition::versions`.
        position: usize,
        /// The conversions of the request; `None` outside of requests, and if the definition has no webhook.
        conversions: Option<Arc<RequestConversions>>,
    },
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
        let served_resources = served_resources.clone();
        Some(Self { origin: ResourceOrigin::BuiltIn { served_resources, position, stored_resource }, cache })
    }

    /// A version of a custom resource by its index in `LiveDefinition::versions`.
    pub(crate) fn custom(live: &Arc<LiveDefinition>, position: usize, cache: &Arc<ResourceCache>) -> Self {
        let origin = ResourceOrigin::Custom { live: live.clone(), position, conversions: None };
        Self { origin, cache: cache.clone() }
    }

    /// The resource for one request or watch, if its objects may need a conversion webhook; otherwise the shared one.
    pub(crate) fn with_conversions(
        self: Arc<Self>,
        conversions: impl FnOnce() -> Arc<RequestConversions>,
    ) -> Arc<Self> {
        match &self.origin {
            ResourceOrigin::Custom { live, position, .. } if live.has_webhook() => {
                let origin = ResourceOrigin::Custom {
                    live: live.clone(),
                    position: *position,
                    conversions: Some(conversions()),
                };
                Arc::new(Self { origin, cache: self.cache.clone() })
            }
            ResourceOrigin::Custom { .. } | ResourceOrigin::BuiltIn { .. } => self,
        }
    }

    /// The resource for the request or watch that `former` is for.
    pub(crate) fn with_conversions_of(self: Arc<Self>, former: &Self) -> Arc<Self> {
        match &former.origin {
            ResourceOrigin::Custom { conversions: Some(conversions), .. } => {
                self.with_conversions(|| conversions.clone())
            }
            ResourceOrigin::Custom { .. } | ResourceOrigin::BuiltIn { .. } => self,
        }
    }

    /// The conversions of the request; `None` if no object needs a webhook.
    pub(crate) fn conversions(&self) -> Option<&RequestConversions> {
        match &self.origin {
            ResourceOrigin::Custom { conversions, .. } => conversions.as_deref(),
            ResourceOrigin::BuiltIn { .. } => None,
        }
    }

    /// True if the webhook must convert a stored object.
    pub(crate) fn needs_webhook(&self, stored: &StoredObject) -> bool {
        self.as_custom().is_some_and(|(live, version)| live.needs_webhook(stored, version))
    }

    /// Performs the conversions that a decision found missing. False if there were none, so that the outcome of the
    /// decision counts.
    pub(crate) async fn run_conversions(&self) -> Result<bool, Status> {
        match &self.origin {
            ResourceOrigin::Custom { live, conversions: Some(conversions), .. } => {
                Box::pin(conversions.run_pending(live)).await
            }
            ResourceOrigin::Custom { .. } | ResourceOrigin::BuiltIn { .. } => Ok(false),
        }
    }

    /// Converts stored objects in as few calls as possible, so that [`Self::to_served`] finds them converted.
    pub(crate) async fn convert_ahead(&self, objects: impl Iterator<Item = &StoredObject>) -> Result<(), Status> {
        if self.conversions().is_none() {
            return Ok(());
        }
        for stored in objects.filter(|stored| self.needs_webhook(stored)) {
            // Records the conversion if it is missing.
            let _ = self.to_served(stored);
        }
        self.run_conversions().await.map(drop)
    }

    /// The built-in resource; `None` for a custom one.
    pub(crate) fn as_built_in(&self) -> Option<&ServedResource> {
        match &self.origin {
            ResourceOrigin::BuiltIn { served_resources, position, .. } => {
                Some(&served_resources.resources()[*position])
            }
            ResourceOrigin::Custom { .. } => None,
        }
    }

    /// The custom resource and its version; `None` for a built-in one.
    pub(crate) fn as_custom(&self) -> Option<(&Arc<LiveDefinition>, &CustomResourceVersion)> {
        match &self.origin {
            ResourceOrigin::BuiltIn { .. } => None,
            ResourceOrigin::Custom { live, position, .. } => Some((live, &live.versions[*position])),
        }
    }

    /// What watches of a custom resource show; `details` if they depend on its columns or selectable fields. `None` for
    /// built-in resources, which never change.
    pub(crate) fn view(&self, details: bool) -> Option<&Arc<View>> {
        match &self.origin {
            ResourceOrigin::BuiltIn { .. } => None,
            ResourceOrigin::Custom { live, position, .. } => {
                let views = live.views(*position);
                Some(if details { &views.details } else { &views.objects })
            }
        }
    }

    pub(crate) fn group_version_kind(&self) -> GroupVersionKind<&str> {
        match &self.origin {
            ResourceOrigin::BuiltIn { served_resources, position, .. } => {
                served_resources.resources()[*position].group_version_kind()
            }
            ResourceOrigin::Custom { live, position, .. } => live.versions[*position].group_version_kind(),
        }
    }

    /// The kind of a list of the objects.
    pub(crate) fn list_kind(&self) -> Cow<'_, str> {
        match self.as_custom() {
            Some((_, version)) => version.list_kind().into(),
            None => format!("{}List", self.group_version_kind().kind).into(),
        }
    }

    pub(crate) fn scope(&self) -> KindScope {
        self.rules().scope
    }

    pub(crate) fn rules(&self) -> &KindRules {
        match &self.origin {
            ResourceOrigin::BuiltIn { served_resources, position, .. } => {
                &served_resources.resources()[*position].rules
            }
            ResourceOrigin::Custom { live, position, .. } => live.versions[*position].rules(),
        }
    }

    /// What is special about the kind; nothing for custom kinds.
    pub(crate) fn strategy(&self) -> &'static KindStrategy {
        self.as_built_in().map_or(KindStrategy::CUSTOM, |served| served.kind.strategy)
    }

    /// The resource in the notation of storage versions.
    pub(crate) fn storage_name(&self) -> GroupResource<&str> {
        match &self.origin {
            ResourceOrigin::BuiltIn { stored_resource, .. } => {
                GroupResource { group: stored_resource.encoding.group, resource: stored_resource.resource }
            }
            ResourceOrigin::Custom { live, .. } => {
                let spec = &live.definition.spec;
                GroupResource { group: &spec.group, resource: &spec.names.plural }
            }
        }
    }

    /// What the resource or one of its subresources offers; `None` if there is no such subresource.
    pub(crate) fn offer(&self, subresource: &str) -> Option<ResourceOffer> {
        match (self.as_built_in(), self.as_custom()) {
            (Some(served), _) => offer(served, subresource),
            (None, Some((_, version))) => {
                let verbs = match subresource {
                    "" => VerbSet::ALL,
                    "status" if version.has_status() => VerbSet::GET_PATCH_UPDATE,
                    "scale" if version.scale().is_some() => VerbSet::GET_PATCH_UPDATE,
                    _ => return None,
                };
                Some(ResourceOffer { verbs, is_implemented: true })
            }
            (None, None) => None,
        }
    }

    /// The text of the `Warning` header for a deprecated resource.
    pub(crate) fn deprecation_warning(&self) -> Option<&str> {
        self.as_custom().and_then(|(_, version)| version.deprecation_warning())
    }

    /// True if the stored bytes of an object are its form in this version. Of a custom object they are if decoding under
    /// the current schema changes nothing.
    pub(crate) fn is_stored_form(&self, stored: &StoredObject) -> bool {
        let name = self.group_version_kind();
        let is_same_version = match stored.api_version.split_once('/') {
            Some((group, version)) => group == name.group && version == name.version,
            None => name.group.is_empty() && *stored.api_version == *name.version,
        };
        match self.as_custom() {
            Some((live, version)) if is_same_version => stored.form.is_unchanged(live.schema_number, || {
                live.to_served(stored, version, None).is_ok_and(|served| served == stored.to_object())
            }),
            Some(_) => false,
            None => is_same_version,
        }
    }

    /// True if an object is stored in the version in which this server stores objects.
    pub(crate) fn is_stored_in_current_version(&self, stored: &StoredObject) -> bool {
        let (group, version) = match &self.origin {
            ResourceOrigin::BuiltIn { stored_resource, .. } => {
                (stored_resource.encoding.group, stored_resource.encoding.version)
            }
            ResourceOrigin::Custom { live, .. } => {
                let Some(storage) = live.definition.storage_version() else { return true };
                (live.definition.spec.group.as_str(), storage.name.as_str())
            }
        };
        match stored.api_version.split_once('/') {
            Some(stored_in) => stored_in == (group, version),
            None => group.is_empty() && *stored.api_version == *version,
        }
    }

    /// Brings a stored object to the version of this resource. Fails if the conversion by a webhook is missing:
    /// [`Self::run_conversions`] performs it.
    pub(crate) fn to_served(&self, stored: &StoredObject) -> Result<JsonObject, Status> {
        if let Some((live, version)) = self.as_custom() {
            return live.to_served(stored, version, self.conversions());
        }
        let mut object = stored.to_object();
        if !self.is_stored_form(stored) {
            convert(&mut object, self.group_version_kind(), self.strategy().conversion);
        }
        Ok(object)
    }

    /// Brings an object of this resource to the version in which objects are stored. Fails like [`Self::to_served`].
    pub(crate) fn to_stored(&self, object: &mut JsonObject) -> Result<(), Status> {
        match &self.origin {
            ResourceOrigin::BuiltIn { stored_resource, .. } => {
                convert(object, stored_resource.encoding, self.strategy().conversion);
                Ok(())
            }
            ResourceOrigin::Custom { live, position, .. } => {
                live.to_stored(object, &live.versions[*position], self.conversions())
            }
        }
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

/// Why a path and method do not fit a custom resource.
pub(crate) enum CustomPathMismatch {
    /// kube-apiserver has no handler for the path.
    NoPage,
    /// The handler of custom resources rejects the request.
    Rejected(Status),
}

/// Checks what kube-apiserver's handler of custom resources responds in its own words. A create at the path of an object
/// stays rejected like for built-in resources, whereas kube-apiserver creates the object of any name.
pub(crate) fn check_custom_path(resource: &Resource, target: &ResourceTarget<'_>) -> Result<(), CustomPathMismatch> {
    let path = target.path_form;
    let is_in_scope = match resource.scope() {
        KindScope::Cluster => !path.in_namespace,
        KindScope::Namespaced => path.in_namespace || matches!(target.verb, Verb::List | Verb::Watch),
    };
    if !is_in_scope {
        return Err(CustomPathMismatch::NoPage);
    }
    let reject = |status| Err(CustomPathMismatch::Rejected(status));
    let (name, verb) = (target.group_resource(), target.verb.as_str());
    match resource.offer(&target.subresource) {
        None => reject(Status::not_found(name, &target.name)),
        Some(offer) if !target.subresource.is_empty() && !offer.verbs.contains(verb) => {
            reject(Status::method_not_supported(name, verb))
        }
        Some(_) if matches!(target.verb, Verb::Update | Verb::Patch) && target.name.is_empty() => {
            reject(Status::bad_request("name must be provided"))
        }
        Some(_) => Ok(()),
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
