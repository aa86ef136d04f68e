//! Audit events of requests, as JSON.

use std::io::{self, Write};

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records a request under a policy of these rules and compares the events without their timestamps.
#[track_caller]
fn check_events(
    rules: &Value,
    method: &str,
    line: &str,
    life: impl FnOnce(&AuditRecord, &Target<'_>),
    expected: &Expect,
) {
    let policy = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": rules});
    let buffer = Buffer::default();
    let auditor = Arc::new(Auditor::new(Policy::from_value(policy).unwrap(), AuditLog::new(buffer.clone())));
    let target = Target::parse(method, line).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static("kubectl/v1.37"));
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.7, nonsense"));
    let record =
        auditor.start_record(&HeaderValue::from_static("id-1"), "127.0.0.1".parse().unwrap(), &target, &headers);
    life(&record, &target);
    drop(record);
    let written = String::from_utf8(buffer.0.lock().clone()).unwrap();
    let mut shown = String::new();
    for line in written.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap();
        for instant in ["requestReceivedTimestamp", "stageTimestamp"] {
            let text = event.as_object_mut().unwrap().remove(instant).unwrap();
            assert_eq!(text.as_str().unwrap().len(), "2026-01-02T03:04:05.123456Z".len());
        }
        shown.push_str(&format!("{event}\n"));
    }
    expected.assert_eq(&shown);
}

fn user_jane() -> Option<Arc<User>> {
    Some(Arc::new(User { groups: vec!["devs".to_owned()], ..User::named("jane") }))
}

