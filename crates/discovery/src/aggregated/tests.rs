use expect_test::expect;

use super::*;
use crate::groups::{
    CreationTimestamp, DiscoveryFreshness, DiscoveryScope, ResourceDiscovery, SubresourceDiscovery, VersionDiscovery,
};
use crate::testing::groups_from_notation;

/// A document that uses every field, with characters that Go escapes.
fn document_with_every_field() -> GroupDiscoveryList {
    let kind = |kind: &str| api::GroupVersionKind { group: "g".into(), version: "v1".into(), kind: kind.into() };
    let names =
        |names: &[&str]| names.iter().map(|name| crate::SharedStr::from(*name)).collect::<crate::SharedStrList>();
    let resource = ResourceDiscovery {
        name: "widgets".into(),
        response_kind: Some(kind("Widget<T>&U")),
        scope: DiscoveryScope::Namespaced,
        singular: "widget".into(),
        verbs: Some(names(&["get", "list"])),
        short_names: names(&["w"]),
        categories: names(&["all"]),
        subresources: vec![SubresourceDiscovery {
            name: "turn".into(),
            response_kind: None,
            accepted_types: vec![kind("Turn")],
            verbs: Some(names(&[])),
        }],
    };
    let bare = ResourceDiscovery {
        name: "bare".into(),
        response_kind: None,
        scope: DiscoveryScope::Cluster,
        singular: "".into(),
        verbs: None,
        short_names: names(&[]),
        categories: names(&[]),
        subresources: Vec::new(),
    };
    let version = |freshness, resources: Vec<ResourceDiscovery>| VersionDiscovery {
        name: "v1".into(),
        resources: resources.into_iter().map(Arc::new).collect(),
        freshness,
    };
    let group = |name: &str, creation_timestamp, versions| {
        Arc::new(GroupDiscovery { name: name.into(), creation_timestamp, versions })
    };
    GroupDiscoveryList::new(vec![
        group("g", CreationTimestamp::Absent, vec![version(DiscoveryFreshness::Current, vec![resource, bare])]),
        group("h", CreationTimestamp::Null, vec![version(DiscoveryFreshness::Unstated, vec![])]),
        group("", CreationTimestamp::Null, vec![version(DiscoveryFreshness::Stale, vec![])]),
        group("", CreationTimestamp::Absent, vec![]),
    ])
}

#[test]
fn encode_json_uses_go_key_order_and_omits_empty_fields() {
    expect![[r#"
        {"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"widgets","responseKind":{"group":"g","version":"v1","kind":"Widget\u003cT\u003e\u0026U"},"scope":"Namespaced","singularResource":"widget","verbs":["get","list"],"shortNames":["w"],"categories":["all"],"subresources":[{"subresource":"turn","acceptedTypes":[{"group":"g","version":"v1","kind":"Turn"}],"verbs":[]}]},{"resource":"bare","scope":"Cluster","singularResource":"","verbs":null}],"freshness":"Current"}]},{"metadata":{"name":"h","creationTimestamp":null},"versions":[{"version":"v1"}]},{"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","freshness":"Stale"}]},{"metadata":{}}]}
    "#]]
    .assert_eq(std::str::from_utf8(&encode_json(&document_with_every_field(), AggregatedVersion::V2).identity).unwrap());
}

#[test]
fn encode_json_of_no_groups_has_empty_items() {
    let empty = encode_json(&GroupDiscoveryList::new(Vec::new()), AggregatedVersion::V2);
    expect![[r#"
        {"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}
    "#]]
    .assert_eq(std::str::from_utf8(&empty.identity).unwrap());
    // Verified with `printf '{"metadata":{},"items":[]}' | sha512sum`.
    expect![[r#""E31D92F2F415F58D79E51A08706C00FE868ED961736AD66A944AC75AA3682B3324F1787C9AF1250F28E111EEF86B2C3CD65FC48D3A283E0598FFA800177D68C1""#]].assert_eq(empty.etag.unwrap().to_str().unwrap());
}

#[test]
fn versions_and_encodings_share_etag_but_not_content_type() {
    let groups = document_with_every_field();
    let documents = [
        encode_json(&groups, AggregatedVersion::V2),
        encode_json(&groups, AggregatedVersion::V2Beta1),
        encode_protobuf(&groups, AggregatedVersion::V2),
        encode_protobuf(&groups, AggregatedVersion::V2Beta1),
    ];
    let types: Vec<_> = documents.iter().map(|document| document.content_type.to_str().unwrap()).collect();
    expect![[r#"
        application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
        application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList
        application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
        application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"#]]
    .assert_eq(&types.join("\n"));
    assert!(documents.iter().all(|document| document.etag == documents[0].etag));
    assert!(
        documents[1]
            .identity
            .starts_with(br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1","#)
    );
    assert!(documents[2].identity.starts_with(b"k8s\0"));
}

#[test]
fn etag_is_equal_when_computed_alone_or_while_encoding() {
    let hashed = document_with_every_field();
    let unhashed = GroupDiscoveryList::new(hashed.items().to_vec());
    assert_eq!(
        encode_json(&unhashed, AggregatedVersion::V2Beta1).etag,
        encode_json(&hashed, AggregatedVersion::V2).etag
    );
    assert_eq!(unhashed.etag(), etag_of_groups(&hashed));
}

#[test]
fn etag_changes_exactly_with_content() {
    let etag = |notation: &str| groups_from_notation(notation).etag();
    assert_eq!(etag("a/v1 xs:get | b/v1 ys:get"), etag("a/v1 xs:get | b/v1 ys:get"));
    for other in
        ["a/v1 xs:get", "b/v1 ys:get | a/v1 xs:get", "a/v1! xs:get | b/v1 ys:get", "a/v1 xs:get,list | b/v1 ys:get"]
    {
        assert_ne!(etag("a/v1 xs:get | b/v1 ys:get"), etag(other), "{other}");
    }
}

#[test]
fn to_indented_keeps_etag_and_content_type() {
    let document = encode_json(&groups_from_notation("v1 pods:get"), AggregatedVersion::V2);
    let indented = document.to_indented();
    assert_eq!((&indented.etag, &indented.content_type), (&document.etag, &document.content_type));
    expect![[r#"
        {
          "kind": "APIGroupDiscoveryList",
          "apiVersion": "apidiscovery.k8s.io/v2",
          "metadata": {},
          "items": [
            {
              "metadata": {},
              "versions": [
                {
                  "version": "v1",
                  "resources": [
                    {
                      "resource": "pods",
                      "responseKind": {
                        "group": "",
                        "version": "",
                        "kind": "Pod"
                      },
                      "scope": "Namespaced",
                      "singularResource": "pod",
                      "verbs": [
                        "get"
                      ]
                    }
                  ],
                  "freshness": "Current"
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(std::str::from_utf8(&indented.identity).unwrap());
}
