//! The flags of authentication, and what becomes of them: who is let in, and as whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use access::User;
use access::authentication::{
    self, AnonymousAccess, Authenticator, CertificateFieldSet, FrontProxy, FrontProxyHeaderNames, TokenAuthenticator,
};
use access::tokens::openid::{JwksLocation, OpenIdDocuments};
use access::tokens::{SigningKey, TokenFile, TokenIssuer, TokenVerifier, VerifyingKey};
use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use apiserver::access_control::TokenSigning;
use catalogue::{FeatureGates, Release};
use tasks::Tasks;
use transport::{ClientCaBundle, Reloading, pki};

use super::peers::{FRONT_PROXY_CA, FRONT_PROXY_CLIENT, PeerCertificates};
use crate::flags::{FlagError, FlagValues};

/// What the flags say about who is let in.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticationFlags {
    pub(crate) anonymous: bool,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) front_proxy: Option<FrontProxyFlags>,
    pub(crate) service_accounts: ServiceAccountFlags,
    certificate_attributes: CertificateFieldSet,
}

/// `--requestheader-*`.
#[derive(Clone, Debug)]
pub(crate) struct FrontProxyFlags {
    pub(crate) ca_file: PathBuf,
    pub(crate) rules: FrontProxy,
}

/// `--service-account-*` and `--api-audiences`.
#[derive(Clone, Debug)]
pub(crate) struct ServiceAccountFlags {
    /// The first signs; all are believed.
    issuers: Vec<String>,
    audiences: Vec<String>,
    key_files: Vec<PathBuf>,
    signing_key_file: PathBuf,
    /// Whether the signing key is ours to make.
    generates_signing_key: bool,
    jwks_url: Option<String>,
    token_seconds_max: Option<i64>,
    extends_token_expiration: bool,
}

/// Kubernetes' bounds of `--service-account-max-token-expiration`, in seconds.
const EXPIRATION_SECONDS: std::ops::RangeInclusive<i64> = 3600..=1 << 32;

impl AuthenticationFlags {
    pub(super) fn from_flags(
        flags: &FlagValues,
        gates: &FeatureGates,
        peers: &PeerCertificates,
        warnings: &mut Vec<String>,
    ) -> Result<Self, FlagError> {
        let given = parse_front_proxy(flags, gates, warnings)?;
        Ok(Self {
            anonymous: flags.is_true("anonymous-auth"),
            token_file: flags.given_value("token-auth-file").map(PathBuf::from),
            front_proxy: given
                .or_else(|| (*peers == PeerCertificates::Generated).then(|| generated_front_proxy(flags))),
            service_accounts: parse_service_accounts(flags)?,
            certificate_attributes: CertificateFieldSet {
                uid: gates.enabled("AllowParsingUserUIDFromCertAuth"),
                credential_id: gates.release() >= Release::R32,
            },
        })
    }

    /// Reads every file, and again when one changes. The tokens of this process are good beside those of the file.
    pub(super) fn start_authenticator(
        &self,
        permits_anonymous: bool,
        process_tokens: Vec<(String, User)>,
        tasks: &Tasks,
    ) -> anyhow::Result<Reloading<Authenticator>> {
        let flags = self.clone();
        let anonymous =
            if self.anonymous && permits_anonymous { AnonymousAccess::Enabled } else { AnonymousAccess::Disabled };
        let files = self
            .token_file
            .iter()
            .chain(&self.service_accounts.key_files)
            .chain([&self.service_accounts.signing_key_file]);
        let files = files.cloned().collect();
        let read = move || flags.build_authenticator(anonymous.clone(), &process_tokens);
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
        let ServiceAccountFlags { issuers, audiences, .. } = &self.service_accounts;
        let keys = self.service_accounts.load_verifying_keys()?;
        let verifier = TokenVerifier::new(issuers.clone(), audiences.clone(), keys);
        Ok(Authenticator {
            front_proxy: self.front_proxy.as_ref().map(|front_proxy| front_proxy.rules.clone()),
            certificate_fields: self.certificate_attributes,
            token_authenticator: TokenAuthenticator {
                token_file: file,
                token_verifier: Some(verifier),
                audiences: audiences.clone(),
            },
            anonymous,
        })
    }
}

impl FrontProxyFlags {
    /// Reads the bundle, and again when it changes. Refuses one by which users could pass for front proxies.
    pub(super) fn start_authorities(
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
        self.rules.validate(bundles).map_err(|error| FlagError::Rejected(error.to_string()))?;
        Ok(watched)
    }
}

impl ServiceAccountFlags {
    /// Makes a key where none is given, and reads it, again when it changes.
    pub(super) fn start_signing(&self, address: SocketAddr, tasks: &Tasks) -> anyhow::Result<Reloading<TokenSigning>> {
        let flags = self.clone();
        let files = self.key_files.iter().chain([&self.signing_key_file]).cloned().collect();
        let read = move || flags.load_signing(address);
        Reloading::start(files, read, tasks).map_err(anyhow::Error::msg)
    }

