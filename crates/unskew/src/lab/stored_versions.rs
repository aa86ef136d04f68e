//! Publishes the versions in which the objects of the running lab are stored, for `unskew status` and the page.

use std::collections::BTreeMap;
use std::time::Duration;

use ::lab::LabHandle;
use ::lab::status::StoredVersionsSummary;
use preflight::inventory::{Inventory, InventoryBuilder};
use preflight::key_layout::ResourceClass;
use tokio::time::Instant;

use super::args::DataDirArgs;
use crate::inventory::{self, StorageArgs, StorageReader};

/// The interval of reads of a small storage.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// A read that takes long is followed by a pause this many times as long.
const PAUSE_FACTOR: u32 = 20;
const ETCD_PREFIX: &str = "/registry";

/// Reads storage now and then until the lab stops.
pub(super) async fn publish(lab: LabHandle) {
    let stop = lab.stop.clone();
    while !stop.is_cancelled() {
        let started = Instant::now();
        match stop.run_until_cancelled(read_inventory(&lab)).await {
            Some(Ok(inventory)) => {
                let found = summarize(&inventory);
                lab.stored_versions.send_if_modified(|known| {
                    let is_news = *known != found;
                    *known = found;
                    is_news
                });
            }
            Some(Err(error)) => tracing::debug!(%error, "failed to read stored versions, will retry"),
            None => return,
        }
        let pause = READ_INTERVAL.max(started.elapsed() * PAUSE_FACTOR);
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

async fn read_inventory(lab: &LabHandle) -> anyhow::Result<Inventory> {
    let args = StorageArgs {
        lab: DataDirArgs { data_dir: Some(lab.data_dir.path().to_owned()) },
        sqlite_file: None,
        etcd_servers: Vec::new(),
        etcd_cafile: None,
        etcd_certfile: None,
        etcd_keyfile: None,
        etcd_prefix: ETCD_PREFIX.to_owned(),
        encryption_provider_config: None,
    };
    inventory::scan(StorageReader::open(&args).await?.quiet(), InventoryBuilder::new(ETCD_PREFIX, None)).await
}

fn summarize(inventory: &Inventory) -> Vec<StoredVersionsSummary> {
    let served = inventory
        .resources
        .iter()
        .filter(|resource| matches!(resource.class, ResourceClass::BuiltIn | ResourceClass::Custom));
    let mut summaries: Vec<StoredVersionsSummary> = served
        .map(|resource| {
            let mut versions: BTreeMap<String, u64> = BTreeMap::new();
            for form in &resource.forms {
                let version = form.api_version.clone().unwrap_or_else(|| "unknown".to_owned());
                *versions.entry(version).or_default() += form.objects;
            }
            let group = if resource.group.is_empty() { "core" } else { &resource.group };
            let name = format!("{group}.{}", resource.resource);
            StoredVersionsSummary { name, versions: versions.into_iter().collect() }
        })
        .collect();
    summaries.sort_by(|one, other| one.name.cmp(&other.name));
    summaries
}
