//! The flags of authentication.

use std::path::{Path, PathBuf};

use access::authentication::{CaBundleOverlap, CertificateFieldSet, FrontProxy, FrontProxyHeaderNames};
use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use kinds::{FeatureGates, Release};
use server::{
    AuthenticationConfig, FRONT_PROXY_CA, FRONT_PROXY_CLIENT, FrontProxyConfig, PeerCertificates, ServiceAccountConfig,
};

use crate::flags::{FlagError, FlagValues};

/// Kubernetes' bounds of `--service-account-max-token-expiration`, in seconds.
const EXPIRATION_SECONDS: std::ops::RangeInclusive<i64> = 3600..=1 << 32;

pub(super) fn parse_authentication(
    flags: &FlagValues,
    gates: &FeatureGates,
    peers: &PeerCertificates,
    warnings: &mut Vec<String>,
) -> Result<AuthenticationConfig, FlagError> {
    let given = parse_front_proxy(flags, gates, warnings)?;
    Ok(AuthenticationConfig {
        anonymous: flags.is_true("anonymous-auth"),
        token_file: flags.given_value("token-auth-file").map(PathBuf::from),
        front_proxy: given.or_else(|| (*peers == PeerCertificates::Generated).then(|| generated_front_proxy(flags))),
        service_accounts: parse_service_accounts(flags)?,
        certificate_fields: CertificateFieldSet {
            uid: gates.enabled("AllowParsingUserUIDFromCertAuth"),
            credential_id: gates.release() >= Release::R32,
        },
    })
}

fn parse_front_proxy(
    flags: &FlagValues,
    gates: &FeatureGates,
    warnings: &mut Vec<String>,
) -> Result<Option<FrontProxyConfig>, FlagError> {
    let headers = FrontProxyHeaderNames {
        user: flags.list_entries_with_blanks("requestheader-username-headers"),
        uid: flags.list_entries_with_blanks("requestheader-uid-headers"),
        group: flags.list_entries_with_blanks("requestheader-group-headers"),
        extra_prefix: flags.list_entries_with_blanks("requestheader-extra-headers-prefix"),
    };
    let rules = FrontProxy { allowed_names: flags.list_entries_with_blanks("requestheader-allowed-names"), headers };
    // The server checks for overlapping CA bundles when it has read them; blank entries are rejected here.
    rules.validate(CaBundleOverlap::Disjoint).map_err(|error| FlagError::Rejected(error.to_string()))?;
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
    Ok(ca_file.map(|ca_file| FrontProxyConfig { ca_file, rules }))
}

/// Peers as front proxies, with generated certificates.
fn generated_front_proxy(flags: &FlagValues) -> FrontProxyConfig {
    let allowed_names = vec![FRONT_PROXY_CLIENT.to_owned()];
    FrontProxyConfig {
        ca_file: Path::new(flags.value_or_default("cert-dir")).join(format!("{FRONT_PROXY_CA}.crt")),
        rules: FrontProxy { allowed_names, headers: FrontProxyHeaderNames::standard() },
    }
}

fn nonstandard_header_message(flag: &str, standard: &str) -> String {
    format!("--requestheader-{flag} is set without specifying the standard {standard} - API aggregation will not work")
}

fn parse_service_accounts(flags: &FlagValues) -> Result<ServiceAccountConfig, FlagError> {
    let issuers = flags.list_values("service-account-issuer");
    let audiences = flags.list_values("api-audiences");
    let given = flags.given_value("service-account-signing-key-file").map(PathBuf::from);
    let seconds_max = match flags.given_value("service-account-max-token-expiration") {
        None => None,
        Some(_) => flags.parse_value("service-account-max-token-expiration", parse_expiration_seconds)?,
    };
    Ok(ServiceAccountConfig {
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

/// Seconds; `None` for zero, which means no limit.
fn parse_expiration_seconds(text: &str) -> Result<Option<i64>, String> {
    let duration = api::duration::parse(text).map_err(|error| error.to_string())?;
    match i64::try_from(duration.as_secs()) {
        Ok(0) => Ok(None),
        Ok(seconds) if EXPIRATION_SECONDS.contains(&seconds) => Ok(Some(seconds)),
        Ok(_) | Err(_) => Err("it must be between 1 hour and 2^32 seconds".to_owned()),
    }
}
