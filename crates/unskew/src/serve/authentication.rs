//! The flags of authentication, and what becomes of them: who is let in, and as whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use access::User;
use access::authenticate::{self, Anonymous, Authenticator, BearerTokens, CertificateParts, FrontProxy, HeaderNames};
use access::tokens::openid::{Documents, KeysAt};
use access::tokens::{Issuer, SigningKey, TokenFile, Verifier, VerifyingKey};
use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use apiserver::gate::Signing;
use catalogue::{Gates, Release};
use tasks::Tasks;
use transport::{Authorities, Watched, pki};

use super::peers::{Certificates, FRONT_PROXY_CA, FRONT_PROXY_CLIENT};
use crate::flags::{FlagError, Values};

/// What the flags say about who is let in.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    pub(crate) anonymous: bool,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) front_proxy: Option<FrontProxyFlags>,
    pub(crate) accounts: AccountFlags,
    certificates: CertificateParts,
}

/// `--requestheader-*`.
#[derive(Clone, Debug)]
pub(crate) struct FrontProxyFlags {
    pub(crate) ca_file: PathBuf,
    pub(crate) rules: FrontProxy,
}

/// `--service-account-*` and `--api-audiences`.
#[derive(Clone, Debug)]
pub(crate) struct AccountFlags {
    /// The first signs; all are believed.
    issuers: Vec<String>,
    audiences: Vec<String>,
    key_files: Vec<PathBuf>,
    signing_key_file: PathBuf,
    /// Whether the signing key is ours to make.
    is_own_key: bool,
    keys_url: Option<String>,
    seconds_max: Option<i64>,
    extends: bool,
}

/// Kubernetes' bounds of `--service-account-max-token-expiration`, in seconds.
const EXPIRATION_SECONDS: std::ops::RangeInclusive<i64> = 3600..=1 << 32;

impl Authentication {
    pub(super) fn from_flags(
        flags: &Values,
        gates: &Gates,
        peers: &Certificates,
        notices: &mut Vec<String>,
    ) -> Result<Self, FlagError> {
        let given = front_proxy(flags, gates, notices)?;
        Ok(Self {
            anonymous: flags.is("anonymous-auth"),
            token_file: flags.given("token-auth-file").map(PathBuf::from),
            front_proxy: given.or_else(|| (*peers == Certificates::Own).then(|| own_front_proxy(flags))),
            accounts: accounts(flags)?,
            certificates: CertificateParts {
                uid: gates.enabled("AllowParsingUserUIDFromCertAuth"),
                credential_id: gates.release() >= Release::R32,
            },
        })
    }

    /// Reads every file, and again when one changes. The tokens of this process are good beside those of the file.
    pub(super) fn start(
        &self,
        permits_anonymous: bool,
        own: Vec<(String, User)>,
        tasks: &Tasks,
    ) -> anyhow::Result<Watched<Authenticator>> {
        let flags = self.clone();
        let anonymous = if self.anonymous && permits_anonymous { Anonymous::Yes } else { Anonymous::No };
        let files = self.token_file.iter().chain(&self.accounts.key_files).chain([&self.accounts.signing_key_file]);
        let files = files.cloned().collect();
        let read = move || flags.authenticator(anonymous.clone(), &own);
        Watched::start(files, read, tasks).map_err(anyhow::Error::msg)
    }

    fn authenticator(&self, anonymous: Anonymous, own: &[(String, User)]) -> Result<Authenticator, String> {
        let mut file = match &self.token_file {
            None => TokenFile::default(),
            Some(path) => {
                let flag = "--token-auth-file";
                let file = TokenFile::parse(&read(flag, path)?).map_err(|error| fault(flag, path, &error))?;
                for warning in file.warnings() {
                    tracing::warn!(file = %path.display(), "{flag}: {warning}");
                }
                file
            }
        };
        for (token, user) in own {
            file.add(token, user.clone());
        }
        let AccountFlags { issuers, audiences, .. } = &self.accounts;
        let keys = self.accounts.verifying_keys()?;
        let verifier = Verifier::new(issuers.clone(), audiences.clone(), keys);
        Ok(Authenticator {
            front_proxy: self.front_proxy.as_ref().map(|front_proxy| front_proxy.rules.clone()),
            certificates: self.certificates,
            tokens: BearerTokens { file, accounts: Some(verifier), audiences: audiences.clone() },
            anonymous,
        })
    }
}

