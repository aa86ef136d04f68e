//! Several servers in one process: none of them has process-wide state.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::Authorizer;
use access::authentication::{CertificateFieldSet, FrontProxy, FrontProxyHeaderNames};
use cluster_tests::Client;
use cluster_tests::client::ClientCredentials;
use cluster_tests::wait::eventually;
use controllers::ControllerSelection;
use edge::merged_discovery::MergeDiscovery;
use edge::pipeline::RequestLimits;
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources};
use membership::presence::PresenceTimings;
use serde_json::json;
use server::{
    AuthenticationConfig, Config, ControllerConfig, FRONT_PROXY_CA, FRONT_PROXY_CLIENT, FrontProxyConfig,
    PeerCertificates, PeerConfig, Server, ServiceAccountConfig, StorageConfig,
};
use tokio_util::sync::CancellationToken;
use transport::peer::Egress;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server of a release on the SQLite file and the keys in `dir`.
fn config(dir: &Path, release: Release) -> Config {
    let cert_dir = dir.join("pki");
    let gates = FeatureGates::new(release);
    let runtime = RuntimeConfig::parse(release, "").expect("the defaults are valid");
    Config {
        bind_ip: IpAddr::from(Ipv4Addr::LOCALHOST),
        port: 0,
        advertise_ip: None,
        serving_certificate: None,
        tls_policy: transport::TlsPolicy::default(),
        client_ca: None,
        storage: StorageConfig::Sqlite(dir.join("store.db")),
        prefix: "/registry".to_owned(),
        compaction_interval: Duration::from_secs(300),
        authentication: AuthenticationConfig {
            anonymous: true,
            token_file: None,
            front_proxy: Some(FrontProxyConfig {
                ca_file: cert_dir.join(format!("{FRONT_PROXY_CA}.crt")),
                rules: FrontProxy {
                    allowed_names: vec![FRONT_PROXY_CLIENT.to_owned()],
                    headers: FrontProxyHeaderNames::standard(),
                },
            }),
            service_accounts: ServiceAccountConfig {
                issuers: vec!["https://test".to_owned()],
                audiences: vec!["https://test".to_owned()],
                key_files: vec![],
                signing_key_file: cert_dir.join("sa.key"),
                generates_signing_key: true,
                jwks_url: None,
                token_seconds_max: None,
                extends_token_expiration: false,
            },
            certificate_fields: CertificateFieldSet::ALL,
        },
        cert_dir,
        authorizer: Authorizer::parse("RBAC").expect("it is a mode"),
        peers: PeerConfig {
            is_proxy_on: true,
            is_identity_on: true,
            hostname: None,
            advertise_ip: None,
            advertise_port: None,
            certificates: PeerCertificates::Generated,
            egress: Egress::Direct,
            timings: PresenceTimings::default(),
            linger: Duration::from_secs(60),
            publish_discovery: true,
            merge_discovery: MergeDiscovery::Aggregated,
            peer_response_headers: false,
            in_flight_max: None,
            bandwidth_max: None,
        },
        audit: None,
        controllers: ControllerConfig {
            migrates_automatically: false,
            migration_linger: Duration::ZERO,
            selection: ControllerSelection::parse(["*"]).expect("it is a selection"),
            root_ca_file: None,
        },
        served_resources: Arc::new(ServedResources::new(&gates, &runtime)),
        service_ranges: server::ServiceRanges::default(),
        admission: server::AdmissionConfig::for_release(release),
        gates,
        limits: RequestLimits { reads: 0, writes: 0, request_timeout: Duration::from_secs(60) },
        watch_seconds_min: 60,
        service_routing: server::ServiceRouting::default(),
        forwarded_redirects: server::ForwardedRedirects::Rejected,
        shutdown_delay: Duration::ZERO,
    }
}

/// An administrator's client, with the certificate that the servers generated.
fn admin_client(dir: &Path, server: &Server) -> Client {
    let pki = dir.join("pki");
    let credentials = ClientCredentials::Certificate { certificate: pki.join("admin.crt"), key: pki.join("admin.key") };
    Client::new(&server.address().to_string(), &pki.join("ca.crt"), credentials)
}

async fn wait_until_ready(client: &Client) {
    eventually("the server is ready", async || match client.is_ready().await {
        true => Ok(()),
        false => Err("not ready".to_owned()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_run_and_stop_in_one_process() {
    let dir = tempfile::tempdir().expect("a folder can be created");
    let start = |release| Server::start(config(dir.path(), release));
    let (old_server, new_server) = tokio::join!(start(Release::R34), start(Release::R36));
    let (old_server, new_server) = (old_server.expect("it starts"), new_server.expect("it starts"));
    let (old, new) = (admin_client(dir.path(), &old_server), admin_client(dir.path(), &new_server));
    let [stop_old, old_stopped, stop_new] = [(); 3].map(|()| CancellationToken::new());
    let old_running = async {
        old_server.run_until(stop_old.cancelled()).await.expect("it stops in order");
        old_stopped.cancel();
    };
    let new_running = async { new_server.run_until(stop_new.cancelled()).await.expect("it stops in order") };
    let checks = async {
        wait_until_ready(&old).await;
        wait_until_ready(&new).await;
        let created = old.create(CONFIG_MAPS, &json!({"metadata": {"name": "shared"}})).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let read = async || new.get(&format!("{CONFIG_MAPS}/shared")).await.status;
        assert_eq!(read().await, 200, "both servers use one store");
        eventually("the old server sees the new one", async || {
            let report = old.get("/debug/peers").await.json();
            let is_live = report["members"].as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "live"));
            if is_live { Ok(()) } else { Err(report.to_string()) }
        })
        .await;
        stop_old.cancel();
        old_stopped.cancelled().await;
        assert!(!old.is_ready().await, "its port is closed");
        assert_eq!(read().await, 200, "the other server keeps serving");
        stop_new.cancel();
    };
    tokio::join!(old_running, new_running, checks);
}
