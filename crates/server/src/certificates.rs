//! Serving certificate, client CA and front-proxy CA: as configured, or generated.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use apiserver::access_control::{AccessRules, CaBundles};
use apiserver::bootstrap;
use arc_swap::ArcSwap;
use controllers::ControllerTokens;
use tasks::Tasks;
use transport::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};
use transport::{ClientCaBundle, Reloading};

use crate::config::Config;
use crate::kubeconfig;
use crate::peers::{FRONT_PROXY_CA, FRONT_PROXY_CLIENT, PeerCertificates};

/// Certificates and authorities, each read again when its file changes.
pub(crate) struct ServerCertificates {
    pub(crate) serving: Reloading<rustls::ServerConfig>,
    pub(crate) bundles: CaBundles,
    /// The CA bundles as published for extension API servers.
    pub(crate) published_authorities: bootstrap::ClusterAuthentication,
    /// The kubeconfig of the administrator; `None` if the client CA is configured.
    pub(crate) admin_kubeconfig: Option<PathBuf>,
    /// The serving certificate, which the controllers trust.
    pub(crate) serving_certificate_file: PathBuf,
    /// The CA of a generated serving certificate; `None` if the certificate is configured.
    pub(crate) generated_ca_file: Option<PathBuf>,
}

impl ServerCertificates {
    pub(crate) fn start(config: &Config, advertised: SocketAddr, tasks: &Tasks) -> anyhow::Result<Self> {
        let own = || {
            CertificateAuthority::open_or_create(&config.cert_dir, "ca")
                .context("cannot generate keys and certificates (--cert-dir)")
        };
        let CertificateFiles { certificate, key } = match &config.serving_certificate {
            Some((certificate, key)) => CertificateFiles { certificate: certificate.clone(), key: key.clone() },
            None => {
                let addresses = vec![advertised.ip(), config.bind_ip, IpAddr::from([127, 0, 0, 1])];
                let purpose = CertificateUsage::Serving { addresses, names: vec![] };
                own()?.open_or_issue("apiserver", "kube-apiserver", None, &purpose)?
            }
        };
        let (client_ca, admin) = match &config.client_ca {
            Some(file) => (file.clone(), None),
            None => {
                let own = own()?;
                let admin =
                    own.open_or_issue("admin", "kubernetes-admin", Some("system:masters"), &CertificateUsage::Client)?;
                let file = config.cert_dir.parent().unwrap_or(Path::new(".")).join("admin.kubeconfig");
                kubeconfig::write(&file, advertised, own.certificate(), &admin)?;
                (own.certificate().to_owned(), Some(file))
            }
        };
        if config.peers.certificates == PeerCertificates::Generated {
            let front_proxies = CertificateAuthority::open_or_create(&config.cert_dir, FRONT_PROXY_CA)?;
            front_proxies.open_or_issue(FRONT_PROXY_CLIENT, FRONT_PROXY_CLIENT, None, &CertificateUsage::Client)?;
        }
        let front_proxy = config.authentication.front_proxy.as_ref();
        let published = bootstrap::ClusterAuthentication {
            client_ca: Some(read_file(&client_ca)?),
            front_proxy: match front_proxy {
                Some(flags) => Some((read_file(&flags.ca_file)?, flags.rules.clone())),
                None => None,
            },
        };
        let files = vec![certificate.clone(), key.clone()];
        let serving_certificate = certificate.clone();
        let own_authority = match &config.serving_certificate {
            Some(_) => None,
            None => Some(own()?.certificate().to_owned()),
        };
        let policy = config.tls_policy.clone();
        let load = move || transport::server::server_config(&certificate, &key, &policy);
        let serving = Reloading::start(files, load, tasks)?;
        let client_ca = Reloading::start(vec![client_ca.clone()], move || ClientCaBundle::from_file(&client_ca), tasks)
            .context("--client-ca-file")?;
        let front_proxy =
            front_proxy.map(|flags| flags.start_authorities(Some(&client_ca.get()), tasks)).transpose()?;
        let bundles = CaBundles { client: Some(client_ca), front_proxy };
        Ok(Self {
            serving,
            bundles,
            published_authorities: published,
            admin_kubeconfig: admin,
            serving_certificate_file: serving_certificate,
            generated_ca_file: own_authority,
        })
    }
}

/// Starts authentication and authorization. The RBAC index is empty until it is filled from storage.
pub(crate) fn start_access_rules(
    config: &Config,
    controller_tokens: &ControllerTokens,
    address: SocketAddr,
    tasks: &Tasks,
) -> anyhow::Result<Arc<AccessRules>> {
    let Config { authentication, authorizer, .. } = config;
    authentication
        .service_accounts
        .ensure_signing_key()
        .context("cannot generate a key for service account tokens (--cert-dir)")?;
    Ok(Arc::new(AccessRules {
        authenticator: authentication.start_authenticator(
            authorizer.permits_anonymous(),
            config.controllers.token_users(controller_tokens),
            tasks,
        )?,
        signing: authentication.service_accounts.start_signing(address, tasks)?,
        authorizer: authorizer.clone(),
        index: Arc::new(ArcSwap::from_pointee(access::rbac::RbacIndex::default())),
    }))
}

fn read_file(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
