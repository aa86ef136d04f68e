//! The names in an object in CBOR (RFC 8949), the encoding of custom resources in servers with the gate `CBORServingAndStorage`.

use std::borrow::Cow;

/// How deep values may nest; Kubernetes' decoder has the same limit.
const DEPTH_MAX: usize = 64;

const BYTES: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
/// Numbers, simple values, floats: the head is the whole value. 7 without an argument ends a value of open length.
const PLAIN: [u8; 3] = [0, 1, 7];

/// `apiVersion` and `kind` of a map, both empty if absent; `None` if the bytes are not one well-formed map.
pub(super) fn type_meta(bytes: &[u8]) -> Option<[Cow<'_, str>; 2]> {
    let mut reader = Reader { rest: bytes };
    let (MAP, length) = reader.head()? else { return None };
    let [mut api_version, mut kind] = [Cow::default(), Cow::default()];
    let mut left = length;
    while reader.has_item(&mut left)? {
        match &*reader.text()? {
            "apiVersion" => api_version = reader.text()?,
            "kind" => kind = reader.text()?,
            _ => reader.skip(1)?,
        }
    }
    reader.rest.is_empty().then_some([api_version, kind])
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    /// The major type and its argument; no argument means an open length, or the end of one.
    fn head(&mut self) -> Option<(u8, Option<u64>)> {
        let first = self.take(1)?[0];
        let argument = match first & 31 {
            small @ 0..24 => Some(u64::from(small)),
            size @ 24..28 => {
                let bytes = self.take(1 << (size - 24))?;
                Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            }
            31 => None,
            _ => return None,
        };
        Some((first >> 5, argument))
    }

    /// True if another item of a list or map follows; `left` is `None` if its length is open.
    fn has_item(&mut self, left: &mut Option<u64>) -> Option<bool> {
        match left {
            Some(0) => Some(false),
            Some(left) => {
                *left -= 1;
                Some(true)
            }
            None if *self.rest.first()? == 0xff => self.take(1).map(|_| false),
            None => Some(true),
        }
    }

    /// A string, which Kubernetes writes as bytes and reads as either.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        let (BYTES | TEXT, Some(length)) = self.head()? else { return None };
        std::str::from_utf8(self.take(length)?).ok().map(Cow::Borrowed)
    }

    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (major, argument) = self.head()?;
        match (major, argument) {
            (BYTES | TEXT, Some(length)) => self.take(length).map(drop),
            (BYTES | TEXT | LIST | MAP, mut left) => {
                while self.has_item(&mut left)? {
                    self.skip(depth + 1)?;
                    if major == MAP {
                        self.skip(depth + 1)?;
                    }
                }
                Some(())
            }
            (TAG, Some(_)) => self.skip(depth + 1),
            (major, Some(_)) if PLAIN.contains(&major) => Some(()),
            _ => None,
        }
    }
}
