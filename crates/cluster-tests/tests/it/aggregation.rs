//! APIServices: the automatic ones, and requests to extension API servers.

mod automatic;
mod endpoints;
mod extension_server;
mod migration;
mod openapi;
mod outages;
mod proxying;
mod registration;

use std::time::Duration;

use cluster_tests::client::FullResponse;
use cluster_tests::wait::wait_within;
use cluster_tests::{Client, ControlPlane, TestStore};
use extension_server::{ExtensionServer, Mode};
use serde_json::{Value, json};

use crate::block_on;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Longer than servers need to see a change of the cluster or of an extension server.
const LIMIT: Duration = Duration::from_secs(30);
const DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn api_service_path(name: &str) -> String {
    format!("{API_SERVICES}/{name}")
}

async fn get_accepting(client: &Client, path: &str, accept: &str) -> Value {
    let request = client.request_builder(http::Method::GET, path).header(http::header::ACCEPT, accept);
    client.send(request, bytes::Bytes::new()).await.json()
}

/// The status and the text of a page.
fn shown(response: &FullResponse) -> String {
    format!("{} {}", response.status.as_u16(), String::from_utf8_lossy(&response.body).trim_end())
}

/// The condition `Available`: status, reason and message.
async fn available(client: &Client, name: &str) -> (String, String, String) {
    let found = client.get(&api_service_path(name)).await.json();
    let condition = &found["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[track_caller]
fn wait_until_available(client: &Client, name: &str, status: &str, reason: &str) {
    wait_within(LIMIT, &format!("{name} is {status} {reason}"), async || {
        let found = available(client, name).await;
        if (found.0.as_str(), found.1.as_str()) == (status, reason) { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

/// The versions of a group in aggregated discovery: name, freshness, names of resources.
async fn listed_versions(client: &Client, group: &str) -> Vec<String> {
    let document = get_accepting(client, "/apis", DISCOVERY_ACCEPT).await;
    let groups = document["items"].as_array().unwrap();
    let found = groups.iter().find(|item| item["metadata"]["name"] == *group);
    let versions = found.map(|found| found["versions"].as_array().unwrap().clone()).unwrap_or_default();
    let shown = versions.iter().map(|version| {
        let resources = version["resources"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = resources.iter().map(|resource| resource["resource"].as_str().unwrap()).collect();
        format!(
            "{} {} {}",
            version["version"].as_str().unwrap(),
            version["freshness"].as_str().unwrap(),
            names.join(",")
        )
    });
    shown.collect()
}

#[track_caller]
fn wait_until_listed(client: &Client, group: &str, expected: &[&str]) {
    wait_within(LIMIT, &format!("{group} lists {expected:?}"), async || {
        let found = listed_versions(client, group).await;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    });
}
