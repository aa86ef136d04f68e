//! What objects in storage bring, for routing and merged discovery: custom resources and group-versions of extension API servers.
//!
//! Each part has one writer; the publisher combines them.

use std::sync::Arc;

use discovery::CreationTimestamp;
use discovery::build::{LocalGroupVersion, build};
use membership::exclusion::{DefinedResource, SharedResources};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::definitions::CustomResources;

/// Publishes the combination of both parts.
#[derive(Debug, Default)]
pub struct SharedPublisher {
    parts: Mutex<SharedParts>,
    combined: watch::Sender<SharedResources>,
}

#[derive(Debug, Default)]
struct SharedParts {
    custom: Arc<CustomResources>,
    extensions: Arc<Vec<LocalGroupVersion>>,
    /// The last combination and the parts that it was made from: most changes of definitions change nothing here.
    last: Option<Combination>,
}

#[derive(Debug)]
struct Combination {
    custom: SharedResources,
    extensions: Arc<Vec<LocalGroupVersion>>,
    combined: SharedResources,
}

impl SharedPublisher {
    /// The combination as it changes.
    pub fn subscribe(&self) -> watch::Receiver<SharedResources> {
        self.combined.subscribe()
    }

    /// Replaces the custom resources.
    pub(crate) fn set_custom(&self, custom: &Arc<CustomResources>) {
        let mut parts = self.parts.lock();
        parts.custom = custom.clone();
        self.combined.send_replace(parts.combine());
    }

    /// Replaces the group-versions of extension API servers.
    pub(crate) fn set_extensions(&self, extensions: &Arc<Vec<LocalGroupVersion>>) {
        let mut parts = self.parts.lock();
        parts.extensions = extensions.clone();
        self.combined.send_replace(parts.combine());
    }
}

impl SharedParts {
    fn combine(&mut self) -> SharedResources {
        let custom = self.custom.shared();
        if self.extensions.is_empty() {
            return custom.clone();
        }
        if let Some(last) = &self.last
            && Arc::ptr_eq(&last.custom.defined, &custom.defined)
            && Arc::ptr_eq(&last.custom.groups, &custom.groups)
            && Arc::ptr_eq(&last.extensions, &self.extensions)
        {
            return last.combined.clone();
        }
        let delegated = self
            .extensions
            .iter()
            .map(|part| DefinedResource::GroupVersion { group: part.group.clone(), version: part.version.clone() });
        let defined = custom.defined.iter().cloned().chain(delegated).collect();
        let mut parts = self.custom.custom_discovery().group_versions;
        parts.extend(self.extensions.iter().cloned());
        let groups = Arc::new(build(&parts, CreationTimestamp::Absent));
        let combined = SharedResources { defined: Arc::new(defined), groups };
        let (custom, extensions) = (custom.clone(), self.extensions.clone());
        self.last = Some(Combination { custom, extensions, combined: combined.clone() });
        combined
    }
}
