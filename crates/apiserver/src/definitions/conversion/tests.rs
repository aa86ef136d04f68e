use serde_json::json;

use super::*;

fn key(target: usize, content: &str) -> ConversionKey {
    ConversionKey { scope: 1, direction: Direction::FromStorage, target, content: content.to_owned().into() }
}

fn job(target: usize, content: &str) -> ConversionJob {
    ConversionJob { key: key(target, content), input: JsonObject::new() }
}

#[test]
fn batches_have_one_target_and_are_bounded() {
    let large = "x".repeat(BATCH_BYTES_MAX);
    let mut jobs: Vec<ConversionJob> = (0..BATCH_OBJECTS_MAX + 1).map(|_| job(0, "a")).collect();
    jobs.extend([job(1, "a"), job(1, &large), job(1, "b"), job(1, "c")]);
    let sizes: Vec<usize> = into_batches(jobs).iter().map(Vec::len).collect();
    assert_eq!(sizes, [BATCH_OBJECTS_MAX, 1, 1, 1, 2]);
}

#[test]
fn content_does_not_depend_on_the_revision() {
    let value = br#"{"apiVersion":"ex.io/v1","metadata":{"name":"a"},"spec":{"resourceVersion":"8"}}"#;
    let at = |revision: u64| StoredObject::from_storage(value, revision).unwrap();
    let expected = content_without_revision(&at(7));
    assert!(!String::from_utf8_lossy(&expected).contains("\"7\""));
    for other in [at(9), at(7).with_revision(123)] {
        assert_eq!(content_without_revision(&other), expected);
    }
    let different = br#"{"apiVersion":"ex.io/v1","metadata":{"name":"b"},"spec":{"resourceVersion":"8"}}"#;
    assert_ne!(content_without_revision(&StoredObject::from_storage(different, 7).unwrap()), expected);
}

#[test]
fn cache_keeps_what_is_used_within_its_bound() {
    let entry_bytes = 160 + 2 + 1;
    let mut cache = ResultCache::new(8 * entry_bytes);
    for at in 0..40 {
        cache.insert(key(0, &format!("{at:02}")), Bytes::from_static(b"r"));
        assert!(cache.get(&key(0, "00")).is_some(), "used after every insert: {at}");
    }
    let kept = (0..40).filter(|at| cache.get(&key(0, &format!("{at:02}"))).is_some()).count();
    assert!((2..=8).contains(&kept), "{kept}");
    assert!(cache.get(&key(1, "00")).is_none());
}

#[test]
fn client_configuration_names_service_or_url() {
    let service = json!({"service": {"namespace": "n", "name": "s", "path": "/p"}, "caBundle": "eA=="});
    let (namespace, name, path) = ("n".to_owned(), "s".to_owned(), "/p".to_owned());
    let endpoint = Endpoint::Service { namespace, name, port: 443, path };
    assert_eq!(client_config(&service), ClientConfig { endpoint, ca_bundle: b"x".to_vec(), credentials: None });
    let url = client_config(&json!({"url": "https://a/b", "service": null}));
    assert_eq!(
        url,
        ClientConfig { endpoint: Endpoint::Url("https://a/b".to_owned()), ca_bundle: Vec::new(), credentials: None }
    );
}