impl FrontProxyFlags {
    /// Reads the bundle, and again when it changes. Refuses one by which users could pass for front proxies.
    pub(super) fn start(&self, client_ca: &Authorities, tasks: &Tasks) -> anyhow::Result<Watched<Authorities>> {
        let file = self.ca_file.clone();
        let watched = Watched::start(vec![file.clone()], move || Authorities::from_file(&file), tasks);
        let watched = watched.map_err(|error| anyhow::anyhow!("--requestheader-client-ca-file: {error}"))?;
        let bundles = match watched.get().overlaps(client_ca) {
            true => authenticate::Bundles::Overlap,
            false => authenticate::Bundles::Apart,
        };
        self.rules.check(bundles).map_err(|error| FlagError::Refused(error.to_string()))?;
        Ok(watched)
    }
}

impl AccountFlags {
    /// Makes a key where none is given, and reads it, again when it changes.
    pub(super) fn start(&self, address: SocketAddr, tasks: &Tasks) -> anyhow::Result<Watched<Signing>> {
        let flags = self.clone();
        let files = self.key_files.iter().chain([&self.signing_key_file]).cloned().collect();
        let read = move || flags.signing(address);
        Watched::start(files, read, tasks).map_err(anyhow::Error::msg)
    }

    /// Makes the signing key if it is ours to make.
    pub(super) fn make_key(&self) -> anyhow::Result<()> {
        if self.is_own_key {
            pki::signing_key(&self.signing_key_file)?;
        }
        Ok(())
    }

    fn signing(&self, address: SocketAddr) -> Result<Signing, String> {
        let address = address.to_string();
        let keys_at = self.keys_url.as_deref().map_or(KeysAt::Server(&address), KeysAt::Url);
        let issuer = self.issuers.first().cloned().unwrap_or_default();
        let documents = match Documents::new(&issuer, keys_at, &self.verifying_keys()?) {
            Ok(documents) => Some(documents),
            Err(error) => {
                tracing::warn!(%error, "others cannot verify tokens of service accounts: there is no OpenID configuration");
                None
            }
        };
        let issuer = Issuer {
            name: issuer,
            key: self.signing_key()?,
            audiences: self.audiences.clone(),
            seconds_max: self.seconds_max,
            extends: self.extends,
        };
        Ok(Signing { issuer, documents })
    }

    /// The keys of the files, and the one that signs: what we make ourselves we believe.
    fn verifying_keys(&self) -> Result<Vec<VerifyingKey>, String> {
        let mut keys: Vec<VerifyingKey> = Vec::new();
        for path in &self.key_files {
            let flag = "--service-account-key-file";
            keys.extend(VerifyingKey::all_from_pem(&read(flag, path)?).map_err(|error| fault(flag, path, &error))?);
        }
        let own = self.signing_key()?;
        if !keys.iter().any(|key| key.id() == own.public().id()) {
            keys.push(own.public().clone());
        }
        Ok(keys)
    }

    fn signing_key(&self) -> Result<SigningKey, String> {
        let flag = "--service-account-signing-key-file";
        let path = &self.signing_key_file;
        SigningKey::from_pem(&read(flag, path)?).map_err(|error| fault(flag, path, &error))
    }
}