#[test]
fn request_is_audited_on_receipt_and_completion() {
    check_events(
        &json!([{"level": "Metadata"}]),
        "GET",
        "/api/v1/namespaces/default/pods/p?pretty=1",
        |record, target| {
            record.record_user(target, user_jane());
            record.annotate("authorization.k8s.io/decision".into(), "allow".to_owned());
            record.set_request_object(|| unreachable!("it is not recorded, and the name is known"));
            record.record_response_complete(200);
        },
        &expect![[r#"
            {"apiVersion":"audit.k8s.io/v1","auditID":"id-1","kind":"Event","level":"Metadata","objectRef":{"apiVersion":"v1","name":"p","namespace":"default","resource":"pods"},"requestURI":"/api/v1/namespaces/default/pods/p?pretty=1","sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"RequestReceived","user":{"groups":["devs"],"username":"jane"},"userAgent":"kubectl/v1.37","verb":"get"}
            {"annotations":{"authorization.k8s.io/decision":"allow"},"apiVersion":"audit.k8s.io/v1","auditID":"id-1","kind":"Event","level":"Metadata","objectRef":{"apiVersion":"v1","name":"p","namespace":"default","resource":"pods"},"requestURI":"/api/v1/namespaces/default/pods/p?pretty=1","responseStatus":{"code":200,"metadata":{}},"sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"ResponseComplete","user":{"groups":["devs"],"username":"jane"},"userAgent":"kubectl/v1.37","verb":"get"}
        "#]],
    );
}

#[test]
fn request_level_records_request_object() {
    check_events(
        &json!([{"level": "Request", "omitStages": ["RequestReceived"]}]),
        "POST",
        "/api/v1/namespaces/default/configmaps",
        |record, target| {
            record.record_user(target, user_jane());
            record.set_impersonated(Some(Arc::new(User::named("bob"))));
            record.set_request_object(|| b"{\"metadata\": {\"name\": \"a\"},\n \"data\": {}}".to_vec());
            record.record_failure(
                Stage::ResponseComplete,
                &Status::already_exists(api::GroupResource { group: "", resource: "configmaps" }, "a"),
            );
        },
        &expect![[r#"
            {"apiVersion":"audit.k8s.io/v1","auditID":"id-1","impersonatedUser":{"username":"bob"},"kind":"Event","level":"Request","objectRef":{"apiVersion":"v1","name":"a","namespace":"default","resource":"configmaps"},"requestObject":{"data":{},"metadata":{"name":"a"}},"requestURI":"/api/v1/namespaces/default/configmaps","responseStatus":{"code":409,"details":{"kind":"configmaps","name":"a"},"message":"configmaps \"a\" already exists","metadata":{},"reason":"AlreadyExists","status":"Failure"},"sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"ResponseComplete","user":{"groups":["devs"],"username":"jane"},"userAgent":"kubectl/v1.37","verb":"create"}
        "#]],
    );
}

#[test]
fn metadata_level_takes_name_from_created_object() {
    check_events(
        &json!([{"level": "Metadata", "omitStages": ["RequestReceived"]}]),
        "POST",
        "/api/v1/namespaces/default/secrets",
        |record, target| {
            record.record_user(target, user_jane());
            record.set_request_object(|| br#"{"metadata":{"name":"s"},"data":{"password":"eA=="}}"#.to_vec());
            record.record_response_complete(201);
        },
        &expect![[r#"
            {"apiVersion":"audit.k8s.io/v1","auditID":"id-1","kind":"Event","level":"Metadata","objectRef":{"apiVersion":"v1","name":"s","namespace":"default","resource":"secrets"},"requestURI":"/api/v1/namespaces/default/secrets","responseStatus":{"code":201,"metadata":{}},"sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"ResponseComplete","user":{"groups":["devs"],"username":"jane"},"userAgent":"kubectl/v1.37","verb":"create"}
        "#]],
    );
}

#[test]
fn watch_is_audited_on_start_and_end() {
    check_events(
        &json!([{"level": "Metadata", "omitStages": ["RequestReceived"]}]),
        "GET",
        "/api/v1/pods?watch=1",
        |record, target| {
            record.record_user(target, user_jane());
            record.record_response_started(200);
        },
        &expect![[r#"
            {"apiVersion":"audit.k8s.io/v1","auditID":"id-1","kind":"Event","level":"Metadata","objectRef":{"apiVersion":"v1","resource":"pods"},"requestURI":"/api/v1/pods?watch=1","responseStatus":{"code":200,"metadata":{}},"sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"ResponseStarted","user":{"groups":["devs"],"username":"jane"},"userAgent":"kubectl/v1.37","verb":"watch"}
            {"apiVersion":"audit.k8s.io/v1","auditID":"id-1","kind":"Event","level":"Metadata","objectRef":{"apiVersion":"v1","resource":"pods"},"requestURI":"/api/v1/pods?watch=1","responseStatus":{"code":200,"metadata":{}},"sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"ResponseComplete","user":{"groups":["devs"],"username":"jane"},"userAgent":"kubectl/v1.37","verb":"watch"}
        "#]],
    );
}

/// The stages and codes of the events of one request.
fn recorded_stages(life: impl FnOnce(&AuditRecord, &Target<'_>)) -> Vec<String> {
    let policy = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": [{"level": "Metadata"}]});
    let buffer = Buffer::default();
    let auditor = Arc::new(Auditor::new(Policy::from_value(policy).unwrap(), AuditLog::new(buffer.clone())));
    let target = Target::parse("GET", "/api/v1/pods").unwrap();
    let record = auditor.start_record(
        &HeaderValue::from_static("id-1"),
        "127.0.0.1".parse().unwrap(),
        &target,
        &HeaderMap::new(),
    );
    life(&record, &target);
    drop(record);
    let written = String::from_utf8(buffer.0.lock().clone()).unwrap();
    let events = written.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.map(|event| format!("{} {}", event["stage"].as_str().unwrap(), event["responseStatus"]["code"])).collect()
}

#[test]
fn every_authenticated_request_has_exactly_one_final_event() {
    let user = |record: &AuditRecord, target: &Target<'_>| record.record_user(target, user_jane());
    let failure = Status::internal_error("broken");
    let received = "RequestReceived null";
    assert_eq!(recorded_stages(user), [received, "ResponseComplete 504"], "cancelled");
    assert_eq!(recorded_stages(|_, _| {}), [""; 0], "cancelled before authentication");
    let answered = recorded_stages(|record, target| {
        user(record, target);
        record.record_response_complete(200);
    });
    assert_eq!(answered, [received, "ResponseComplete 200"]);
    let panicked = recorded_stages(|record, target| {
        user(record, target);
        record.record_failure(Stage::Panic, &failure);
    });
    assert_eq!(panicked, [received, "Panic 500"]);
    let unknown =
        recorded_stages(|record, target| record.record_unauthorized(target, &Status::unauthorized("Unauthorized")));
    assert_eq!(unknown, ["ResponseStarted 401"]);
}

#[test]
fn unauthorized_request_is_one_event_and_level_none_is_silent() {
    let unauthorized = |record: &AuditRecord, target: &Target<'_>| {
        record.record_unauthorized(target, &Status::unauthorized("Unauthorized"));
    };
    check_events(
        &json!([{"level": "Metadata"}]),
        "GET",
        "/api/v1/pods",
        unauthorized,
        &expect![[r#"
        {"apiVersion":"audit.k8s.io/v1","auditID":"id-1","kind":"Event","level":"Metadata","objectRef":{"apiVersion":"v1","resource":"pods"},"requestURI":"/api/v1/pods","responseStatus":{"code":401,"message":"Unauthorized","metadata":{},"reason":"Unauthorized","status":"Failure"},"sourceIPs":["192.0.2.7","127.0.0.1"],"stage":"ResponseStarted","user":{},"userAgent":"kubectl/v1.37","verb":"list"}
    "#]],
    );
    let quiet = json!([{"level": "None", "users": ["jane"]}, {"level": "Metadata", "users": ["bob"]}]);
    let served = |record: &AuditRecord, target: &Target<'_>| {
        record.record_user(target, user_jane());
        record.record_response_complete(200);
    };
    check_events(&quiet, "GET", "/api/v1/pods", served, &expect![""]);
    check_events(&quiet, "GET", "/api/v1/pods", unauthorized, &expect![""]);
}

#[test]
fn ensure_audit_id_keeps_valid_and_replaces_invalid_ids() {
    let identified = |brought: Option<&str>| {
        let mut headers = HeaderMap::new();
        if let Some(brought) = brought {
            headers.insert(AUDIT_ID, HeaderValue::from_bytes(brought.as_bytes()).unwrap());
        }
        let id = ensure_audit_id(&mut headers);
        assert_eq!(headers[AUDIT_ID], id, "a peer gets the same id");
        id.to_str().unwrap().to_owned()
    };
    assert_eq!(identified(Some("abc")), "abc");
    for strange in [None, Some(""), Some("ü"), Some(&*"x".repeat(129))] {
        let id = identified(strange);
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
        assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
    }
}
