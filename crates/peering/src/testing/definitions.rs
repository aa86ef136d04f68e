//! Definitions in storage, for tests.

use std::collections::BTreeSet;

use api::GroupVersionResource;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ports::{Changes, Definitions};

/// Definitions that a test makes.
#[derive(Debug, Default)]
pub(crate) struct Defined {
    resources: Mutex<BTreeSet<String>>,
    changes: watch::Sender<u64>,
}

impl Defined {
    /// Defines a resource, written as `group/version/resource`.
    pub(crate) fn define(&self, name: &str) {
        self.resources.lock().insert(name.to_owned());
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl Definitions for Defined {
    fn bring(&self, name: GroupVersionResource<&str>) -> bool {
        let GroupVersionResource { group, version, resource } = name;
        self.resources.lock().contains(&format!("{group}/{version}/{resource}"))
    }

    fn follow(&self) -> Box<dyn Changes> {
        Box::new(Followed(self.changes.subscribe()))
    }
}

struct Followed(watch::Receiver<u64>);

impl Changes for Followed {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(crate::wait::changed(&mut self.0))
    }
}
