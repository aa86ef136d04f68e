//! Where an encoded object has `apiVersion` and `kind`, so that list items can omit them without a parse.

use std::ops::Range;

use bytes::Bytes;

/// The spans of both fields in a body, each with the comma after it, in the order of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeFields([Range<u32>; 2]);

impl TypeFields {
    /// `values` are the encoded values of `apiVersion` and `kind`, subslices of `body`. `None` if a field is not followed
    /// by another one or is encoded with spaces, which neither we nor kube-apiserver do.
    pub(super) fn find(body: &[u8], [api_version, kind]: [&str; 2]) -> Option<Self> {
        let mut fields = [field_span(body, "apiVersion", api_version)?, field_span(body, "kind", kind)?];
        fields.sort_by_key(|field| field.start);
        Some(Self(fields))
    }

    /// The spans after an insertion of `length` bytes at `position`.
    pub(super) fn after_insertion(self, position: usize, length: usize) -> Option<Self> {
        let (position, length) = (u32::try_from(position).ok()?, u32::try_from(length).ok()?);
        Some(Self(self.0.map(|field| match field.start > position {
            true => field.start + length..field.end + length,
            false => field,
        })))
    }

    /// The body without the two fields, in parts.
    pub(super) fn cut_from(&self, body: &Bytes) -> [Bytes; 3] {
        let [first, second] = self.0.clone().map(|field| field.start as usize..field.end as usize);
        [body.slice(..first.start), body.slice(first.end..second.start), body.slice(second.end..)]
    }
}

fn field_span(body: &[u8], name: &str, value: &str) -> Option<Range<u32>> {
    let start = value.as_ptr().addr() - body.as_ptr().addr();
    let before = body[..start].strip_suffix(b":")?.strip_suffix(b"\"")?.strip_suffix(name.as_bytes())?;
    let before = before.strip_suffix(b"\"")?;
    let end = start + value.len();
    if body.get(end) != Some(&b',') {
        return None;
    }
    Some(u32::try_from(before.len()).ok()?..u32::try_from(end + 1).ok()?)
}
