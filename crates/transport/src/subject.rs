//! The subject of a certificate: the parts of it that Kubernetes reads.

/// Who a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// CN: the user name. The last one, if there are several.
    pub common_name: String,
    /// O: the groups, in their order.
    pub organizations: Vec<String>,
    /// 1.3.6.1.4.1.57683.2, Kubernetes' own: the uid. Whether several make sense is for others to say.
    pub uids: Vec<String>,
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;
/// UTF8String, PrintableString, TeletexString and IA5String are read as text.
const TEXT_STRINGS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

impl Subject {
    /// Reads the contents of an X.501 name in DER: a sequence of sets of attributes. `None`: it is malformed.
    pub(crate) fn from_der(name: &[u8]) -> Option<Self> {
        let mut subject = Self::default();
        let mut sets = Der(name);
        while let Some(mut set) = sets.next_if(SET)? {
            while let Some(mut attribute) = set.next_if(SEQUENCE)? {
                let oid = attribute.next_if(OBJECT_IDENTIFIER)??;
                let (tag, value) = attribute.next()??;
                match oid.0 {
                    COMMON_NAME => subject.common_name = text(tag, value)?,
                    ORGANIZATION => subject.organizations.push(text(tag, value)?),
                    UID => subject.uids.push(text(tag, value)?),
                    _ => {}
                }
            }
        }
        Some(subject)
    }
}

/// DER that is read from its front.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value if it has this tag; inner `None` at the end; outer `None` if it is malformed.
    #[expect(clippy::option_option, reason = "the end and a mistake are two things")]
    fn next_if(&mut self, wanted: u8) -> Option<Option<Der<'a>>> {
        match self.next()? {
            None => Some(None),
            Some((tag, value)) if tag == wanted => Some(Some(Der(value))),
            Some(_) => None,
        }
    }

    #[expect(clippy::option_option, reason = "the end and a mistake are two things")]
    fn next(&mut self) -> Option<Option<(u8, &'a [u8])>> {
        let Some((&tag, rest)) = self.0.split_first() else { return Some(None) };
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ 0..=0x7f => (usize::from(short), rest),
            // A name longer than 65,535 bytes is nobody's name.
            0x81 | 0x82 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Some((tag, value)))
    }
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    if TEXT_STRINGS.contains(&tag) {
        return String::from_utf8(value.to_vec()).ok();
    }
    if tag == BMP_STRING && value.len().is_multiple_of(2) {
        let units: Vec<u16> = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16(&units).ok();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, inner: &[u8]| [&[tag, inner.len() as u8], inner].concat();
        let inner = [wrap(OBJECT_IDENTIFIER, oid), wrap(tag, value)].concat();
        wrap(SET, &wrap(SEQUENCE, &inner))
    }

    #[test]
    fn name_and_groups_are_read_and_the_rest_is_passed_over() {
        let name = [
            attribute(ORGANIZATION, 0x0c, b"system:masters"),
            attribute(&[0x55, 0x04, 0x06], 0x13, b"DE"),
            attribute(ORGANIZATION, BMP_STRING, &[0, b'o', 0, b'k']),
            attribute(COMMON_NAME, 0x0c, b"first"),
            attribute(UID, 0x0c, b"u1"),
            attribute(COMMON_NAME, 0x0c, b"kubernetes-admin"),
        ]
        .concat();
        let subject = Subject::from_der(&name).unwrap();
        assert_eq!(subject.common_name, "kubernetes-admin");
        assert_eq!(subject.organizations, ["system:masters", "ok"]);
        assert_eq!(subject.uids, ["u1"]);
    }

    #[test]
    fn no_prefix_and_no_changed_byte_makes_it_panic() {
        let name = attribute(COMMON_NAME, 0x0c, b"someone");
        for end in 0..name.len() {
            let _ = Subject::from_der(&name[..end]);
        }
        for at in 0..name.len() {
            for byte in 0..=255 {
                let mut changed = name.clone();
                changed[at] = byte;
                let _ = Subject::from_der(&changed);
            }
        }
    }
}
