//! Values that kubeadm's files on a control-plane node provide: certificates, keys, and the local kube-apiserver.
//!
//! A given flag always wins.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::authentication::FrontProxyHeaderNames;
use gateway::Cidr;
use object::decode::{self, BodyEncoding};

use super::flag_table::FLAGS;
use crate::flags::{FlagError, FlagValues};

/// Files below the folder, and the flags that default to them.
const KUBEADM_FILES: [(&str, &str); 6] = [
    ("upstream-ca-file", "pki/ca.crt"),
    ("client-ca-file", "pki/ca.crt"),
    ("proxy-client-cert-file", "pki/front-proxy-client.crt"),
    ("proxy-client-key-file", "pki/front-proxy-client.key"),
    ("tls-cert-file", "pki/apiserver.crt"),
    ("tls-private-key-file", "pki/apiserver.key"),
];
/// The manifest of the local kube-apiserver.
const MANIFEST: &str = "manifests/kube-apiserver.yaml";
/// The default of kube-apiserver's `--secure-port`.
const DEFAULT_PORT: &str = "6443";

/// The prefix length of the network in which the other control-plane nodes are assumed.
const NETWORK_PREFIX_LENGTH_V4: u32 = 24;
const NETWORK_PREFIX_LENGTH_V6: u32 = 64;

/// Values found, by flag.
#[derive(Debug, Default)]
pub(crate) struct KubeadmValues {
    values: BTreeMap<&'static str, KubeadmValue>,
}

#[derive(Debug)]
struct KubeadmValue {
    text: String,
    /// The file that the value comes from.
    source: PathBuf,
}

/// Reads kubeadm's files for the flags that are not given; none if `--upstream` is given.
pub(crate) fn detect(flags: &FlagValues) -> Result<KubeadmValues, FlagError> {
    let mut found = KubeadmValues::default();
    if !flags.list_values("upstream").is_empty() {
        return Ok(found);
    }
    let folder = Path::new(flags.value_or_default("kubeadm-dir"));
    for (flag, file) in KUBEADM_FILES {
        let file = folder.join(file);
        if file.exists() {
            found.values.insert(flag, KubeadmValue { text: file.display().to_string(), source: file });
        }
    }
    let manifest = folder.join(MANIFEST);
    if let Ok(content) = std::fs::read(&manifest) {
        let fault = |reason: String| FlagError::Rejected(format!("{}: {reason}", manifest.display()));
        let (host, port) = parse_apiserver_address(&content).map_err(fault)?;
        let mut put = |flag, text| found.values.insert(flag, KubeadmValue { text, source: manifest.clone() });
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        put("upstream", format!("local=https://{bracketed}:{port}"));
        if let Ok(address) = host.parse() {
            put("upstream-discovery", "endpointslices".to_owned());
            put(
                "upstream-cidr",
                Cidr::containing(address, NETWORK_PREFIX_LENGTH_V4, NETWORK_PREFIX_LENGTH_V6).to_string(),
            );
        }
    }
    Ok(found)
}

/// The address that the kube-apiserver of a manifest listens on.
fn parse_apiserver_address(manifest: &[u8]) -> Result<(String, String), String> {
    let words = command_line_words(manifest)?;
    let host = flag_values(&words, "advertise-address").pop().unwrap_or_else(|| "127.0.0.1".to_owned());
    Ok((host, flag_values(&words, "secure-port").pop().unwrap_or_else(|| DEFAULT_PORT.to_owned())))
}

