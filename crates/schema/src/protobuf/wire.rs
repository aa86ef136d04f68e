//! The wire format: a message is a sequence of numbered fields, each with a payload of one of five wire types.

use prost::encoding::WireType;

/// The error of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field is longer than the rest of the message.
    #[error("unexpected end of the message")]
    Truncated,
    /// An integer of more than 64 bits.
    #[error("an integer has more than 64 bits")]
    Overflow,
    /// A field number out of range, or an unknown wire type.
    #[error("illegal tag {0}")]
    IllegalTag(u64),
    /// A group end without a group start.
    #[error("a group ends that did not begin")]
    GroupEnd,
    /// A payload whose wire type does not fit the field.
    #[error("the payload has another form than the field")]
    WrongWireType,
    /// A string that is not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// Infinity or NaN, which JSON cannot represent.
    #[error("{0} is no number of JSON")]
    NotFinite(String),
    /// A time outside of the years 0 to 9999.
    #[error("{0} seconds from 1970 are outside of the years 0 to 9999")]
    TimeOutOfRange(i64),
    /// An `IntOrString` whose type is neither integer nor string.
    #[error("impossible IntOrString.Type {0}")]
    NeitherIntNorString(i64),
    /// Embedded JSON that does not parse.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// Deeper than [`super::DEPTH_MAX`].
    #[error("objects nest too deeply")]
    TooDeep,
    /// More than [`super::OBJECTS_MAX`].
    #[error("too many objects")]
    TooManyObjects,
}

/// The payload of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
    /// A deprecated wire type that Kubernetes never writes; skipped.
    Group,
}

impl<'a> Payload<'a> {
    pub(super) fn varint(self) -> Result<u64, WireError> {
        if let Self::Varint(value) = self { Ok(value) } else { Err(WireError::WrongWireType) }
    }

    pub(super) fn fixed64(self) -> Result<u64, WireError> {
        if let Self::Fixed64(value) = self { Ok(value) } else { Err(WireError::WrongWireType) }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], WireError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(WireError::WrongWireType) }
    }

    /// Rejects invalid UTF-8. Go accepts it and replaces the bytes when it encodes JSON.
    pub(super) fn text(self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::NotUtf8)
    }
}

/// Iterator over the fields of a message with their numbers; ends after the first error.
#[derive(Clone, Debug)]
pub(super) struct WireFields<'a> {
    remaining: &'a [u8],
}

impl<'a> WireFields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { remaining: message }
    }

    fn next_field(&mut self) -> Result<(u32, Payload<'a>), WireError> {
        let (number, form) = self.read_tag()?;
        let payload = match form {
            WireType::StartGroup => self.skip_group()?,
            WireType::EndGroup => return Err(WireError::GroupEnd),
            WireType::Varint | WireType::SixtyFourBit | WireType::LengthDelimited | WireType::ThirtyTwoBit => {
                self.read_payload(form)?
            }
        };
        Ok((number, payload))
    }

    fn read_tag(&mut self) -> Result<(u32, WireType), WireError> {
        let tag = self.read_varint()?;
        let illegal = || WireError::IllegalTag(tag);
        // Go's field numbers are positive 32-bit integers.
        let number = i32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or_else(illegal)?;
        Ok((number.unsigned_abs(), WireType::try_from(tag & 7).map_err(|_| illegal())?))
    }

    fn read_payload(&mut self, form: WireType) -> Result<Payload<'a>, WireError> {
        Ok(match form {
            WireType::Varint => Payload::Varint(self.read_varint()?),
            WireType::SixtyFourBit => Payload::Fixed64(u64::from_le_bytes(self.read_array()?)),
            WireType::LengthDelimited => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| WireError::Truncated)?;
                Payload::Bytes(self.read_bytes(length)?)
            }
            WireType::ThirtyTwoBit => Payload::Fixed32(u32::from_le_bytes(self.read_array()?)),
            WireType::StartGroup | WireType::EndGroup => Payload::Group,
        })
    }

    /// Skips to the end of a group that has just begun. Groups in it are counted, not descended into.
    fn skip_group(&mut self) -> Result<Payload<'a>, WireError> {
        let mut open = 1_usize;
        while open > 0 {
            match self.read_tag()?.1 {
                WireType::StartGroup => open += 1,
                WireType::EndGroup => open -= 1,
                form @ (WireType::Varint
                | WireType::SixtyFourBit
                | WireType::LengthDelimited
                | WireType::ThirtyTwoBit) => {
                    self.read_payload(form)?;
                }
            }
        }
        Ok(Payload::Group)
    }

    /// Bits beyond the 64th are lost, as in Go, if they are in the tenth byte.
    fn read_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for position in 0..10 {
            let (byte, rest) = self.remaining.split_first().ok_or(WireError::Truncated)?;
            self.remaining = rest;
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    fn read_bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.remaining.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.remaining = rest;
        Ok(taken)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.remaining.split_first_chunk().ok_or(WireError::Truncated)?;
        self.remaining = rest;
        Ok(*array)
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u32, Payload<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining.is_empty() {
            return None;
        }
        let field = self.next_field();
        if field.is_err() {
            self.remaining = &[];
        }
        Some(field)
    }
}

