//! Both formats of apt's configuration, and which of its entries are the distribution's own.

use expect_test::{Expect, expect};

use super::*;

fn shown(entries: &[Entry]) -> String {
    entries.iter().map(Entry::stanza).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check_lines(text: &str, expected: &Expect) {
    expected.assert_eq(&shown(&parse_lines(text)));
}

#[track_caller]
fn check_stanzas(text: &str, expected: &Expect) {
    expected.assert_eq(&shown(&parse_stanzas(text)));
}

#[test]
fn one_line_entries() {
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
fn stanzas_with_comments_and_several_suites() {
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
fn a_key_written_into_the_entry_is_kept() {
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
fn check_distribution(release: &str, expected: Option<(Family, &str)>) {
    assert_eq!(distribution(release), expected.map(|(family, codename)| (family, codename.to_owned())));
}

#[test]
fn derivatives_name_the_release_they_build_on() {
    check_distribution("ID=debian\nVERSION_CODENAME=bookworm\n", Some((Family::Debian, "bookworm")));
    check_distribution(
        "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n",
        Some((Family::Ubuntu, "noble")),
    );
    check_distribution(
        "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n",
        Some((Family::Ubuntu, "noble")),
    );
    check_distribution(
        "ID=lmde\nID_LIKE=debian\nVERSION_CODENAME=faye\nDEBIAN_CODENAME=bookworm\n",
        Some((Family::Debian, "bookworm")),
    );
    check_distribution("ID=fedora\nVERSION_CODENAME=\"\"\n", None);
}

fn machine() -> Machine {
    let entries = parse_lines(
        "deb https://other.example/apt cloud-sdk-bookworm main\n\
         deb [signed-by=/keys/a.gpg] http://mirror.example/debian bookworm main\n\
         deb http://mirror.example/security bookworm-security main\n",
    );
    Machine { family: Family::Debian, codename: "bookworm".to_owned(), entries }
}

#[test]
fn own_archives_are_the_releases_and_nobody_elses() {
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
    .assert_eq(&shown(&machine().own().unwrap()));
}

#[test]
fn another_suite_is_taken_from_the_same_mirror() {
    let entry = machine().suite("trixie").unwrap();
    expect![[r#"
        Types: deb
        URIs: http://mirror.example/debian
        Suites: trixie
        Components: main
        Signed-By: /keys/a.gpg
    "#]]
    .assert_eq(&entry.stanza());
}

#[test]
fn a_machine_without_its_own_archive_says_so() {
    let mut machine = machine();
    machine.entries.clear();
    assert_eq!(machine.own().unwrap_err().to_string(), "/etc/apt names no archive of Debian bookworm");
    assert_eq!(machine.suite("trixie").unwrap_err().to_string(), "/etc/apt names no archive of bookworm");
}
