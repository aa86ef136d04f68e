//! Authentication: the files that the configuration names become authenticators, and are read again when they change.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use access::User;
use access::authentication::{
    self, AnonymousAccess, Authenticator, CertificateFieldSet, FrontProxy, TokenAuthenticator,
};
use access::tokens::openid::{JwksLocation, OpenIdDocuments};
use access::tokens::{SigningKey, TokenFile, TokenIssuer, TokenVerifier, VerifyingKey};
use apiserver::access_control::TokenSigning;
use tasks::Tasks;
use transport::{ClientCaBundle, Reloading, pki};

use crate::RejectedConfig;

/// How requests are authenticated.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// `--anonymous-auth`: requests without credentials are system:anonymous.
    pub anonymous: bool,
    /// `--token-auth-file`.
    pub token_file: Option<PathBuf>,
    /// The front proxies that may name users; `None`: there are none.
    pub front_proxy: Option<FrontProxyConfig>,
    /// Tokens of service accounts.
    pub service_accounts: ServiceAccountConfig,
    /// The fields of a client certificate that become part of the user.
    pub certificate_fields: CertificateFieldSet,
}

/// `--requestheader-*`.
#[derive(Clone, Debug)]
pub struct FrontProxyConfig {
    /// `--requestheader-client-ca-file`.
    pub ca_file: PathBuf,
    /// Which names they may have, and in which headers they name users.
    pub rules: FrontProxy,
}

/// `--service-account-*` and `--api-audiences`.
#[derive(Clone, Debug)]
pub struct ServiceAccountConfig {
    /// The first signs; tokens of all are accepted.
    pub issuers: Vec<String>,
    /// The audiences of tokens for this server.
    pub audiences: Vec<String>,
    /// Public keys by which tokens are verified, beside that of the signing key.
    pub key_files: Vec<PathBuf>,
    /// The private key that signs tokens.
    pub signing_key_file: PathBuf,
    /// True if the server creates the signing key where it is missing.
    pub generates_signing_key: bool,
    /// `--service-account-jwks-uri`; `None`: the keys are at this server.
    pub jwks_url: Option<String>,
    /// The longest lifetime of a token, in seconds; `None`: no limit.
    pub token_seconds_max: Option<i64>,
    /// `--service-account-extend-token-expiration`.
    pub extends_token_expiration: bool,
}

impl AuthenticationConfig {
    /// Reads every file, and again when one changes. `process_tokens` are accepted beside those of the token file.
    pub(crate) fn start_authenticator(
        &self,
        permits_anonymous: bool,
        process_tokens: Vec<(String, User)>,
        tasks: &Tasks,
    ) -> anyhow::Result<Reloading<Authenticator>> {
        let config = self.clone();
        let anonymous =
            if self.anonymous && permits_anonymous { AnonymousAccess::Enabled } else { AnonymousAccess::Disabled };
        let files = self
            .token_file
            .iter()
            .chain(&self.service_accounts.key_files)
            .chain([&self.service_accounts.signing_key_file]);
        let files = files.cloned().collect();
        let read = move || config.build_authenticator(anonymous.clone(), &process_tokens);
        Reloading::start(files, read, tasks).map_err(anyhow::Error::msg)
    }

    fn build_authenticator(
        &self,
        anonymous: AnonymousAccess,
        process_tokens: &[(String, User)],
    ) -> Result<Authenticator, String> {
        let mut file = match &self.token_file {
            None => TokenFile::default(),
            Some(path) => {
                let flag = "--token-auth-file";
                let file = TokenFile::parse(&read_flag_file(flag, path)?)
                    .map_err(|error| flag_file_error(flag, path, &error))?;
                for warning in file.warnings() {
                    tracing::warn!(file = %path.display(), "{flag}: {warning}");
                }
                file
            }
        };
        for (token, user) in process_tokens {
            file.add(token, user.clone());
        }
        let ServiceAccountConfig { issuers, audiences, .. } = &self.service_accounts;
        let keys = self.service_accounts.load_verifying_keys()?;
        let verifier = TokenVerifier::new(issuers.clone(), audiences.clone(), keys);
        Ok(Authenticator {
            front_proxy: self.front_proxy.as_ref().map(|front_proxy| front_proxy.rules.clone()),
            certificate_fields: self.certificate_fields,
            token_authenticator: TokenAuthenticator {
                token_file: file,
                token_verifier: Some(verifier),
                audiences: audiences.clone(),
            },
            anonymous,
        })
    }
}

