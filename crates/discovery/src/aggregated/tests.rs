use expect_test::expect;

use super::*;
use crate::groups::{CreationTimestamp, Freshness, Resource, Scope, Subresource, Version};
use crate::testing::document;

/// A document that has every field, each with a character that Go escapes where a name may hold one.
fn full() -> Groups {
    let kind = |kind: &str| api::GroupVersionKind { group: "g".into(), version: "v1".into(), kind: kind.into() };
    let names = |names: &[&str]| names.iter().map(|name| crate::Name::from(*name)).collect::<crate::Names>();
    let resource = Resource {
        name: "widgets".into(),
        response_kind: Some(kind("Widget<T>&U")),
        scope: Scope::Namespaced,
        singular: "widget".into(),
        verbs: Some(names(&["get", "list"])),
        short_names: names(&["w"]),
        categories: names(&["all"]),
        subresources: vec![Subresource {
            name: "turn".into(),
            response_kind: None,
            accepted_types: vec![kind("Turn")],
            verbs: Some(names(&[])),
        }],
    };
    let bare = Resource {
        name: "bare".into(),
        response_kind: None,
        scope: Scope::Cluster,
        singular: "".into(),
        verbs: None,
        short_names: names(&[]),
        categories: names(&[]),
        subresources: Vec::new(),
    };
    let version = |freshness, resources: Vec<Resource>| Version {
        name: "v1".into(),
        resources: resources.into_iter().map(Arc::new).collect(),
        freshness,
    };
    let group =
        |name: &str, creation_timestamp, versions| Arc::new(Group { name: name.into(), creation_timestamp, versions });
    Groups::new(vec![
        group("g", CreationTimestamp::Absent, vec![version(Freshness::Current, vec![resource, bare])]),
        group("h", CreationTimestamp::Null, vec![version(Freshness::Unstated, vec![])]),
        group("", CreationTimestamp::Null, vec![version(Freshness::Stale, vec![])]),
        group("", CreationTimestamp::Absent, vec![]),
    ])
}

#[test]
fn keys_stand_in_gos_order_and_empty_ones_are_left_out() {
    expect![[r#"
        {"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"widgets","responseKind":{"group":"g","version":"v1","kind":"Widget\u003cT\u003e\u0026U"},"scope":"Namespaced","singularResource":"widget","verbs":["get","list"],"shortNames":["w"],"categories":["all"],"subresources":[{"subresource":"turn","acceptedTypes":[{"group":"g","version":"v1","kind":"Turn"}],"verbs":[]}]},{"resource":"bare","scope":"Cluster","singularResource":"","verbs":null}],"freshness":"Current"}]},{"metadata":{"name":"h","creationTimestamp":null},"versions":[{"version":"v1"}]},{"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","freshness":"Stale"}]},{"metadata":{}}]}
    "#]]
    .assert_eq(std::str::from_utf8(&json(&full(), AggregatedVersion::V2).identity).unwrap());
}

#[test]
fn an_empty_document_has_an_empty_list() {
    let empty = json(&Groups::new(Vec::new()), AggregatedVersion::V2);
    expect![[r#"
        {"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}
    "#]]
    .assert_eq(std::str::from_utf8(&empty.identity).unwrap());
    // Checked with `printf '{"metadata":{},"items":[]}' | sha512sum`.
    expect![[r#""E31D92F2F415F58D79E51A08706C00FE868ED961736AD66A944AC75AA3682B3324F1787C9AF1250F28E111EEF86B2C3CD65FC48D3A283E0598FFA800177D68C1""#]].assert_eq(empty.etag.unwrap().to_str().unwrap());
}

#[test]
fn both_versions_and_both_encodings_have_one_etag_and_their_own_type() {
    let groups = full();
    let documents = [
        json(&groups, AggregatedVersion::V2),
        json(&groups, AggregatedVersion::V2Beta1),
        protobuf(&groups, AggregatedVersion::V2),
        protobuf(&groups, AggregatedVersion::V2Beta1),
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
fn the_etag_is_the_same_whether_taken_alone_or_while_encoding() {
    let hashed = full();
    let unhashed = Groups::new(hashed.items().to_vec());
    assert_eq!(json(&unhashed, AggregatedVersion::V2Beta1).etag, json(&hashed, AggregatedVersion::V2).etag);
    assert_eq!(unhashed.etag(), etag_of(&hashed));
}

#[test]
fn equal_content_has_an_equal_etag_and_a_change_another() {
    let etag = |notation: &str| document(notation).etag();
    assert_eq!(etag("a/v1 xs:get | b/v1 ys:get"), etag("a/v1 xs:get | b/v1 ys:get"));
    for other in
        ["a/v1 xs:get", "b/v1 ys:get | a/v1 xs:get", "a/v1! xs:get | b/v1 ys:get", "a/v1 xs:get,list | b/v1 ys:get"]
    {
        assert_ne!(etag("a/v1 xs:get | b/v1 ys:get"), etag(other), "{other}");
    }
}

#[test]
fn people_get_it_indented_with_the_same_etag() {
    let document = json(&document("v1 pods:get"), AggregatedVersion::V2);
    let indented = document.indented();
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
