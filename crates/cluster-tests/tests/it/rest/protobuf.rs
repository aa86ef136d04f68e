//! Protobuf bodies that controllers send and kubectl does not.

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

/// Encodes a length-delimited field of at most 127 bytes.
fn protobuf_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}
