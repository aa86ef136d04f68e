//! Definitions in storage, for tests.

use std::collections::BTreeSet;

use api::GroupVersionResource;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ports::{ChangeNotifications, DefinitionStorage};

/// Definitions that a test makes.
#[derive(Debug, Default)]
pub(crate) struct MemoryDefinitions {
    resources: Mutex<BTreeSet<String>>,
    changes: watch::Sender<u64>,
}

impl MemoryDefinitions {
    /// Defines a resource, written as `group/version/resource`.
    pub(crate) fn define(&self, name: &str) {
        self.resources.lock().insert(name.to_owned());
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl DefinitionStorage for MemoryDefinitions {
    fn defines(&self, name: GroupVersionResource<&str>) -> bool {
        let GroupVersionResource { group, version, resource } = name;
        self.resources.lock().contains(&format!("{group}/{version}/{resource}"))
    }

    fn watch(&self) -> Box<dyn ChangeNotifications> {
        Box::new(MemoryDefinitionChanges(self.changes.subscribe()))
    }
}

struct MemoryDefinitionChanges(watch::Receiver<u64>);

impl ChangeNotifications for MemoryDefinitionChanges {
    fn wait_for_change(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(crate::wait::wait_for_change(&mut self.0))
    }
}