    /// Makes the signing key if it is ours to make.
    pub(super) fn ensure_signing_key(&self) -> anyhow::Result<()> {
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
                tracing::warn!(%error, "others cannot verify tokens of service accounts: there is no OpenID configuration");
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

    /// The keys of the files, and the one that signs: what we make ourselves we believe.
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

fn parse_front_proxy(
    flags: &FlagValues,
    gates: &FeatureGates,
    warnings: &mut Vec<String>,
) -> Result<Option<FrontProxyFlags>, FlagError> {
    let headers = FrontProxyHeaderNames {
        user: flags.list_entries_with_blanks("requestheader-username-headers"),
        uid: flags.list_entries_with_blanks("requestheader-uid-headers"),
        group: flags.list_entries_with_blanks("requestheader-group-headers"),
        extra_prefix: flags.list_entries_with_blanks("requestheader-extra-headers-prefix"),
    };
    let rules = FrontProxy { allowed_names: flags.list_entries_with_blanks("requestheader-allowed-names"), headers };
    // Whether the bundles overlap is known once they are read; blank entries are wrong whatever they hold.
    rules
        .validate(authentication::CaBundleOverlap::Disjoint)
        .map_err(|error| FlagError::Rejected(error.to_string()))?;
    let lacks = |given: &[String], standard: &str| {
        !given.is_empty() && !given.iter().any(|name| name.eq_ignore_ascii_case(standard))
    };
    if !rules.headers.uid.is_empty() {
        if !gates.enabled("RemoteRequestHeaderUID") {
            let text = "--requestheader-uid-headers requires the \"RemoteRequestHeaderUID\" feature to be enabled";
            return Err(FlagError::Rejected(text.to_owned()));
        }
        if lacks(&rules.headers.uid, REMOTE_UID) {
            return Err(FlagError::Rejected(nonstandard_header_message(
                "uid-headers",
                &format!("{REMOTE_UID} header"),
            )));
        }
    }
    for (given, flag, standard, what) in [
        (&rules.headers.user, "username-headers", REMOTE_USER, "header"),
        (&rules.headers.group, "group-headers", REMOTE_GROUP, "header"),
        (&rules.headers.extra_prefix, "extra-headers-prefix", REMOTE_EXTRA_PREFIX, "header prefix"),
    ] {
        if lacks(given, standard) {
            warnings.push(nonstandard_header_message(flag, &format!("{standard} {what}")));
        }
    }
    let ca_file = flags.given_value("requestheader-client-ca-file").map(PathBuf::from);
    Ok(ca_file.map(|ca_file| FrontProxyFlags { ca_file, rules }))
}

/// The other servers, by certificates of our own.
fn generated_front_proxy(flags: &FlagValues) -> FrontProxyFlags {
    let allowed_names = vec![FRONT_PROXY_CLIENT.to_owned()];
    FrontProxyFlags {
        ca_file: Path::new(flags.value_or_default("cert-dir")).join(format!("{FRONT_PROXY_CA}.crt")),
        rules: FrontProxy { allowed_names, headers: FrontProxyHeaderNames::standard() },
    }
}

fn nonstandard_header_message(flag: &str, standard: &str) -> String {
    format!("--requestheader-{flag} is set without specifying the standard {standard} - API aggregation will not work")
}

fn parse_service_accounts(flags: &FlagValues) -> Result<ServiceAccountFlags, FlagError> {
    let issuers = flags.list_values("service-account-issuer");
    let audiences = flags.list_values("api-audiences");
    let given = flags.given_value("service-account-signing-key-file").map(PathBuf::from);
    let seconds_max = match flags.given_value("service-account-max-token-expiration") {
        None => None,
        Some(_) => flags.parse_value("service-account-max-token-expiration", parse_expiration_seconds)?,
    };
    Ok(ServiceAccountFlags {
        audiences: if audiences.is_empty() { issuers.clone() } else { audiences },
        issuers,
        key_files: flags.list_values("service-account-key-file").into_iter().map(PathBuf::from).collect(),
        generates_signing_key: given.is_none(),
        signing_key_file: given.unwrap_or_else(|| Path::new(flags.value_or_default("cert-dir")).join("sa.key")),
        jwks_url: flags.given_value("service-account-jwks-uri").map(str::to_owned),
        token_seconds_max: seconds_max,
        extends_token_expiration: flags.is_true("service-account-extend-token-expiration"),
    })
}

/// `None` for zero, which means no limit.
fn parse_expiration_seconds(text: &str) -> Result<Option<i64>, String> {
    let duration = api::duration::parse(text).map_err(|error| error.to_string())?;
    match i64::try_from(duration.as_secs()) {
        Ok(0) => Ok(None),
        Ok(seconds) if EXPIRATION_SECONDS.contains(&seconds) => Ok(Some(seconds)),
        Ok(_) | Err(_) => Err("it must be between 1 hour and 2^32 seconds".to_owned()),
    }
}

fn read_flag_file(flag: &str, path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| flag_file_error(flag, path, &error))
}

fn flag_file_error(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{flag}: {}: {error}", path.display())
}
