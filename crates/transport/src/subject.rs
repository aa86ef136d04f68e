//! The fields of a certificate's subject that Kubernetes reads.

use x509_parser::asn1_rs::{Any, Class, DerParser, Oid, SequenceIterator, Tag, oid};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct X509Subject {
    /// CN, the user name; the last one if there are several.
    pub common_name: String,
    /// O, the groups, in certificate order.
    pub organizations: Vec<String>,
    /// OID 1.3.6.1.4.1.57683.2, the uid. Authentication rejects several.
    pub uids: Vec<String>,
}

const UID: Oid<'_> = oid!(1.3.6.1.4.1.57683.2);

impl X509Subject {
    /// Parses the DER content of an X.501 name, a sequence of sets of attributes; `None` if malformed.
    pub fn from_der(name: &[u8]) -> Option<Self> {
        let mut subject = Self::default();
        for set in values(name) {
            for attribute in values(content(&set?, Tag::Set)?) {
                let mut parts = values(content(&attribute?, Tag::Sequence)?);
                let (oid, value) = (parts.next()??, parts.next()??);
                match Oid::new(content(&oid, Tag::Oid)?.into()) {
                    oid if oid == OID_X509_COMMON_NAME => subject.common_name = decode_text(&value)?,
                    oid if oid == OID_X509_ORGANIZATION_NAME => subject.organizations.push(decode_text(&value)?),
                    oid if oid == UID => subject.uids.push(decode_text(&value)?),
                    _ => {}
                }
            }
        }
        Some(subject)
    }
}

/// Iterates over consecutive DER values. A malformed value yields `None` and ends the iteration.
fn values(der: &[u8]) -> impl Iterator<Item = Option<Any<'_>>> {
    SequenceIterator::<Any<'_>, DerParser>::new(der).map(Result::ok)
}

/// Returns the content of a value of the given type. asn1-rs' typed parsers check neither the class nor an OID's tag.
fn content<'a>(value: &Any<'a>, tag: Tag) -> Option<&'a [u8]> {
    let is_constructed = matches!(tag, Tag::Sequence | Tag::Set);
    let header = &value.header;
    let is_of_type =
        header.class() == Class::Universal && header.tag() == tag && header.is_constructed() == is_constructed;
    is_of_type.then_some(value.data)
}

/// Decodes UTF8String, PrintableString, TeletexString and IA5String as UTF-8, BMPString as UTF-16.
fn decode_text(value: &Any<'_>) -> Option<String> {
    let content = content(value, value.tag())?;
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::TeletexString | Tag::Ia5String => {
            String::from_utf8(content.to_vec()).ok()
        }
        Tag::BmpString if content.len().is_multiple_of(2) => Some(value.as_bmpstring().ok()?.string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    const KUBERNETES_UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    const BMP_STRING: u8 = 0x1e;

    fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, inner: &[u8]| [&[tag, inner.len() as u8], inner].concat();
        let inner = [wrap(OBJECT_IDENTIFIER, oid), wrap(tag, value)].concat();
        wrap(SET, &wrap(SEQUENCE, &inner))
    }

    #[test]
    fn from_der_reads_name_groups_and_uid() {
        let name = [
            attribute(ORGANIZATION, 0x0c, b"system:masters"),
            attribute(&[0x55, 0x04, 0x06], 0x13, b"DE"),
            attribute(ORGANIZATION, BMP_STRING, &[0, b'o', 0, b'k']),
            attribute(COMMON_NAME, 0x0c, b"first"),
            attribute(KUBERNETES_UID, 0x0c, b"u1"),
            attribute(COMMON_NAME, 0x0c, b"kubernetes-admin"),
        ]
        .concat();
        let subject = X509Subject::from_der(&name).unwrap();
        assert_eq!(subject.common_name, "kubernetes-admin");
        assert_eq!(subject.organizations, ["system:masters", "ok"]);
        assert_eq!(subject.uids, ["u1"]);
    }

    #[test]
    fn malformed_names_are_refused() {
        let group = attribute(ORGANIZATION, 0x0c, b"system:masters");
        for (tag, value) in
            [(0x0c, &b"\xff"[..]), (BMP_STRING, b"odd"), (0x04, b"octets"), (0x2c, b""), (0x8c, b"tagged")]
        {
            let bad = attribute(COMMON_NAME, tag, value);
            assert_eq!(X509Subject::from_der(&[&group[..], &bad].concat()), None, "{tag:#x} {value:?}");
        }
        // Two attributes in one set; the second is malformed.
        let inner = [&group[2..], &[0x02, 1, 7]].concat();
        assert_eq!(X509Subject::from_der(&[&[SET, inner.len() as u8], &inner[..]].concat()), None);
        assert_eq!(X509Subject::from_der(&[&group[..], &[SEQUENCE, 0]].concat()), None);
        assert_eq!(X509Subject::from_der(&group[..group.len() - 1]), None);
        let changed = |at: usize, byte: u8| {
            let mut name = group.clone();
            name[at] = byte;
            X509Subject::from_der(&name)
        };
        assert_eq!(changed(0, 0x71), None, "a set of another class");
        assert_eq!(changed(4, 0x0c), None, "an attribute type that is no OID");
        assert_eq!(X509Subject::from_der(&[SET, 0]), Some(X509Subject::default()));
        assert_eq!(X509Subject::from_der(&[]), Some(X509Subject::default()));
    }

    #[test]
    fn from_der_never_panics_on_truncated_or_corrupt_input() {
        let name = attribute(COMMON_NAME, 0x0c, b"someone");
        for end in 0..name.len() {
            let _ = X509Subject::from_der(&name[..end]);
        }
        for at in 0..name.len() {
            for byte in 0..=255 {
                let mut changed = name.clone();
                changed[at] = byte;
                let _ = X509Subject::from_der(&changed);
            }
        }
    }
}
