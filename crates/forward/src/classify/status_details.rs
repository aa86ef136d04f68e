//! Finds out whether a Status names the object it is about, in JSON or in protobuf, which clients of kube-apiserver ask for.

use api::Status;

/// The first bytes of every protobuf body of Kubernetes.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";
/// The fields on the way from the envelope to the name: `Unknown.raw`, `Status.details`, `StatusDetails.name`.
const NAME_PATH: [u64; 3] = [2, 5, 1];

/// True if these bytes are a Status with `details.name`.
pub(super) fn has_details_name(body: &[u8]) -> bool {
    if let Some(message) = body.strip_prefix(PROTOBUF_MAGIC) {
        return is_status_envelope(message)
            && NAME_PATH
                .iter()
                .try_fold(message, |message, &field| find_field(message, field))
                .is_some_and(|name| !name.is_empty());
    }
    Status::from_json(body).and_then(|status| status.details).is_some_and(|details| !details.name.is_empty())
}

/// `Unknown.typeMeta.kind` is `Status`.
fn is_status_envelope(message: &[u8]) -> bool {
    find_field(message, 1).and_then(|type_meta| find_field(type_meta, 2)) == Some(b"Status")
}

/// The last occurrence of a field that holds bytes; `None` if it is absent or the message is malformed before its end.
fn find_field(mut message: &[u8], field_number: u64) -> Option<&[u8]> {
    let mut found = None;
    while !message.is_empty() {
        let key = read_varint(&mut message)?;
        match key & 7 {
            0 => {
                read_varint(&mut message)?;
            }
            1 => message = message.get(8..)?,
            5 => message = message.get(4..)?,
            2 => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                let (value, rest) = message.split_at_checked(length)?;
                message = rest;
                if key >> 3 == field_number {
                    found = Some(value);
                }
            }
            _ => return None,
        }
    }
    found
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &[u8], expected: bool) {
        assert_eq!(has_details_name(body), expected, "{:?}", String::from_utf8_lossy(body));
    }

    #[test]
    fn json_status_with_name_has_details_name() {
        check(br#"{"kind":"Status","apiVersion":"v1","code":404,"details":{"name":"x","kind":"pods"}}"#, true);
        check(br#"{"kind":"Status","apiVersion":"v1","code":404,"details":{"kind":"pods"}}"#, false);
        check(br#"{"kind":"Status","apiVersion":"v1","code":404,"details":{}}"#, false);
        check(br#"{"kind":"Pod","apiVersion":"v1","details":{"name":"x"}}"#, false);
        check(b"404 page not found\n", false);
        check(b"", false);
    }

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn envelope(kind: &str, status: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [PROTOBUF_MAGIC, &field(1, &type_meta), &field(2, status), &field(3, b""), &field(4, b"")].concat()
    }

    #[test]
    fn protobuf_status_with_name_has_details_name() {
        let details = [field(1, b"x"), field(3, b"pods"), vec![5 << 3, 0]].concat();
        let status = [field(1, b""), field(2, b"Failure"), field(5, &details), vec![6 << 3, 0x94, 0x03]].concat();
        check(&envelope("Status", &status), true);
        check(&envelope("Pod", &status), false);
        check(&envelope("Status", &field(5, &field(3, b"pods"))), false);
        check(&envelope("Status", &field(3, b"the server could not find the requested resource")), false);
    }

    #[test]
    fn has_details_name_never_panics_on_malformed_protobuf() {
        let whole = envelope("Status", &field(5, &field(1, b"x")));
        check(&whole, true);
        for end in 0..whole.len() {
            has_details_name(&whole[..end]);
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = byte;
                has_details_name(&changed);
            }
        }
    }
}
