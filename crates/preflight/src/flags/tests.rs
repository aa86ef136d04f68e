use serde_json::json;

use super::*;

#[track_caller]
fn check(release: Release, command_line: &str, expected: &[&str]) {
    let refusals = ServerFlags::from_command_line(command_line).check(release).refusals;
    let evidence: Vec<&str> = refusals.iter().map(|refusal| refusal.evidence.as_str()).collect();
    assert_eq!(evidence, expected, "{release} {command_line}");
}

#[test]
fn flags_of_other_releases_are_refused_in_the_words_of_kube_apiserver() {
    check(Release::R32, "kube-apiserver --cloud-provider=external --etcd-servers=http://a:1", &[]);
    check(Release::R33, "kube-apiserver --cloud-provider=external", &["unknown flag: --cloud-provider"]);
    check(Release::R35, "--tls-curve-preferences=X25519", &["unknown flag: --tls-curve-preferences"]);
    check(Release::R36, "--tls-curve-preferences=X25519 --bogus --v=2 -v 3", &["unknown flag: --bogus"]);
    check(
        Release::R34,
        "--etcd_servers=http://a:1 --feature_gates=NoSuchGate=true",
        &["--feature-gates: unrecognized feature gate: NoSuchGate"],
    );
    check(
        Release::R34,
        "--min-compatibility-version=1.33 --feature-gates=NoSuchGate=true",
        &["unknown flag: --min-compatibility-version", "--feature-gates: unrecognized feature gate: NoSuchGate"],
    );
}

#[test]
fn values_that_a_release_refuses_are_found() {
    check(Release::R33, "--feature-gates=EnvFiles=true", &["--feature-gates: unrecognized feature gate: EnvFiles"]);
    check(
        Release::R37,
        "--runtime-config=example.com/v1=true",
        &["--runtime-config: unknown api groups example.com/v1"],
    );
    check(
        Release::R37,
        "--enable-admission-plugins=NodeRestriction,JobValidation",
        &[r#"--enable-admission-plugins: enable-admission-plugins plugin "JobValidation" is unknown"#],
    );
    check(Release::R36, "--enable-admission-plugins=NodeRestriction,JobValidation,ImagePolicyWebhook", &[]);
    check(
        Release::R35,
        "--emulated-version=1.31",
        &["--emulated-version: emulation version 1.31 is not between [1.32, 1.35.0]"],
    );
    check(
        Release::R36,
        "--emulated-version=kube=1.34 --min-compatibility-version 1.35",
        &["--min-compatibility-version: minCompatibilityVersion version 1.35 is not between [1.33, 1.34]"],
    );
    check(Release::R36, "--emulated-version=1.33 --min-compatibility-version=1.33", &[]);
    check(Release::R36, "--emulated-version=kube=v1.35.0", &[]);
    for (given, refusal) in [
        ("1.35.4", "patch version not allowed, got: kube=1.35.4"),
        ("35", r#"illegal version string "35""#),
        ("kube=1.35,wardle=1.2", "component not registered: wardle"),
        ("1.35,kube=1.34", "duplicate version flag, kube=1.35 and kube=1.34"),
    ] {
        check(Release::R36, &format!("--emulated-version={given}"), &[&format!("--emulated-version: {refusal}")]);
    }
    check(
        Release::R33,
        "--emulated-version=1.34",
        &["--emulated-version: emulation version 1.34 is not between [1.31, 1.33.0]"],
    );
}

#[test]
fn emulated_release_decides_which_gates_there_are() {
    let gate = "--feature-gates=VolumeLimitScaling=true";
    check(Release::R36, gate, &[]);
    check(
        Release::R36,
        &format!("{gate} --emulated-version=1.33"),
        &["--feature-gates: unrecognized feature gate: VolumeLimitScaling"],
    );
}

#[test]
fn manifests_units_and_environment_files_are_read() {
    let manifest = json!({"kind": "Pod", "spec": {"containers": [
        {"name": "sidecar", "command": ["x", "--y"]},
        {"name": "kube-apiserver", "command": ["kube-apiserver", "--a=1", "--b"], "args": ["2", "--c"]},
    ]}});
    let flags = ServerFlags::from_manifest(&manifest).unwrap();
    let expected: Vec<(String, String)> = [("a", "1"), ("b", "2"), ("c", "")]
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    assert_eq!(flags.flags, expected);
    assert!(ServerFlags::from_manifest(&json!({"kind": "Pod", "spec": {"containers": [{"name": "x"}]}})).is_none());
    let unit = ServerFlags::from_command_line("ExecStart=/usr/bin/kube-apiserver \\\n  --a=1 \\\n  --b \"2\" --c\n");
    assert_eq!(unit, flags);
    assert_eq!(ServerFlags::from_command_line("KUBE_API_ARGS=\"--a=1 --b=2 --c\""), flags);
}