/// The varints of a list that is packed into one field.
pub(super) fn unpack_varints(packed: &[u8]) -> impl Iterator<Item = Result<Payload<'_>, WireError>> {
    unpack(packed, WireType::Varint)
}

/// The 64-bit numbers of a list that is packed into one field.
pub(super) fn unpack_fixed64s(packed: &[u8]) -> impl Iterator<Item = Result<Payload<'_>, WireError>> {
    unpack(packed, WireType::SixtyFourBit)
}

fn unpack(packed: &[u8], form: WireType) -> impl Iterator<Item = Result<Payload<'_>, WireError>> {
    let mut fields = WireFields::new(packed);
    std::iter::from_fn(move || {
        if fields.remaining.is_empty() {
            return None;
        }
        let payload = fields.read_payload(form);
        if payload.is_err() {
            fields.remaining = &[];
        }
        Some(payload)
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(message: &[u8], expected: &Expect) {
        expected.assert_eq(&format!("{:?}", WireFields::new(message).collect::<Result<Vec<_>, _>>()));
    }

    #[test]
    fn wire_fields_read_every_wire_type() {
        check(b"", &expect!["Ok([])"]);
        check(b"\x08\x96\x01", &expect!["Ok([(1, Varint(150))])"]);
        check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &expect!["Ok([(1, Varint(18446744073709551615))])"]);
        check(b"\x09\x01\0\0\0\0\0\0\0", &expect!["Ok([(1, Fixed64(1))])"]);
        check(b"\x12\x02ab\x12\x00", &expect!["Ok([(2, Bytes([97, 98])), (2, Bytes([]))])"]);
        check(b"\x0d\x01\0\0\0", &expect!["Ok([(1, Fixed32(1))])"]);
        check(b"\xf8\xff\xff\xff\x3f\x01", &expect!["Ok([(2147483647, Varint(1))])"]);
    }

    #[test]
    fn wire_fields_skip_groups() {
        // 1 { 2: 5, 3 { 4: "x" } } 5: 7
        check(b"\x0b\x10\x05\x1b\x22\x01x\x1c\x0c\x28\x07", &expect!["Ok([(1, Group), (5, Varint(7))])"]);
        check(b"\x0b\x10\x05", &expect!["Err(Truncated)"]);
        check(b"\x0c", &expect!["Err(GroupEnd)"]);
    }

    #[test]
    fn wire_fields_reject_malformed_messages() {
        check(b"\x08", &expect!["Err(Truncated)"]);
        check(b"\x08\x80", &expect!["Err(Truncated)"]);
        check(b"\x09\x01\0\0", &expect!["Err(Truncated)"]);
        check(b"\x12\x03ab", &expect!["Err(Truncated)"]);
        check(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", &expect!["Err(Truncated)"]);
        check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &expect!["Err(Overflow)"]);
        check(b"\x00\x01", &expect!["Err(IllegalTag(0))"]);
        check(b"\x0e", &expect!["Err(IllegalTag(14))"]);
        check(b"\x80\x80\x80\x80\x40\x01", &expect!["Err(IllegalTag(17179869184))"]);
    }

    #[test]
    fn packed_lists_are_unpacked_until_first_error() {
        let read = |payloads: Vec<Result<Payload<'_>, WireError>>| format!("{payloads:?}");
        expect!["[Ok(Varint(1)), Ok(Varint(300))]"].assert_eq(&read(unpack_varints(b"\x01\xac\x02").collect()));
        expect!["[Ok(Varint(1)), Err(Truncated)]"].assert_eq(&read(unpack_varints(b"\x01\xac").collect()));
        expect!["[Ok(Fixed64(2)), Err(Truncated)]"]
            .assert_eq(&read(unpack_fixed64s(b"\x02\0\0\0\0\0\0\0\x01").collect()));
    }

    proptest! {
        /// It ends, and never with more fields than there are bytes.
        #[test]
        fn wire_fields_end_on_random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(WireFields::new(&bytes).count() <= bytes.len());
        }
    }
}
