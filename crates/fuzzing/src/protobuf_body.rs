//! Request bodies in protobuf, for kinds of several groups and releases.

use api::GroupVersionKind;
use api::json::to_go_json;
use kinds::{Release, types_of};
use object::decode::{BodyEncoding, decode_value};
use schema::protobuf::{self, DEPTH_MAX, OBJECTS_MAX};
use serde_json::Value;

use crate::object_body::depth;

/// Envelopes with a Pod, a Deployment, a Secret, a Service, a CustomResourceDefinition and DeleteOptions.
pub(crate) const HEX_SEEDS: &[&str] = &[
    "6b3873000a090a0276311203506f6412c1020a680a01701a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f6612b2010a130a03766f6c120c9a01090a040a02636d18a40312780a01631203696d671a02736822022d63320e0a046874747018903f22035443503a060a01451201763a110a01461a0c1a0a0a030a017312016b180142200a0d0a0363707512060a043130306d0a0f0a066d656d6f727912050a0331476952190a1512130a012f120808011a046874747022044854545010031a06416c77617973201e3a0b0a046469736b12037373644202736152046e6f646558011a200a0752756e6e696e6712150a05526561647912045472756522060880e2cfaa061a002200",
    "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412cc030a680a01641a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f6612df02080312180a0a0a036170701203776562120a0a016b1202496e1a01611a9e020a670a001a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f6612b2010a130a03766f6c120c9a01090a040a02636d18a40312780a01631203696d671a02736822022d63320e0a046874747018903f22035443503a060a01451201763a110a01461a0c1a0a0a030a017312016b180142200a0d0a0363707512060a043130306d0a0f0a066d656d6f727912050a0331476952190a1512130a012f120808011a046874747022044854545010031a06416c77617973201e3a0b0a046469736b12037373644202736152046e6f6465580122200a0d526f6c6c696e67557064617465120f0a0708011a033235251204080010011a002200",
    "6b3873000a0c0a02763112065365637265741284010a680a01731a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f6612080a016b1203ff00011a064f706171756522060a01741201781a002200",
    "6b3873000a0d0a02763112075365727669636512aa010a680a01761a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f66123e0a180a017012035443501850220808011a046874747028b0ea0112060a01611201621a0831302e302e302e312209436c7573746572495072050a0308b0541a002200",
    "6b3873000a330a17617069657874656e73696f6e732e6b38732e696f2f76311218437573746f6d5265736f75726365446566696e6974696f6e12d6010a750a0e77732e6578616d706c652e636f6d1a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f66125d0a0b6578616d706c652e636f6d1a110a0277731201772201572a05574c697374220a4e616d657370616365643a2f0a0276311001180122250a232a066f626a656374ea010d0a017812082a06737472696e6742090a077b2261223a317d1a002200",
    "6b3873000a130a027631120d44656c6574654f7074696f6e73121f081e120a0a057569642d39120135220a466f726567726f756e642a03416c6c1a002200",
    "6b38730012c1020a680a01701a026e732a057569642d31320137380242060880e2cfaa065a0a0a0361707012037765625a050a0162120062090a046e6f74651201786a1e0a0a5265706c6963615365741a0272732201752a07617070732f76313001720d6578616d706c652e636f6d2f6612b2010a130a03766f6c120c9a01090a040a02636d18a40312780a01631203696d671a02736822022d63320e0a046874747018903f22035443503a060a01451201763a110a01461a0c1a0a0a030a017312016b180142200a0d0a0363707512060a043130306d0a0f0a066d656d6f727912050a0331476952190a1512130a012f120808011a046874747022044854545010031a06416c77617973201e3a0b0a046469736b12037373644202736152046e6f646558011a200a0752756e6e696e6712150a05526561647912045472756522060880e2cfaa06",
];
pub(crate) const HEX_DICTIONARY: &[&str] = &[
    "6b387300",
    "0a",
    "12",
    "1a",
    "22",
    "08",
    "10",
    "00",
    "80",
    "ff",
    "7f",
    "ffffffffffffffffff01",
    "0a00",
    "1200",
    "0b",
    "0c",
    "0d",
    "09",
    "5a0a0a036b65791203766c75",
    "0a0276311203506f64",
    "12091207",
];

const KINDS: [GroupVersionKind<&str>; 4] = [
    GroupVersionKind { group: "", version: "v1", kind: "Pod" },
    GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" },
    GroupVersionKind { group: "apiextensions.k8s.io", version: "v1", kind: "CustomResourceDefinition" },
    GroupVersionKind { group: "meta.k8s.io", version: "v1", kind: "DeleteOptions" },
];

/// A field of the envelope that no release has.
const UNKNOWN_FIELD: &[u8] = &[0xfa, 0x01, 0x02, b'h', b'i'];

/// Any bytes are an object of bounded depth and size, or an error message. An object is the same in JSON, and fields of newer
/// releases do not change it.
pub fn protobuf_body(input: &[u8]) {
    for (release, expected) in
        [Release::OLDEST, Release::NEWEST].into_iter().flat_map(|one| KINDS.map(|kind| (one, kind)))
    {
        let object = match protobuf::decode(input, types_of(release), expected) {
            Ok(object) => Value::Object(object),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        assert!(object["kind"].is_string() && object["apiVersion"].is_string());
        assert!(depth(&object) <= DEPTH_MAX && count_objects(&object) <= OBJECTS_MAX + 1);
        let json = to_go_json(&object);
        let read = decode_value(&json, BodyEncoding::Json).expect("it is JSON");
        assert!(read.duplicate_fields.is_empty());
        assert_eq!(to_go_json(&read.value), json, "JSON changes the object");
        let extended = [input, UNKNOWN_FIELD].concat();
        let again = protobuf::decode(&extended, types_of(release), expected).expect("unknown fields are skipped");
        assert_eq!(Value::Object(again), object);
    }
}

fn count_objects(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(count_objects).sum(),
        Value::Object(fields) => 1 + fields.values().map(count_objects).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_objects() {
        let decoded = |digits: &&str| {
            let body = crate::target::decode_hex(digits);
            let object = protobuf::decode(&body, types_of(Release::NEWEST), KINDS[0]).expect("it is well-formed");
            object["kind"].as_str().unwrap_or_default().to_owned()
        };
        let kinds: Vec<String> = HEX_SEEDS.iter().map(decoded).collect();
        let expected = ["Pod", "Deployment", "Secret", "Service", "CustomResourceDefinition", "DeleteOptions", "Pod"];
        assert_eq!(kinds, expected);
    }
}
