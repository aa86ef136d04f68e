use super::*;

/// Checks the error for these flags, without its sources.
#[track_caller]
fn check(servers: &[&str], change: impl FnOnce(&mut Config), expected: &str) {
    let mut config = Config::new(servers.iter().map(ToString::to_string).collect());
    change(&mut config);
    let error = config.addresses().map(|_| ()).and_then(|()| config.tls().map(|_| ())).err();
    assert_eq!(error.map(|error| error.to_string()).unwrap_or_default(), expected, "{servers:?}");
}

#[test]
fn addresses_accept_only_http_and_https_host_urls() {
    check(&["http://127.0.0.1:2379", "http://[::1]:2379", "http://etcd.example/"], |_| {}, "");
    check(&[], |_| {}, "--etcd-servers names no server");
    check(&["127.0.0.1:2379"], |_| {}, &url_error("127.0.0.1:2379", "it must begin with http:// or https://"));
    check(&["unix://etcd"], |_| {}, &url_error("unix://etcd", "it must begin with http:// or https://"));
    check(&["http://a:1/v3"], |_| {}, &url_error("http://a:1/v3", "it must not have a path or a query"));
    check(&["http://a b"], |_| {}, &url_error("http://a b", "invalid uri character"));
}

fn url_error(url: &str, reason: &str) -> String {
    format!("--etcd-servers: {url:?} is not a URL like https://10.0.0.1:2379: {reason}")
}

#[test]
fn url_without_port_uses_default_port() {
    let [plain, six] = ["http://etcd.example", "https://[::1]:1"].map(|url| parse_address(url).unwrap());
    assert_eq!((plain.host.as_str(), plain.port, plain.tls_name.is_some()), ("etcd.example", DEFAULT_PORT, false));
    assert_eq!((six.host.as_str(), six.port, six.tls_name.is_some()), ("::1", 1, true));
    assert_eq!([plain, six].map(|address| address.to_string()), ["http://etcd.example", "https://[::1]:1"]);
}

#[test]
fn tls_files_are_required_and_used_only_with_https() {
    let https = ["https://127.0.0.1:2379"];
    let file = || Some(PathBuf::from("/nowhere.pem"));
    check(&https, |_| {}, "--etcd-servers has https URLs, which need a CA bundle: set --etcd-cafile");
    check(&https, |config| config.ca_file = file(), "--etcd-cafile: cannot read /nowhere.pem");
    let unused = "--etcd-keyfile is given, but --etcd-servers has only http URLs";
    check(&["http://127.0.0.1:2379"], |config| config.key_file = file(), unused);
}

#[test]
fn tls_file_without_certificate_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.pem");
    std::fs::write(&path, "not a certificate").unwrap();
    let expected = format!("--etcd-cafile: {} is not usable: no PEM block of type CERTIFICATE", path.display());
    check(&["https://127.0.0.1:2379"], |config| config.ca_file = Some(path.clone()), &expected);
}

#[test]
fn ca_bundle_error_names_leaf_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.pem");
    let server = rcgen::generate_simple_self_signed(vec!["etcd.example".to_owned()]).unwrap();
    std::fs::write(&path, server.cert.pem()).unwrap();
    let expected = format!(
        "--etcd-cafile: {} is not usable: certificate 1 (subject \"CN=rcgen self signed cert\") is not a certificate authority: it has \
         no basicConstraints; it is self-signed: have a certificate authority sign the server's or client's certificate, and give \
         that authority's certificate here",
        path.display()
    );
    check(&["https://127.0.0.1:2379"], |config| config.ca_file = Some(path.clone()), &expected);
}
