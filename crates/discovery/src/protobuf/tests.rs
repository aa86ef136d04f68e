use super::*;
use crate::testing::groups_from_notation;

/// Decodes the fields of a message: number and content.
fn fields(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut fields = Vec::new();
    while let [tag, rest @ ..] = bytes {
        let (length, rest) = if tag & 7 == 0 { (0, &rest[1..]) } else { varint(rest) };
        let (content, rest) = rest.split_at(length);
        fields.push((tag >> 3, content));
        bytes = rest;
    }
    fields
}

fn varint(bytes: &[u8]) -> (usize, &[u8]) {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let value = bytes[..=end].iter().rev().fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f));
    (value, &bytes[end + 1..])
}

fn field(bytes: &[u8], number: u8) -> Vec<&[u8]> {
    fields(bytes).into_iter().filter(|(found, _)| *found == number).map(|(_, content)| content).collect()
}

#[test]
fn encode_group_list_writes_every_field_number() {
    let mut verbs: String = "get,list".to_owned();
    (0..100).for_each(|verb| verbs += &format!(",verb{verb}"));
    let list =
        encode_group_list(&groups_from_notation(&format!("apps/v1 ds:{verbs} ds/scale=Scale:get | v1! ps@Cluster")));
    assert_eq!(field(&list, 1), [[1 << 3 | 2, 0, 2 << 3 | 2, 0, 3 << 3 | 2, 0]]);
    let [apps, core] = field(&list, 2)[..] else { panic!("two groups were written") };
    assert_eq!(field(field(apps, 1)[0], 1), [b"apps"]);
    assert_eq!(field(field(core, 1)[0], 1), [b""]);
    let version = field(apps, 2)[0];
    assert_eq!((field(version, 1), field(version, 3)), (vec![&b"v1"[..]], vec![&b"Current"[..]]));
    let resource = field(version, 2)[0];
    assert_eq!(field(resource, 1), [b"ds"]);
    assert_eq!(fields(field(resource, 2)[0]), [(1, &b""[..]), (2, b""), (3, b"D")]);
    assert_eq!((field(resource, 3), field(resource, 4)), (vec![&b"Namespaced"[..]], vec![&b"d"[..]]));
    assert_eq!(field(resource, 5).join(&b','), verbs.as_bytes());
    let subresource = field(resource, 8)[0];
    assert_eq!(field(subresource, 1), [b"scale"]);
    assert_eq!(fields(field(subresource, 2)[0])[2], (3, &b"Scale"[..]));
    assert_eq!(field(subresource, 4), [b"get"]);
    let stale = field(core, 2)[0];
    assert_eq!(field(stale, 3), [b"Stale"]);
    assert_eq!(field(field(stale, 2)[0], 5), Vec::<&[u8]>::new());
}
