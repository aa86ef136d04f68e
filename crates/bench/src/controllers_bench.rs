//! Controllers inside a server: memory, and time to delete full namespaces.

use std::time::{Duration, Instant};

use cluster_tests::{Client, RunningServer, TestStore};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::Effort;
use crate::serve_bench::load::{AdminTls, LoadGenerator};
use crate::serve_bench::{has_server, new_object};
use crate::table::{BenchRow, BenchTable, Measurement};

/// Goal for deleting 10,000 objects in 200 namespaces.
const DELETION_TIME_MAX: Duration = Duration::from_secs(30);
const NAMESPACES_PATH: &str = "/api/v1/namespaces";
/// Clients that fill a namespace.
const WRITERS: usize = 10;
/// Poll interval until all namespaces are gone; fine enough for a result in seconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    if !has_server() {
        table.note("controllers: skipped, because UNSKEW_BIN is not set; `cargo xtask bench` sets it");
        return Ok(());
    }
    let (namespaces, each) = match effort {
        Effort::Quick => (2, 10),
        Effort::Full => (200, 50),
    };
    let folder = tempfile::tempdir()?;
    let without = RunningServer::start(folder.path(), TestStore::Sqlite, &["--controllers="]);
    let bare = without.resident_bytes();
    without.stop();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &["--controllers=*"]);
    let admin = server.admin();
    Runtime::new()?.block_on(async {
        wait_for_controllers(&admin).await;
        let idle =
            BenchRow::new("resident memory, idle, with controllers", Measurement::Bytes(server.resident_bytes()));
        table.push(idle.compared_with("without", Measurement::Bytes(bare)));
        let load = LoadGenerator {
            tls: AdminTls::for_admin(&server)?,
            address: server.address().to_owned(),
            duration: Duration::ZERO,
        };
        for number in 0..namespaces {
            admin.create(NAMESPACES_PATH, &json!({"metadata": {"name": format!("full-{number}")}})).await;
            let path = format!("{NAMESPACES_PATH}/full-{number}/configmaps");
            load.repeat(WRITERS, each / WRITERS, "POST", &path, new_object).await?;
        }
        let begun = Instant::now();
        for number in 0..namespaces {
            admin.delete(&format!("{NAMESPACES_PATH}/full-{number}")).await;
        }
        while count_bench_namespaces(&admin).await > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let name = format!("{} objects in {namespaces} namespaces gone", namespaces * each);
        table.push(BenchRow::time(name, begun.elapsed()).with_goal(Measurement::Time(DELETION_TIME_MAX)));
        table.push(BenchRow::new("resident memory after that", Measurement::Bytes(server.resident_bytes())));
        Ok(())
    })
}

/// Waits until the controllers run, by creating and deleting a namespace.
async fn wait_for_controllers(admin: &Client) {
    admin.create(NAMESPACES_PATH, &json!({"metadata": {"name": "full-of-nothing"}})).await;
    admin.delete(&format!("{NAMESPACES_PATH}/full-of-nothing")).await;
    while count_bench_namespaces(admin).await > 0 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn count_bench_namespaces(admin: &Client) -> usize {
    let list = admin.get(NAMESPACES_PATH).await.json();
    let names = list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str());
    names.filter(|name| name.starts_with("full-")).count()
}
