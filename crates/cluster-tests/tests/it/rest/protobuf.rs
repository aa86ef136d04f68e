//! Protobuf: bodies that controllers send and kubectl does not, and responses with metadata and errors.

use bytes::Bytes;
use cluster_tests::client::FullResponse;
use http::Method;

use crate::*;

#[test]
fn delete_options_are_accepted_as_protobuf() {
    for_each_store_async(async |client| {
        let uid = client.create(CONFIG_MAPS_PATH, &config_map("a")).await.json()["metadata"]["uid"].clone();
        let delete = async |uid: &str| {
            // An envelope with the type, and options with a uid precondition.
            let preconditions = protobuf_field(2, &protobuf_field(1, uid.as_bytes()));
            let named = [protobuf_field(1, b"v1"), protobuf_field(2, b"DeleteOptions")].concat();
            let body = [b"k8s\0".to_vec(), protobuf_field(1, &named), protobuf_field(2, &preconditions)].concat();
            let path = format!("{CONFIG_MAPS_PATH}/a");
            client.send_body(Method::DELETE, &path, "application/vnd.kubernetes.protobuf", body.into()).await
        };
        assert_eq!(delete("another").await.status, 409);
        assert_eq!(delete(uid.as_str().unwrap()).await.status, 200);
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/a")).await.status, 404);
    });
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

#[test]
fn metadata_is_sent_as_protobuf_in_gets_lists_and_watches() {
    for_each_store_async(async |client| {
        let mut object = config_map("a");
        object["metadata"]["labels"] = json!({"y": "2", "x": "1"});
        let created = client.create(CONFIG_MAPS_PATH, &object).await.json();
        let [uid, revision] = ["uid", "resourceVersion"].map(|field| created["metadata"][field].as_str().unwrap());

        let answer = accepting(&client, &format!("{CONFIG_MAPS_PATH}/a"), METADATA).await;
        assert_eq!(status_and_type(&answer), (200, PROTOBUF));
        let (type_meta, object) = unwrap_envelope(&answer.body);
        assert_eq!(type_meta, ["meta.k8s.io/v1", "PartialObjectMetadata"]);
        let metadata = field(object, 1)[0];
        let text = |number| String::from_utf8_lossy(field(metadata, number)[0]).into_owned();
        assert_eq!([text(1), text(3), text(5), text(6)], ["a", "default", uid, revision]);
        assert_eq!(field(metadata, 11), [b"\x0a\x01x\x12\x011", b"\x0a\x01y\x12\x012"]);

        let list = accepting(&client, CONFIG_MAPS_PATH, METADATA_LIST).await;
        assert_eq!(status_and_type(&list), (200, PROTOBUF));
        let (type_meta, list) = unwrap_envelope(&list.body);
        assert_eq!(type_meta, ["meta.k8s.io/v1", "PartialObjectMetadataList"]);
        let items = field(list, 2);
        assert_eq!(items.iter().filter(|item| **item == object).count(), 1, "the list has the object of the get");

        let watch = format!("{CONFIG_MAPS_PATH}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da");
        let events = accepting(&client, &watch, METADATA).await;
        let stream = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(status_and_type(&events), (200, stream));
        let (length, event) = events.body.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, event.len(), "one event: {event:?}");
        assert_eq!(field(event, 1), [b"ADDED"]);
        let (type_meta, watched) = unwrap_envelope(field(field(event, 2)[0], 1)[0]);
        assert_eq!((type_meta[1].as_str(), watched), ("PartialObjectMetadata", object));
    });
}

/// Whole objects and tables have no protobuf: the next type of `Accept` counts. Recorded from kube-apiserver for tables and custom
/// resources.
#[test]
fn objects_without_protobuf_are_sent_in_the_next_accepted_encoding() {
    for_each_store_async(async |client| {
        client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
        for path in [CONFIG_MAPS_PATH.to_owned(), format!("{CONFIG_MAPS_PATH}/a")] {
            assert_eq!(accepting(&client, &path, table).await.status, 406);
            let answer = accepting(&client, &path, &format!("{table},application/json")).await;
            assert_eq!(status_and_type(&answer), (200, "application/json"));
            let refused = accepting(&client, &path, PROTOBUF).await;
            assert_eq!(status_and_type(&refused), (406, PROTOBUF));
        }
    });
}

/// As in kube-apiserver, a transform says nothing about errors.
#[test]
fn errors_are_sent_as_protobuf_to_clients_that_prefer_it() {
    for_each_store_async(async |client| {
        let path = format!("{CONFIG_MAPS_PATH}/none");
        let json = accepting(&client, &path, METADATA).await;
        assert_eq!(status_and_type(&json), (404, "application/json"));
        let answer = accepting(&client, &path, &format!("{METADATA},{PROTOBUF}")).await;
        assert_eq!(status_and_type(&answer), (404, PROTOBUF));
        // Of kube-apiserver 1.36.
        let recorded = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x55\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\
            \x1a\x1bconfigmaps \"none\" not found\x22\x08NotFound\x2a\x18\x0a\x04none\x12\0\x1a\x0aconfigmaps\x28\0\
            \x32\0\x30\x94\x03\x1a\0\x22\0";
        assert_eq!(answer.body.escape_ascii().to_string(), recorded.escape_ascii().to_string());
    });
}

async fn accepting(client: &Client, path: &str, accept: &str) -> FullResponse {
    let request = client.request_builder(Method::GET, path).header("accept", accept);
    client.send(request, Bytes::new()).await
}

fn status_and_type(response: &FullResponse) -> (u16, &str) {
    (response.status.as_u16(), response.headers["content-type"].to_str().unwrap())
}

/// The API version, the kind and the object of a body.
fn unwrap_envelope(body: &[u8]) -> ([String; 2], &[u8]) {
    let unknown = body.strip_prefix(b"k8s\0").expect("the body is protobuf of Kubernetes");
    let type_meta = field(unknown, 1)[0];
    let text = |number| String::from_utf8(field(type_meta, number)[0].to_vec()).unwrap();
    ([text(1), text(2)], field(unknown, 2)[0])
}

/// All occurrences of a field with bytes.
fn field(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let value = varint(&mut message);
        match key & 7 {
            0 => {}
            2 => {
                let (bytes, rest) = message.split_at(usize::try_from(value).unwrap());
                message = rest;
                if key >> 3 == wanted {
                    found.push(bytes);
                }
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let end = message.iter().position(|byte| byte & 0x80 == 0).expect("the integer ends");
    let (bytes, rest) = message.split_at(end + 1);
    *message = rest;
    bytes.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

/// Encodes a length-delimited field of at most 127 bytes.
fn protobuf_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}
