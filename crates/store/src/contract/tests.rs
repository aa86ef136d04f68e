use super::*;

#[track_caller]
fn check_prefix_end(prefix: &[u8], expected: Option<&[u8]>) {
    assert_eq!(prefix_end(prefix).as_deref(), expected, "the end of {prefix:?}");
}

#[test]
fn prefix_end_increments_last_byte_below_0xff() {
    check_prefix_end(b"/registry/pods/", Some(b"/registry/pods0"));
    check_prefix_end(b"a\x00", Some(b"a\x01"));
    check_prefix_end(b"a\xfe\xff\xff", Some(b"a\xff"));
    check_prefix_end(b"\xff\xff", None);
    check_prefix_end(b"", None);
}

#[test]
fn range_first_key_is_never_before_its_prefix() {
    let first = |start: &'static str| KeyRange::prefix("b").start(start).first_key().clone();
    assert_eq!(first(""), "b");
    assert_eq!(first("a"), "b");
    assert_eq!(first("b/x"), "b/x");
}

#[track_caller]
fn check_malformed(ops: Vec<Op>, expected: &str) {
    let error = Transaction { compares: Vec::new(), ops }.validate().unwrap_err();
    assert_eq!(error, Error::Malformed { reason: expected.to_owned() });
}

#[test]
fn validate_names_the_broken_transaction_rule() {
    let put = |key: &'static str, ttl| Op::Put { key: key.into(), value: Bytes::new(), ttl };
    check_malformed(Vec::new(), "a transaction without operations");
    check_malformed(vec![put("", None)], "an empty key");
    check_malformed(vec![put("a", Some(Duration::ZERO))], "a time to live of zero");
    check_malformed(
        vec![put("a", None), put("b", None), Op::Delete { key: "a".into() }],
        "a transaction that changes one key twice",
    );
    assert_eq!(Transaction::create("a", "1").validate(), Ok(()));
}
