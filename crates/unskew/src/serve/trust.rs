//! What the server shows, and whom it believes: certificates and keys as given, and our own where none are.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use apiserver::bootstrap;
use apiserver::gate::{Bundles, Rules};
use arc_swap::ArcSwap;
use tasks::Tasks;
use transport::pki::{Authority, Pair, Purpose};
use transport::{Authorities, Watched};

use super::config::Config;
use super::peers::{Certificates, FRONT_PROXY_CA, FRONT_PROXY_CLIENT};
use crate::kubeconfig;

/// Certificates and authorities, each read again when its file changes.
pub(super) struct Trust {
    pub(super) serving: Watched<rustls::ServerConfig>,
    pub(super) bundles: Bundles,
    /// The same for extension servers.
    pub(super) published: bootstrap::Trust,
    /// The kubeconfig of the administrator, if we made one.
    pub(super) admin: Option<PathBuf>,
    /// The certificate that is shown.
    pub(super) serving_certificate: PathBuf,
    /// Who signed it, if we did.
    pub(super) own_authority: Option<PathBuf>,
}

impl Trust {
    pub(super) fn start(config: &Config, advertised: SocketAddr, tasks: &Tasks) -> anyhow::Result<Self> {
        let own = || Authority::open(&config.cert_dir, "ca").context("keys and certificates of our own (--cert-dir)");
        let Pair { certificate, key } = match &config.serving {
            Some((certificate, key)) => Pair { certificate: certificate.clone(), key: key.clone() },
            None => {
                let addresses = vec![advertised.ip(), config.bind, IpAddr::from([127, 0, 0, 1])];
                let purpose = Purpose::Serving { addresses, names: vec![] };
                own()?.issue("apiserver", "kube-apiserver", None, &purpose)?
            }
        };
        let (client_ca, admin) = match &config.client_ca {
            Some(file) => (file.clone(), None),
            None => {
                let own = own()?;
                let admin = own.issue("admin", "kubernetes-admin", Some("system:masters"), &Purpose::Client)?;
                let file = config.cert_dir.parent().unwrap_or(Path::new(".")).join("admin.kubeconfig");
                kubeconfig::write(&file, advertised, own.certificate(), &admin)?;
                (own.certificate().to_owned(), Some(file))
            }
        };
        if config.peers.certificates == Certificates::Own {
            let front_proxies = Authority::open(&config.cert_dir, FRONT_PROXY_CA)?;
            front_proxies.issue(FRONT_PROXY_CLIENT, FRONT_PROXY_CLIENT, None, &Purpose::Client)?;
        }
        let front_proxy = config.authentication.front_proxy.as_ref();
        let published = bootstrap::Trust {
            client_ca: Some(read(&client_ca)?),
            front_proxy: match front_proxy {
                Some(flags) => Some((read(&flags.ca_file)?, flags.rules.clone())),
                None => None,
            },
        };
        let files = vec![certificate.clone(), key.clone()];
        let serving_certificate = certificate.clone();
        let own_authority = match &config.serving {
            Some(_) => None,
            None => Some(own()?.certificate().to_owned()),
        };
        let serving = Watched::start(files, move || transport::server::serving(&certificate, &key), tasks)?;
        let client_ca = Watched::start(vec![client_ca.clone()], move || Authorities::from_file(&client_ca), tasks)
            .context("--client-ca-file")?;
        let front_proxy = front_proxy.map(|flags| flags.start(&client_ca.get(), tasks)).transpose()?;
        let bundles = Bundles { client: Some(client_ca), front_proxy };
        Ok(Self { serving, bundles, published, admin, serving_certificate, own_authority })
    }
}

/// By which rules people are known and let in. The index of bindings is empty until it is filled from storage.
pub(super) fn rules(config: &Config, address: SocketAddr, tasks: &Tasks) -> anyhow::Result<Arc<Rules>> {
    let Config { authentication, authorizer, .. } = config;
    authentication.accounts.make_key().context("a key of our own for service account tokens (--cert-dir)")?;
    Ok(Arc::new(Rules {
        authenticator: authentication.start(authorizer.permits_anonymous(), config.controllers.identities(), tasks)?,
        signing: authentication.accounts.start(address, tasks)?,
        authorizer: authorizer.clone(),
        index: Arc::new(ArcSwap::from_pointee(access::rbac::Index::default())),
    }))
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