/// The headers in which the kube-apiserver of a manifest expects the user that a front proxy names.
fn parse_header_names(manifest: &[u8]) -> Result<FrontProxyHeaderNames, String> {
    let words = command_line_words(manifest)?;
    let list = |name: &str| -> Vec<String> {
        let values = flag_values(&words, &format!("requestheader-{name}"));
        let entries = values.iter().flat_map(|value| value.split(',')).map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    Ok(FrontProxyHeaderNames {
        user: list("username-headers"),
        uid: list("uid-headers"),
        group: list("group-headers"),
        extra_prefix: list("extra-headers-prefix"),
    })
}

/// The values of a flag, in the order they are given: `--flag=value` or `--flag value`.
fn flag_values(words: &[String], name: &str) -> Vec<String> {
    let value = |(index, word): (usize, &String)| match word.strip_prefix("--")?.strip_prefix(name)? {
        "" => words.get(index + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    };
    words.iter().enumerate().filter_map(value).collect()
}

/// The command line of the kube-apiserver of a manifest.
fn command_line_words(manifest: &[u8]) -> Result<Vec<String>, String> {
    let pod = decode::decode_value(manifest, BodyEncoding::Yaml)?.value;
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let words = containers.flat_map(|container| ["command", "args"].map(|part| container[part].clone()));
    let words: Vec<String> = words
        .flat_map(|part| part.as_array().cloned().unwrap_or_default())
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect();
    if !words.iter().any(|word| word.ends_with("kube-apiserver")) {
        return Err("it starts no kube-apiserver".to_owned());
    }
    Ok(words)
}

impl KubeadmValues {
    /// A reader of the header names in the manifest of the local kube-apiserver, which may change; `None` without a manifest.
    pub(super) fn local_header_names(&self) -> Option<gateway::vouching::ManifestReader> {
        let manifest = self.values.get("upstream")?.source.clone();
        Some(Arc::new(move || {
            let content = std::fs::read(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
            parse_header_names(&content)
        }))
    }

    /// The file of a flag, given or found.
    pub(super) fn path_of_flag(&self, flags: &FlagValues, name: &str) -> Option<PathBuf> {
        let found = || self.values.get(name).map(|value| PathBuf::from(&value.text));
        flags.given_value(name).map(PathBuf::from).or_else(found)
    }

    /// The values of a list flag, given or found.
    pub(super) fn list_of_flag(&self, flags: &FlagValues, name: &str) -> Vec<String> {
        let given = flags.list_values(name);
        if given.is_empty() {
            self.values.get(name).map(|value| value.text.clone()).into_iter().collect()
        } else {
            given
        }
    }

    /// The page of `--print-config`: every setting and its source.
    pub(super) fn render_config(&self, flags: &FlagValues) -> String {
        let mut page = String::new();
        for flag in FLAGS.iter().filter(|flag| flag.name != "print-config") {
            let (text, from) = match (flags.is_given(flag.name), self.values.get(flag.name)) {
                (false, Some(value)) => (value.text.clone(), format!("found: {}", value.source.display())),
                (true, _) => (flags.joined_values(flag.name), "given".to_owned()),
                (false, None) => (flag.default.to_owned(), "default".to_owned()),
            };
            let _ = writeln!(page, "--{}={text}  # {from}", flag.name);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(manifest: &str, expected: &Expect) {
        expected.assert_eq(&match parse_apiserver_address(manifest.as_bytes()) {
            Ok((host, port)) => format!("{host} {port}"),
            Err(reason) => format!("error: {reason}"),
        });
    }

    #[test]
    fn apiserver_address_is_parsed_from_the_manifest() {
        check(
            "spec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --advertise-address=10.0.0.1\n    - --secure-port=6444\n",
            &expect!["10.0.0.1 6444"],
        );
        check(
            "spec:\n  containers:\n  - command: [kube-apiserver]\n    args: [--advertise-address=fd00::1]\n",
            &expect!["fd00::1 6443"],
        );
        check("spec:\n  containers:\n  - command: [etcd]\n", &expect!["error: it starts no kube-apiserver"]);
    }

    #[test]
    fn header_names_are_parsed_from_the_manifest() {
        let manifest = "spec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --requestheader-username-headers=X-Remote-User, X-A\n    \
                        - --requestheader-username-headers=X-B\n    - --requestheader-group-headers\n    - X-Remote-Group\n";
        let names = parse_header_names(manifest.as_bytes()).unwrap();
        assert_eq!(names.user, ["X-Remote-User", "X-A", "X-B"]);
        assert_eq!((names.group, names.uid, names.extra_prefix), (vec!["X-Remote-Group".to_owned()], vec![], vec![]));
    }

    #[test]
    fn given_flags_override_kubeadm_and_config_names_each_source() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("pki")).unwrap();
        std::fs::write(folder.path().join("pki/ca.crt"), "").unwrap();
        let parse = |args: &[&str]| {
            let all = [format!("--kubeadm-dir={}", folder.path().display())];
            FlagValues::parse(FLAGS, all.into_iter().chain(args.iter().map(|arg| (*arg).to_owned()))).unwrap()
        };
        let flags = parse(&["--client-ca-file=mine.crt"]);
        let found = detect(&flags).unwrap();
        assert_eq!(found.path_of_flag(&flags, "client-ca-file").unwrap(), Path::new("mine.crt"));
        assert_eq!(found.path_of_flag(&flags, "upstream-ca-file").unwrap(), folder.path().join("pki/ca.crt"));
        assert_eq!(found.path_of_flag(&flags, "tls-cert-file"), None);
        let page = found.render_config(&flags);
        assert!(page.contains("--client-ca-file=mine.crt  # given\n"), "{page}");
        let line = format!("pki/ca.crt  # found: {}/pki/ca.crt\n", folder.path().display());
        assert!(page.contains(&line), "{page}");
        assert!(page.contains("--secure-port=7443  # default\n"), "{page}");
        let flags = parse(&["--upstream=10.0.0.1:6443"]);
        assert_eq!(detect(&flags).unwrap().path_of_flag(&flags, "upstream-ca-file"), None);
    }
}
