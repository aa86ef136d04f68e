//! Numbers at and beyond the limits of their ranges get the responses of kube-apiserver.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cluster_tests::WatchReader;
use cluster_tests::client::ClientCredentials;

use crate::*;

const INT64_MAX: &str = "9223372036854775807";
const INT64_MIN: &str = "-9223372036854775808";
/// Annotation in which a DaemonSet counts its template changes.
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const OUT_OF_RANGE: &str = "99999999999999999999";

fn continue_token(revision: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"a\u0000"}}"#))
}

#[test]
fn extreme_numbers_of_reads_are_clamped_or_refused() {
    for_each_store(|server| {
        let client = server.admin();
        block_on(async {
            client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
            for seconds in [INT64_MAX, INT64_MIN, "-5", "0", "18446744073709"] {
                let mut lines =
                    WatchReader::open(&client, &format!("{CONFIG_MAPS_PATH}?watch=1&timeoutSeconds={seconds}")).await;
                assert_eq!(lines.next_event_summary().await, "ADDED a", "{seconds}");
            }
            for revision in [INT64_MAX, "18446744073709551615"] {
                let query = format!("watch=1&timeoutSeconds=1&resourceVersion={revision}");
                assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}?{query}")).await.status, 200, "{revision}");
            }
            let out_of_range = |text: &str| format!("400 strconv.ParseInt: parsing \"{text}\": value out of range");
            let invalid = |text: &str| format!("400 strconv.ParseInt: parsing \"{text}\": invalid syntax");
            let of_revision = |text: &str, why: &str| {
                format!(
                    "400 invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: \
                     parsing \"{text}\": {why}"
                )
            };
            let no_timeout = |text: &str| {
                format!("400 invalid timeout specified in the request URL - time: invalid duration \"{text}\"")
            };
            for (query, expected) in [
                (format!("watch=1&timeoutSeconds={OUT_OF_RANGE}"), out_of_range(OUT_OF_RANGE)),
                (format!("watch=1&timeoutSeconds=-{OUT_OF_RANGE}"), out_of_range(&format!("-{OUT_OF_RANGE}"))),
                ("watch=1&timeoutSeconds=abc".to_owned(), invalid("abc")),
                ("timeoutSeconds=1e3".to_owned(), invalid("1e3")),
                (format!("limit={OUT_OF_RANGE}"), out_of_range(OUT_OF_RANGE)),
                ("limit=9223372036854775808".to_owned(), out_of_range("9223372036854775808")),
                (format!("limit={INT64_MAX}"), "200 ".to_owned()),
                (format!("limit={INT64_MIN}"), "200 ".to_owned()),
                (format!("limit={INT64_MAX}&continue={}", continue_token(INT64_MIN)), "200 ".to_owned()),
                (format!("limit=1&continue={}", continue_token("-2")), "200 ".to_owned()),
                (format!("resourceVersion={OUT_OF_RANGE}"), of_revision(OUT_OF_RANGE, "value out of range")),
                ("resourceVersion=-1".to_owned(), of_revision("-1", "invalid syntax")),
                ("timeout=abc".to_owned(), no_timeout("abc")),
                ("timeout=9999999999h".to_owned(), no_timeout("9999999999h")),
                ("timeout=2540400h10m".to_owned(), "200 ".to_owned()),
                ("timeout=-1s".to_owned(), "200 ".to_owned()),
            ] {
                assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}?{query}")).await.summary(), expected, "{query}");
            }
            assert_eq!(
                client.get(&format!("{CONFIG_MAPS_PATH}?continue={}", continue_token(OUT_OF_RANGE))).await.status,
                400
            );
        });
    });
}

