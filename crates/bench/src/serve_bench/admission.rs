//! What admission adds to a create: quotas, configurations that do not match, and a webhook that does.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::baseline_server::BaselineServer;
use super::beside_kube_apiserver::compare_creates;
use super::load::{AdminTls, LoadGenerator, compare_create_rates};
use super::{CONNECTIONS, CREATE_PATH, ServeBenchSizes, new_object};
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::median;

/// Goal for creates under a quota relative to creates without one, on SQLite.
const QUOTA_RATE_RATIO_MIN: f64 = 0.5;
/// Goal for creates under a quota relative to kube-apiserver, on etcd.
const QUOTA_RATE_BESIDE_KUBE_APISERVER_MIN: f64 = 1.0;
/// Goal for what configurations and policies that do not match add to a create.
const NOT_MATCHING_MAX: Duration = Duration::from_micros(100);
/// Goal for what a matching webhook adds to a create beyond the time of a call.
const WEBHOOK_MAX: Duration = Duration::from_micros(150);

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const LIMITED_PATH: &str = "/api/v1/namespaces/limited/configmaps";
/// Of version v1beta1, which needs no uid, so that a constant response suffices.
const ALLOWED: &str = r#"{"response":{"allowed":true}}"#;

pub(super) fn measure(sizes: ServeBenchSizes, table: &mut BenchTable) -> anyhow::Result<()> {
    let etcd = Etcd::start();
    for (name, store) in [("SQLite", TestStore::Sqlite), ("etcd", TestStore::Etcd(&etcd))] {
        let folder = tempfile::tempdir()?;
        let server = RunningServer::start(folder.path(), store, &[]);
        Runtime::new()?.block_on(measure_store(sizes, table, name, &server))?;
        server.stop();
    }
    let Some([ours, real]) = compare_creates(sizes, prepare_quota, LIMITED_PATH, new_object)? else {
        table.note("admission: creates beside kube-apiserver skipped, because KUBEBUILDER_ASSETS is not set");
        return Ok(());
    };
    table.push(
        BenchRow::new(
            format!("etcd: create under a quota, {CONNECTIONS} connections, second server"),
            Measurement::Rate(ours),
        )
        .compared_with("kube-apiserver", Measurement::Rate(real))
        .with_ratio_goal(QUOTA_RATE_BESIDE_KUBE_APISERVER_MIN),
    );
    Ok(())
}

/// Creates the namespace with a quota that does not limit, but is charged.
async fn prepare_quota(admin: Client) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limited"}});
    create(&admin, "/api/v1/namespaces", &namespace).await?;
    let hard = json!({"count/configmaps": "1000000000"});
    let mut quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": hard}});
    create(&admin, "/api/v1/namespaces/limited/resourcequotas", &quota).await?;
    // kube-apiserver refuses to charge a quota that no controller has seen.
    quota["status"] = json!({"hard": hard, "used": {"count/configmaps": "0"}});
    let status = admin.update("/api/v1/namespaces/limited/resourcequotas/q/status", &quota).await;
    anyhow::ensure!(status.status == 200, "{}", status.summary());
    Ok(())
}

