use super::*;

#[test]
fn timestamps_round_trip() {
    for text in
        ["1970-01-01T00:00:00Z", "2009-02-13T23:31:30.123456Z", "0001-01-01T00:00:00Z", "2020-02-29T12:00:00+01:30"]
    {
        assert_eq!(parse_rfc3339(text).unwrap().to_rfc3339(), text);
    }
    assert_eq!(parse_rfc3339("2009-02-13T23:31:30Z").unwrap().seconds, 1_234_567_890);
    for text in [
        "2021-02-29T00:00:00Z",
        "2021-01-01",
        "2021-01-01T24:00:00Z",
        "0000-01-01T00:00:00Z",
        "x",
        "2021-01-01T00:00:00",
    ] {
        assert!(parse_rfc3339(text).is_none(), "{text}");
    }
}

#[test]
fn calendar_fields_follow_the_offset() {
    let c = parse_rfc3339("2009-02-13T23:31:30Z").unwrap().calendar(3600);
    assert_eq!((c.year, c.month, c.day, c.hour, c.minute, c.second), (2009, 2, 14, 0, 31, 30));
    assert_eq!((c.year_day, c.week_day), (44, 6));
}

#[test]
fn durations_have_gos_syntax() {
    for (text, expected) in [
        ("1h", Some(3600 * NANOS)),
        ("-1m30.5s", Some(-90_500_000_000)),
        ("1us", Some(1000)),
        (".5s", Some(500_000_000)),
        ("0", Some(0)),
        ("", None),
        ("1", None),
        ("1d", None),
        ("s", None),
        ("9223372036854775807ns", Some(i64::MAX)),
        ("-9223372036854775808ns", Some(i64::MIN)),
        ("9223372036854775808ns", None),
    ] {
        assert_eq!(parse_duration(text), expected, "{text}");
    }
    assert_eq!(parse_format_duration("1 day"), Some(86_400 * NANOS));
    assert_eq!(duration_to_string(1_500_000_000), "1.5s");
    assert_eq!(duration_to_string(-1), "-0.000000001s");
}
