//! Bitmaps of allocated offsets, as kube-apiserver stores them.

use api::json::JsonObject;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What precedes an object that is stored as protobuf.
const PROTOBUF_PREFIX: &[u8] = b"k8s\0";
/// Field numbers: the object within its envelope, and the fields of a RangeAllocation.
const ENVELOPE_RAW: u64 = 2;
const RANGE: u64 = 2;
const DATA: u64 = 3;

/// The allocated offsets of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    /// Bit 0 is the lowest bit of the first byte.
    bytes: Vec<u8>,
}

impl Bitmap {
    /// Reads the bytes of Go's `big.Int`: big endian.
    pub fn from_big_endian(bytes: &[u8]) -> Self {
        Self { bytes: bytes.iter().rev().copied().collect() }
    }

    /// The bytes of Go's `big.Int`: big endian, without leading zeros.
    pub fn to_big_endian(&self) -> Vec<u8> {
        self.bytes.iter().rev().copied().skip_while(|byte| *byte == 0).collect()
    }

    /// Whether an offset is allocated.
    pub fn contains(&self, offset: usize) -> bool {
        self.bytes.get(offset / 8).is_some_and(|byte| byte & (1 << (offset % 8)) != 0)
    }

    /// Allocates an offset.
    pub fn insert(&mut self, offset: usize) {
        let at = offset / 8;
        if self.bytes.len() <= at {
            self.bytes.resize(at + 1, 0);
        }
        self.bytes[at] |= 1 << (offset % 8);
    }

    /// Releases an offset.
    pub fn remove(&mut self, offset: usize) {
        if let Some(byte) = self.bytes.get_mut(offset / 8) {
            *byte &= !(1 << (offset % 8));
        }
    }

    /// The allocated offsets, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.bytes.len() * 8).filter(|offset| self.contains(*offset))
    }
}

/// A stored bitmap with the range that it is about: the kind `RangeAllocation`, which no REST path serves.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeAllocation {
    /// The range: a CIDR or `FIRST-LAST`.
    pub range: String,
    /// The allocated offsets.
    pub bitmap: Bitmap,
    metadata: Value,
}

/// Why the bytes of a RangeAllocation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored RangeAllocation cannot be read: {reason}")]
pub struct RangeAllocationError {
    reason: String,
}

impl RangeAllocation {
    /// A range without allocations.
    pub fn empty(range: String) -> Self {
        Self { range, bitmap: Bitmap::default(), metadata: json!({"creationTimestamp": null}) }
    }

    /// Reads a stored value.
    pub fn parse(value: &[u8]) -> Result<Self, RangeAllocationError> {
        let error = |reason: &str| RangeAllocationError { reason: reason.to_owned() };
        if let Some(envelope) = value.strip_prefix(PROTOBUF_PREFIX) {
            return Self::parse_protobuf(envelope).ok_or_else(|| error("the protobuf message is malformed"));
        }
        let object: JsonObject = serde_json::from_slice(value).map_err(|parse| error(&parse.to_string()))?;
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let data = STANDARD.decode(text("data")).map_err(|decode| error(&decode.to_string()))?;
        Ok(Self {
            range: text("range").to_owned(),
            bitmap: Bitmap::from_big_endian(&data),
            metadata: object.get("metadata").cloned().unwrap_or_else(|| json!({"creationTimestamp": null})),
        })
    }

    /// Reads the message that follows the prefix: the type, then the object. Metadata, which nothing reads, is not kept.
    fn parse_protobuf(envelope: &[u8]) -> Option<Self> {
        let object = protobuf_field(envelope, ENVELOPE_RAW)?;
        let range = protobuf_field(object, RANGE).unwrap_or_default();
        let bitmap = Bitmap::from_big_endian(protobuf_field(object, DATA).unwrap_or_default());
        Some(Self { bitmap, ..Self::empty(std::str::from_utf8(range).ok()?.to_owned()) })
    }

    /// The value to store, as a kube-apiserver with `--storage-media-type=application/json` writes it.
    pub fn to_json(&self) -> Vec<u8> {
        let data = match self.bitmap.to_big_endian() {
            bytes if bytes.is_empty() => json!(""),
            bytes => STANDARD.encode(bytes).into(),
        };
        let value = json!({"kind": "RangeAllocation", "apiVersion": "v1", "metadata": self.metadata,
            "range": self.range, "data": data});
        let mut json = api::json::to_go_json(&value);
        json.push(b'\n');
        json
    }
}

/// The last value of a field of strings or bytes; `None` if it is absent or the message is malformed.
fn protobuf_field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    let mut found = None;
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        // All fields of both messages are length-delimited.
        if tag & 7 != 2 {
            return None;
        }
        let length = usize::try_from(take_varint(&mut message)?).ok()?;
        let value = message.split_off(..length)?;
        if tag >> 3 == number {
            found = Some(value);
        }
    }
    found
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
