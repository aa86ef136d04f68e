//! Builder for test messages.

use super::PROTOBUF_PREFIX;

/// The bytes of a message, field by field.
pub(super) struct TestMessage(pub(super) Vec<u8>);

impl TestMessage {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn varint(self, number: u32, value: u64) -> Self {
        self.tag(number, 0).raw_varint(value)
    }

    pub(super) fn fixed64(self, number: u32, value: u64) -> Self {
        self.tag(number, 1).raw(&value.to_le_bytes())
    }

    pub(super) fn bytes(self, number: u32, bytes: &[u8]) -> Self {
        self.tag(number, 2).raw_varint(bytes.len() as u64).raw(bytes)
    }

    pub(super) fn text(self, number: u32, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    pub(super) fn with(self, number: u32, message: Self) -> Self {
        let Self(message) = message;
        self.bytes(number, &message)
    }

    /// Appends the fields of another message.
    pub(super) fn and(self, other: Self) -> Self {
        let Self(other) = other;
        self.raw(&other)
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn tag(self, number: u32, form: u64) -> Self {
        self.raw_varint(u64::from(number) << 3 | form)
    }

    fn raw_varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }
}

pub(super) fn encode_envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = TestMessage::new().text(1, api_version).text(2, kind);
    let envelope = TestMessage::new().with(1, type_meta).bytes(2, message).text(3, "").text(4, "");
    [PROTOBUF_PREFIX, &envelope.0].concat()
}