#[test]
fn revisions_of_the_far_future_are_too_large() {
    for_each_store(|server| {
        let client = server.admin();
        block_on(async {
            client.create(CONFIG_MAPS_PATH, &config_map("a")).await;
            for query in [
                "resourceVersion=18446744073709551615".to_owned(),
                "resourceVersion=18446744073709551615&resourceVersionMatch=Exact".to_owned(),
                format!("resourceVersion={INT64_MAX}&resourceVersionMatch=Exact"),
                format!("limit=1&continue={}", continue_token(INT64_MAX)),
            ] {
                let refused = client.get(&format!("{CONFIG_MAPS_PATH}?{query}")).await;
                assert_eq!(refused.status, 504, "{query}: {}", refused.summary());
                assert!(refused.summary().contains("Too large resource version"), "{query}: {}", refused.summary());
            }
        });
    });
}

#[test]
fn extreme_numbers_of_writes_are_stored_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        client.create(accounts, &json!({"metadata": {"name": "t"}})).await;
        for (seconds, expected) in [
            (INT64_MAX, 422),
            (INT64_MIN, 422),
            ("4294967297", 422),
            ("4294967296", 201),
            ("0", 422),
            (OUT_OF_RANGE, 400),
        ] {
            let body = format!(r#"{{"spec":{{"expirationSeconds":{seconds}}}}}"#);
            let path = format!("{accounts}/t/token");
            let issued = client.send_body(http::Method::POST, &path, "application/json", body.into()).await;
            assert_eq!(issued.status, expected, "{seconds}: {}", issued.summary());
            if issued.status == 201 {
                let token = issued.json()["status"]["token"].as_str().unwrap().to_owned();
                assert_eq!(server.client_with(ClientCredentials::Token(token)).get(accounts).await.status, 403);
            }
        }
        let pods = "/api/v1/namespaces/default/pods";
        for (number, grace) in [INT64_MAX, INT64_MIN, "-1"].into_iter().enumerate() {
            let name = format!("p{number}");
            let pod = json!({"metadata": {"name": name}, "spec": {
                "nodeName": "n", "terminationGracePeriodSeconds": i64::MAX, "containers": [{"name": "c", "image": "i"}],
            }});
            let created = client.create(pods, &pod).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            for _ in 0..2 {
                let deleted = client.delete(&format!("{pods}/{name}?gracePeriodSeconds={grace}")).await;
                assert!(deleted.status.as_u16() < 500, "{grace}: {}", deleted.summary());
            }
        }
        let refused = client.delete(&format!("{pods}/p0?gracePeriodSeconds={OUT_OF_RANGE}")).await;
        assert_eq!(refused.summary(), format!("400 strconv.ParseInt: parsing \"{OUT_OF_RANGE}\": value out of range"));
        let sets = "/apis/apps/v1/namespaces/default/daemonsets";
        let mut set = json!({"metadata": {"name": "d", "annotations": {GENERATION_ANNOTATION: INT64_MAX}}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }});
        assert_eq!(client.create(sets, &set).await.status, 201);
        set["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
        let updated = client.update(&format!("{sets}/d"), &set).await;
        assert_eq!(updated.status, 200, "{}", updated.summary());
        assert_eq!(updated.json()["metadata"]["annotations"][GENERATION_ANNOTATION], INT64_MAX);
        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        for (number, (seconds, expected)) in
            [(i64::from(i32::MAX), 201), (i64::from(i32::MAX) + 1, 400)].into_iter().enumerate()
        {
            let lease = json!({"metadata": {"name": format!("l{number}")}, "spec": {"leaseDurationSeconds": seconds}});
            let created = client.create(leases, &lease).await;
            assert_eq!(created.status, expected, "{seconds}: {}", created.summary());
        }
        // All digits that 128 bits hold, and one more.
        let quantity = "340282366920938463463.3746074317682114551Ki";
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"limits.memory": quantity}}});
        let created = client.create("/api/v1/namespaces/default/resourcequotas", &quota).await;
        assert!(created.status.as_u16() < 500, "{}", created.summary());
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let listed =
            client.send(client.request_builder(http::Method::GET, pods).header("accept", table), "".into()).await;
        assert_eq!(listed.status, 200, "{}", listed.summary());
    });
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
