use expect_test::expect;

use super::*;
use crate::table::render_inventory;

const VOLUME_CLASS: &[u8] = br#"{"kind":"VolumeAttributesClass","apiVersion":"storage.k8s.io/v1beta1"}"#;
const POD: &[u8] = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod";

#[test]
fn values_are_summed_per_resource_and_form() {
    let mut builder = InventoryBuilder::new("/registry", None);
    builder.add(b"/registry/pods/default/a", POD, 12);
    builder.add(b"/registry/pods/default/b", POD, 9);
    builder.add(b"/registry/pods/default/c", br#"{"kind":"Pod","apiVersion":"v1"}"#, 20);
    builder.add(b"/registry/volumeattributesclasses/gold", VOLUME_CLASS, 5);
    builder.add(b"/registry/secrets/default/s", b"k8s:enc:aescbc:v1:key1:0123", 3);
    builder.add(b"/registry/secrets/default/t", b"k8s:enc:kms:v2:vault:0123", 4);
    builder.add(b"/registry/example.com/widgets/default/w", br#"{"kind":"Widget","apiVersion":"example.com/v1"}"#, 7);
    builder.add(b"/registry/ranges/serviceips", b"\x00", 2);
    builder.add(b"/registry/configmaps/default/broken", b"{", 8);
    builder.add(b"compact_rev_key", b"7", 8);
    expect![[r#"
        RESOURCE                                VERSION                 ENCODING  ENCRYPTION      OBJECTS  BYTES  OLDEST
        configmaps                              undecodable                                             1
        widgets.example.com (custom)            example.com/v1          json      -                     1     47       7
        pods                                    v1                      json      -                     1     32      20
        pods                                    v1                      protobuf  -                     2     30       9
        ranges (internal)                       -                       -         -                     1      1       2
        secrets                                 encrypted, unknown      -         aescbc:v1:key1        1     27       3
        secrets                                 encrypted, unknown      -         kms:v2:vault          1     25       4
        volumeattributesclasses.storage.k8s.io  storage.k8s.io/v1beta1  json      -                     1     70       5

        9 objects, 233 bytes in /var/lib/x.db at revision 30

        Undecodable in configmaps:
          /registry/configmaps/default/broken: the JSON is malformed or names no apiVersion and kind

        Not known:
          The versions of encrypted values: give the servers' file with --encryption-provider-config.
          The versions of values encrypted through KMS: plugins are not called.
    "#]]
    .assert_eq(&render_inventory(&builder.finish("/var/lib/x.db".to_owned(), 30)));
}

#[test]
fn undecodable_keys_are_named_up_to_the_limit() {
    let mut builder = InventoryBuilder::new("/registry/", None);
    for index in 0..UNDECODABLE_NAMES_MAX + 5 {
        builder.add(format!("/registry/pods/default/{index:02}").as_bytes(), b"", 1);
    }
    let inventory = builder.finish("x".to_owned(), 1);
    let undecodable = &inventory.resources[0].undecodable;
    assert_eq!((undecodable.count, undecodable.keys.len()), (25, UNDECODABLE_NAMES_MAX));
    assert_eq!(undecodable.keys[0].key, "/registry/pods/default/00");
    assert!(render_inventory(&inventory).contains("and 5 more"));
}

#[test]
fn forms_and_resources_are_bounded() {
    let mut builder = InventoryBuilder::new("/registry", None);
    for index in 0..FORMS_MAX + 10 {
        let value = format!(r#"{{"kind":"Pod","apiVersion":"v{index}"}}"#);
        builder.add(b"/registry/pods/default/a", value.as_bytes(), 1);
    }
    for index in 0..RESOURCES_MAX + 10 {
        builder.add(format!("/registry/r{index}/x").as_bytes(), POD, 1);
    }
    let inventory = builder.finish("x".to_owned(), 1);
    let pods = inventory.resources.iter().find(|resource| resource.resource == "pods").unwrap();
    assert_eq!((pods.forms.len(), pods.objects), (FORMS_MAX, FORMS_MAX as u64 + 10));
    assert_eq!(inventory.resources.len(), RESOURCES_MAX + 1);
    assert_eq!(inventory.resources.iter().find(|found| found.resource == "(other)").unwrap().objects, 11);
}

#[test]
fn reset_discards_everything() {
    let mut builder = InventoryBuilder::new("/registry", None);
    builder.add(b"/registry/pods/default/a", POD, 1);
    builder.reset();
    assert_eq!(builder.objects(), 0);
    assert!(builder.finish("x".to_owned(), 1).resources.is_empty());
}