impl FrontProxyConfig {
    /// Reads the CA bundle, and again when it changes. Rejects a bundle that shares an authority with the client CA bundle unless
    /// the allowed names keep users from posing as front proxies.
    pub(crate) fn start_authorities(
        &self,
        client_ca: &ClientCaBundle,
        tasks: &Tasks,
    ) -> anyhow::Result<Reloading<ClientCaBundle>> {
        let file = self.ca_file.clone();
        let watched = Reloading::start(vec![file.clone()], move || ClientCaBundle::from_file(&file), tasks);
        let watched = watched.map_err(|error| anyhow::anyhow!("--requestheader-client-ca-file: {error}"))?;
        let bundles = match watched.get().overlaps(client_ca) {
            true => authentication::CaBundleOverlap::Overlapping,
            false => authentication::CaBundleOverlap::Disjoint,
        };
        self.rules.validate(bundles).map_err(|error| RejectedConfig(error.to_string()))?;
        Ok(watched)
    }
}

impl ServiceAccountConfig {
    /// Reads the signing key and the keys for verification, and again when a file changes.
    pub(crate) fn start_signing(&self, address: SocketAddr, tasks: &Tasks) -> anyhow::Result<Reloading<TokenSigning>> {
        let config = self.clone();
        let files = self.key_files.iter().chain([&self.signing_key_file]).cloned().collect();
        let read = move || config.load_signing(address);
        Reloading::start(files, read, tasks).map_err(anyhow::Error::msg)
    }

    /// Generates the signing key if no flag names one.
    pub(crate) fn ensure_signing_key(&self) -> anyhow::Result<()> {
        if self.generates_signing_key {
            pki::ensure_signing_key(&self.signing_key_file)?;
        }
        Ok(())
    }

    fn load_signing(&self, address: SocketAddr) -> Result<TokenSigning, String> {
        let address = address.to_string();
        let keys_at = self.jwks_url.as_deref().map_or(JwksLocation::ThisServer(&address), JwksLocation::Url);
        let issuer = self.issuers.first().cloned().unwrap_or_default();
        let documents = match OpenIdDocuments::new(&issuer, keys_at, &self.load_verifying_keys()?) {
            Ok(documents) => Some(documents),
            Err(error) => {
                tracing::warn!(%error, "no OpenID configuration: other services cannot verify service account tokens");
                None
            }
        };
        let issuer = TokenIssuer {
            issuer,
            signing_key: self.load_signing_key()?,
            audiences: self.audiences.clone(),
            max_expiration_seconds: self.token_seconds_max,
            extend_expiration: self.extends_token_expiration,
        };
        Ok(TokenSigning { issuer, openid_documents: documents })
    }

    /// Returns the keys of all key files and the public half of the signing key.
    fn load_verifying_keys(&self) -> Result<Vec<VerifyingKey>, String> {
        let mut keys: Vec<VerifyingKey> = Vec::new();
        for path in &self.key_files {
            let flag = "--service-account-key-file";
            keys.extend(
                VerifyingKey::all_from_pem(&read_flag_file(flag, path)?)
                    .map_err(|error| flag_file_error(flag, path, &error))?,
            );
        }
        let own = self.load_signing_key()?;
        if !keys.iter().any(|key| key.id() == own.public().id()) {
            keys.push(own.public().clone());
        }
        Ok(keys)
    }

    fn load_signing_key(&self) -> Result<SigningKey, String> {
        let flag = "--service-account-signing-key-file";
        let path = &self.signing_key_file;
        SigningKey::from_pem(&read_flag_file(flag, path)?).map_err(|error| flag_file_error(flag, path, &error))
    }
}

fn read_flag_file(flag: &str, path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| flag_file_error(flag, path, &error))
}

fn flag_file_error(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{flag}: {}: {error}", path.display())
}
