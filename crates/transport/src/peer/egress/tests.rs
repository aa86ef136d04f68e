use expect_test::{Expect, expect};
use object::decode::{BodyEncoding, decode_value};

use super::*;

#[track_caller]
fn check_selections(selections: &str, expected: &Expect) {
    check_file(
        &format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n{selections}"
        ),
        expected,
    );
}

#[track_caller]
fn check_file(file: &str, expected: &Expect) {
    let read = decode_value(file.as_bytes(), BodyEncoding::Yaml).unwrap();
    let shown = match parse_controlplane_egress(read.value) {
        Ok(egress) => format!("{egress:?}"),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn controlplane_selection_determines_egress() {
    let cluster = "- {name: cluster, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /x}}}}";
    check_selections(cluster, &expect!["Direct"]);
    check_selections("- {name: controlplane, connection: {proxyProtocol: Direct}}", &expect!["Direct"]);
    check_selections(
        "- {name: ControlPlane, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/proxy.sock}}}}",
        &expect![[r#"Unix("/run/proxy.sock")"#]],
    );
    check_selections(
        "- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://[::1]:8131'}}}}",
        &expect![[r#"Tcp { host: "::1", port: 8131, tls: None }"#]],
    );
    check_selections(
        "- name: controlplane
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://proxy.example:8131
        tlsConfig: {caBundle: /ca, clientKey: /key, clientCert: /crt}",
        &expect![[
            r#"Tcp { host: "proxy.example", port: 8131, tls: Some(ProxyTls { files: ClientTlsFiles { ca_bundle: "/ca", client_certificate: Some(CertificateFiles { certificate: "/crt", key: "/key" }) }, server_name: DnsName("proxy.example") }) }"#
        ]],
    );
}

#[test]
fn v1alpha1_json_is_accepted() {
    check_file(
        r#"{"apiVersion":"apiserver.k8s.io/v1alpha1","kind":"EgressSelectorConfiguration","egressSelections":[
            {"name":"controlplane","connection":{"proxyProtocol":"HTTPConnect","transport":{"uds":{"udsName":"/x"}}}}]}"#,
        &expect![[r#"Unix("/x")"#]],
    );
}

#[test]
fn invalid_configuration_is_rejected_with_field_path() {
    check_file(
        "apiVersion: v1\nkind: Pod",
        &expect![[
            r#"unsupported kind Pod of v1; expected EgressSelectorConfiguration of apiserver.k8s.io/v1beta1 or apiserver.k8s.io/v1alpha1"#
        ]],
    );
    check_selections(
        "- {name: controlplane, conection: {}}",
        &expect!["not an EgressSelectorConfiguration: unknown field `conection`, expected `name` or `connection`"],
    );
    check_selections(
        "- {name: master, connection: {proxyProtocol: Direct}}",
        &expect![[r#"egressSelections[0].name: "master" is not one of controlplane, etcd, cluster"#]],
    );
    let direct = "- {name: controlplane, connection: {proxyProtocol: Direct}}";
    check_selections(
        &format!("{direct}\n{direct}"),
        &expect![[r#"egressSelections[1].name: "controlplane" is listed twice"#]],
    );
    for (connection, expected) in [
        (
            "proxyProtocol: GRPC, transport: {uds: {udsName: /x}}",
            expect![
                "egressSelections[0].connection.proxyProtocol: GRPC is not supported; use HTTPConnect, which konnectivity offers too (--mode=http-connect)"
            ],
        ),
        (
            "proxyProtocol: SOCKS",
            expect![[r#"egressSelections[0].connection.proxyProtocol: "socks" is neither Direct nor HTTPConnect"#]],
        ),
        (
            "proxyProtocol: Direct, transport: {uds: {udsName: /x}}",
            expect!["egressSelections[0].connection.transport: must be absent if proxyProtocol is Direct"],
        ),
        (
            "proxyProtocol: HTTPConnect",
            expect!["egressSelections[0].connection.transport: HTTPConnect requires exactly one of tcp and uds"],
        ),
        (
            "proxyProtocol: HTTPConnect, transport: {uds: {udsName: x}}",
            expect!["egressSelections[0].connection.transport.uds.udsName: must be an absolute path"],
        ),
        (
            "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x:1'}}",
            expect!["egressSelections[0].connection.transport.tcp.url: without tlsConfig it must begin with http://"],
        ),
        (
            "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://x:1', tlsConfig: {caBundle: /x}}}",
            expect!["egressSelections[0].connection.transport.tcp.url: with tlsConfig it must begin with https://"],
        ),
        (
            "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x:1', tlsConfig: {}}}",
            expect![
                "egressSelections[0].connection.transport.tcp.tlsConfig.caBundle: is required; the system's certificate authorities are not used"
            ],
        ),
        (
            "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x:1', tlsConfig: {caBundle: /x, clientKey: /y}}}",
            expect![
                "egressSelections[0].connection.transport.tcp.tlsConfig: clientCert and clientKey must be set together"
            ],
        ),
    ] {
        check_selections(&format!("- {{name: controlplane, connection: {{{connection}}}}}"), &expected);
    }
}
