//! Tests of both formats of apt's configuration, and of selecting the distribution's own entries.

use expect_test::{Expect, expect};

use super::*;

fn shown(entries: &[AptSource]) -> String {
    entries.iter().map(AptSource::to_deb822).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check_lines(text: &str, expected: &Expect) {
    expected.assert_eq(&shown(&parse_one_line_sources(text)));
}

#[track_caller]
fn check_stanzas(text: &str, expected: &Expect) {
    expected.assert_eq(&shown(&parse_deb822_sources(text)));
}

#[test]
fn one_line_sources_are_parsed() {
    check_lines(
        "# deb http://commented.example/debian bookworm main\n\
         deb [arch=amd64 signed-by=/keys/a.gpg] http://mirror.example/debian bookworm main contrib # why\n\
         deb-src http://mirror.example/debian bookworm main\n\
         deb\thttp://mirror.example/security  bookworm-security main\n",
        &expect![[r#"
            Types: deb
            URIs: http://mirror.example/debian
            Suites: bookworm
            Components: main contrib
            Signed-By: /keys/a.gpg

            Types: deb
            URIs: http://mirror.example/security
            Suites: bookworm-security
            Components: main
        "#]],
    );
}

#[test]
fn deb822_sources_with_comments_and_suites_are_parsed() {
    check_stanzas(
        "# a head\n\nTypes: deb deb-src\n# http://a.comment/within\nURIs: http://mirror.example/debian\n\
         suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /keys/a.gpg\nArchitectures: amd64\n\n\
         Types: deb-src\nURIs: http://sources.example/\nSuites: bookworm\n\n\
         Enabled: no\nTypes: deb\nURIs: http://off.example/\nSuites: bookworm\n",
        &expect![[r#"
            Types: deb
            URIs: http://mirror.example/debian
            Suites: bookworm bookworm-updates
            Components: main
            Signed-By: /keys/a.gpg
        "#]],
    );
}

#[test]
fn inline_signing_key_is_kept() {
    check_stanzas(
        "Types: deb\nURIs: http://mirror.example/\nSuites: noble\nComponents: main\nSigned-By:\n -----BEGIN KEY-----\n .\n abc\n -----END KEY-----\n",
        &expect![[r#"
            Types: deb
            URIs: http://mirror.example/
            Suites: noble
            Components: main
            Signed-By: 
             -----BEGIN KEY-----
             .
             abc
             -----END KEY-----
        "#]],
    );
}

#[track_caller]
fn check_distribution(release: &str, expected: Option<(DistributionFamily, &str)>) {
    assert_eq!(parse_os_release(release), expected.map(|(family, codename)| (family, codename.to_owned())));
}

#[test]
fn derivative_distributions_resolve_to_their_base_release() {
    check_distribution("ID=debian\nVERSION_CODENAME=bookworm\n", Some((DistributionFamily::Debian, "bookworm")));
    check_distribution(
        "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n",
        Some((DistributionFamily::Ubuntu, "noble")),
    );
    check_distribution(
        "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n",
        Some((DistributionFamily::Ubuntu, "noble")),
    );
    check_distribution(
        "ID=lmde\nID_LIKE=debian\nVERSION_CODENAME=faye\nDEBIAN_CODENAME=bookworm\n",
        Some((DistributionFamily::Debian, "bookworm")),
    );
    check_distribution("ID=fedora\nVERSION_CODENAME=\"\"\n", None);
}

fn test_sources() -> AptSources {
    let entries = parse_one_line_sources(
        "deb https://other.example/apt cloud-sdk-bookworm main\n\
         deb [signed-by=/keys/a.gpg] http://mirror.example/debian bookworm main\n\
         deb http://mirror.example/security bookworm-security main\n",
    );
    AptSources { family: DistributionFamily::Debian, codename: "bookworm".to_owned(), entries }
}

#[test]
fn distribution_sources_exclude_third_party_archives() {
    expect![[r#"
        Types: deb
        URIs: http://mirror.example/debian
        Suites: bookworm
        Components: main
        Signed-By: /keys/a.gpg

        Types: deb
        URIs: http://mirror.example/security
        Suites: bookworm-security
        Components: main
    "#]]
    .assert_eq(&shown(&test_sources().distribution_sources().unwrap()));
}

#[test]
fn source_for_suite_uses_the_same_mirror() {
    let entry = test_sources().source_for_suite("trixie").unwrap();
    expect![[r#"
        Types: deb
        URIs: http://mirror.example/debian
        Suites: trixie
        Components: main
        Signed-By: /keys/a.gpg
    "#]]
    .assert_eq(&entry.to_deb822());
}

#[test]
fn missing_distribution_archive_is_reported() {
    let mut machine = test_sources();
    machine.entries.clear();
    assert_eq!(machine.distribution_sources().unwrap_err().to_string(), "/etc/apt names no archive of Debian bookworm");
    assert_eq!(machine.source_for_suite("trixie").unwrap_err().to_string(), "/etc/apt names no archive of bookworm");
}
