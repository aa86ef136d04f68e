//! Subjects of certificate requests as signers read them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{RequestedSubject, requested_subject};

const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;
const UTF8: u8 = 12;
const TELETEX: u8 = 20;
const VISIBLE: u8 = 26;
const BMP: u8 = 30;

fn wrap(tag: u8, inner: &[u8]) -> Vec<u8> {
    let length = u8::try_from(inner.len()).ok().filter(|length| *length < 128).expect("test values are short");
    [&[tag, length], inner].concat()
}

/// A certificate request in PEM; attributes of its subject are a kind, a type of text, and the text.
fn request(subject: &[(u8, u8, &[u8])]) -> String {
    let attribute = |(kind, tag, text): &(u8, u8, &[u8])| {
        wrap(0x31, &wrap(0x30, &[wrap(6, &[0x55, 4, *kind]), wrap(*tag, text)].concat()))
    };
    let name = wrap(0x30, &subject.iter().flat_map(attribute).collect::<Vec<u8>>());
    let algorithm = wrap(0x30, &wrap(6, &[0x2b, 0x65, 0x70]));
    let bits = wrap(3, &[0, 1]);
    let key = wrap(0x30, &[algorithm.clone(), bits.clone()].concat());
    let info = wrap(0x30, &[wrap(2, &[0]), name, key, wrap(0xa0, &[])].concat());
    pem(&wrap(0x30, &[info, algorithm, bits].concat()))
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}

#[track_caller]
fn check(subject: &[(u8, u8, &[u8])], common_name: &str, organizations: &[&str]) {
    let organizations = organizations.iter().map(|name| (*name).to_owned()).collect();
    let expected = RequestedSubject { common_name: common_name.to_owned(), organizations };
    assert_eq!(requested_subject(request(subject).as_bytes()), Ok(expected));
}

#[test]
fn last_common_name_counts() {
    let names: [(u8, u8, &[u8]); 2] =
        [(COMMON_NAME, UTF8, b"system:node:own"), (COMMON_NAME, UTF8, b"system:node:other")];
    check(&names, "system:node:other", &[]);
}

#[test]
fn text_of_every_type_that_signers_read_counts() {
    let wide: Vec<u8> = "system:masters".encode_utf16().flat_map(u16::to_be_bytes).collect();
    check(&[(ORGANIZATION, BMP, &wide)], "", &["system:masters"]);
    check(&[(ORGANIZATION, TELETEX, b"system:masters"), (ORGANIZATION, UTF8, b"b")], "", &["system:masters", "b"]);
    check(&[(ORGANIZATION, VISIBLE, b"not read"), (COMMON_NAME, UTF8, b"a")], "a", &[]);
}

#[test]
fn text_with_several_blocks_is_refused() {
    let (own, other) = (request(&[(COMMON_NAME, UTF8, b"own")]), request(&[(COMMON_NAME, UTF8, b"other")]));
    for text in [
        format!("{own}{other}"),
        format!("{}{other}", own.replace("END CERTIFICATE REQUEST", "END SOMETHING")),
        own.replace("END CERTIFICATE REQUEST", "END SOMETHING"),
        format!("-----BEGIN X-----\n{own}"),
    ] {
        assert_eq!(requested_subject(text.as_bytes()), Err("the request must be a single PEM block"), "{text}");
    }
    assert_eq!(requested_subject(b"a"), Err("PEM block type must be CERTIFICATE REQUEST"));
}