fn front_proxy(flags: &Values, gates: &Gates, notices: &mut Vec<String>) -> Result<Option<FrontProxyFlags>, FlagError> {
    let headers = HeaderNames {
        user: flags.entries("requestheader-username-headers"),
        uid: flags.entries("requestheader-uid-headers"),
        group: flags.entries("requestheader-group-headers"),
        extra_prefix: flags.entries("requestheader-extra-headers-prefix"),
    };
    let rules = FrontProxy { allowed_names: flags.entries("requestheader-allowed-names"), headers };
    // Whether the bundles overlap is known once they are read; blank entries are wrong whatever they hold.
    rules.check(authenticate::Bundles::Apart).map_err(|error| FlagError::Refused(error.to_string()))?;
    let lacks = |given: &[String], standard: &str| {
        !given.is_empty() && !given.iter().any(|name| name.eq_ignore_ascii_case(standard))
    };
    if !rules.headers.uid.is_empty() {
        if !gates.enabled("RemoteRequestHeaderUID") {
            let text = "--requestheader-uid-headers requires the \"RemoteRequestHeaderUID\" feature to be enabled";
            return Err(FlagError::Refused(text.to_owned()));
        }
        if lacks(&rules.headers.uid, REMOTE_UID) {
            return Err(FlagError::Refused(unusual("uid-headers", &format!("{REMOTE_UID} header"))));
        }
    }
    for (given, flag, standard, what) in [
        (&rules.headers.user, "username-headers", REMOTE_USER, "header"),
        (&rules.headers.group, "group-headers", REMOTE_GROUP, "header"),
        (&rules.headers.extra_prefix, "extra-headers-prefix", REMOTE_EXTRA_PREFIX, "header prefix"),
    ] {
        if lacks(given, standard) {
            notices.push(unusual(flag, &format!("{standard} {what}")));
        }
    }
    let ca_file = flags.given("requestheader-client-ca-file").map(PathBuf::from);
    Ok(ca_file.map(|ca_file| FrontProxyFlags { ca_file, rules }))
}

/// The other servers, by certificates of our own.
fn own_front_proxy(flags: &Values) -> FrontProxyFlags {
    let allowed_names = vec![FRONT_PROXY_CLIENT.to_owned()];
    FrontProxyFlags {
        ca_file: Path::new(flags.text("cert-dir")).join(format!("{FRONT_PROXY_CA}.crt")),
        rules: FrontProxy { allowed_names, headers: HeaderNames::standard() },
    }
}

fn unusual(flag: &str, standard: &str) -> String {
    format!("--requestheader-{flag} is set without specifying the standard {standard} - API aggregation will not work")
}

fn accounts(flags: &Values) -> Result<AccountFlags, FlagError> {
    let issuers = flags.list("service-account-issuer");
    let audiences = flags.list("api-audiences");
    let given = flags.given("service-account-signing-key-file").map(PathBuf::from);
    let seconds_max = match flags.given("service-account-max-token-expiration") {
        None => None,
        Some(_) => flags.parsed("service-account-max-token-expiration", expiration_seconds)?,
    };
    Ok(AccountFlags {
        audiences: if audiences.is_empty() { issuers.clone() } else { audiences },
        issuers,
        key_files: flags.list("service-account-key-file").into_iter().map(PathBuf::from).collect(),
        is_own_key: given.is_none(),
        signing_key_file: given.unwrap_or_else(|| Path::new(flags.text("cert-dir")).join("sa.key")),
        keys_url: flags.given("service-account-jwks-uri").map(str::to_owned),
        seconds_max,
        extends: flags.is("service-account-extend-token-expiration"),
    })
}

/// `None` for zero, which means no limit.
fn expiration_seconds(text: &str) -> Result<Option<i64>, String> {
    let duration = api::duration::parse(text).map_err(|error| error.to_string())?;
    match i64::try_from(duration.as_secs()) {
        Ok(0) => Ok(None),
        Ok(seconds) if EXPIRATION_SECONDS.contains(&seconds) => Ok(Some(seconds)),
        Ok(_) | Err(_) => Err("it must be between 1 hour and 2^32 seconds".to_owned()),
    }
}

fn read(flag: &str, path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| fault(flag, path, &error))
}

fn fault(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{flag}: {}: {error}", path.display())
}