async fn measure_store(
    sizes: ServeBenchSizes,
    table: &mut BenchTable,
    store: &str,
    server: &RunningServer,
) -> anyhow::Result<()> {
    let admin = server.admin();
    let load = LoadGenerator {
        tls: AdminTls::for_admin(server)?,
        address: server.address().to_owned(),
        duration: sizes.load_duration,
    };
    prepare_quota(server.admin()).await?;
    let [limited, free] = compare_create_rates(&load, CONNECTIONS, [LIMITED_PATH, CREATE_PATH], new_object).await?;
    let row =
        BenchRow::new(format!("{store}: create under a quota, {CONNECTIONS} connections"), Measurement::Rate(limited))
            .compared_with("without quota", Measurement::Rate(free));
    table.push(if store == "SQLite" { row.with_ratio_goal(QUOTA_RATE_RATIO_MIN) } else { row });

    let before = median(&mut load.measure_create_latencies(CREATE_PATH, new_object).await?);
    let webhook = BaselineServer::start(&server.pki(), ALLOWED.into())?;
    let ca = BASE64_STANDARD.encode(std::fs::read(server.pki().join("ca.crt"))?);
    let client = json!({"url": format!("https://{}/", webhook.address()), "caBundle": ca});
    create(
        &admin,
        &format!("{GROUP}/validatingwebhookconfigurations"),
        &configuration("called", "configmaps", &client),
    )
    .await?;
    let with_webhook = median(&mut load.measure_create_latencies(CREATE_PATH, new_object).await?);
    let direct = LoadGenerator { address: webhook.address(), ..load.clone() };
    let call = median(&mut direct.measure_create_latencies("/", new_object).await?);
    table.push(
        BenchRow::time(
            format!("{store}: added to a create by a matching webhook beyond a call"),
            with_webhook.saturating_sub(before).saturating_sub(call),
        )
        .with_goal(Measurement::Time(WEBHOOK_MAX))
        .compared_with("a call", Measurement::Time(call)),
    );
    let path = format!("{GROUP}/validatingwebhookconfigurations/called");
    let deleted = admin.delete(&path).await;
    anyhow::ensure!(deleted.status == 200, "{path}: {}", deleted.summary());

    let count = sizes.configurations;
    for (path, object) in (0..count).flat_map(not_matching) {
        create(&admin, &path, &object).await?;
    }
    let beside = median(&mut load.measure_create_latencies(CREATE_PATH, new_object).await?);
    table.push(
        BenchRow::time(
            format!("{store}: added to a create by {count} webhook configurations and {count} policies"),
            beside.saturating_sub(before),
        )
        .with_goal(Measurement::Time(NOT_MATCHING_MAX)),
    );
    Ok(())
}

/// A configuration and a policy with its binding. Half of them are for another resource, the others for objects with a
/// label that none has.
fn not_matching(number: usize) -> Vec<(String, Value)> {
    let name = format!("n{number}");
    let (kind, plural) = if number.is_multiple_of(2) { ("Validating", "validating") } else { ("Mutating", "mutating") };
    let resource = if number % 4 < 2 { "secrets" } else { "configmaps" };
    let mut webhooks = configuration(&name, resource, &json!({"url": "https://127.0.0.1:1/"}));
    webhooks["kind"] = format!("{kind}WebhookConfiguration").into();
    let selector = json!({"matchLabels": {"absent": name}});
    webhooks["webhooks"][0]["objectSelector"] = selector.clone();
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules, "objectSelector": selector}});
    let mut bound = json!({"policyName": name});
    if kind == "Validating" {
        spec["validations"] = json!([{"expression": "object.metadata.name != 'x'"}]);
        bound["validationActions"] = json!(["Deny"]);
    } else {
        spec["matchConstraints"]["resourceRules"][0]["operations"] = json!(["CREATE"]);
        let expression = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}";
        spec["mutations"] =
            json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]);
        spec["reinvocationPolicy"] = "Never".into();
    }
    let object = |kind: String, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    vec![
        (format!("{GROUP}/{plural}webhookconfigurations"), webhooks),
        (format!("{GROUP}/{plural}admissionpolicies"), object(format!("{kind}AdmissionPolicy"), spec)),
        (format!("{GROUP}/{plural}admissionpolicybindings"), object(format!("{kind}AdmissionPolicyBinding"), bound)),
    ]
}

fn configuration(name: &str, resource: &str, client: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [{"name": format!("{name}.example.com"), "clientConfig": client,
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1beta1"]}]})
}

async fn create(admin: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let created = admin.create(path, object).await;
    anyhow::ensure!(created.status == 201, "{path}: {}", created.summary());
    Ok(())
}
