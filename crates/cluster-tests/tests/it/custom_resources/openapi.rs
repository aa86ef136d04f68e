//! OpenAPI documents of custom resources, and what kubectl makes of them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::process::run_command;
use cluster_tests::tools::{is_skipped, kubectl, required_path};

use super::*;
use crate::{block_on, start_on_sqlite};

const KIND_EXTENSION: &str = "x-kubernetes-group-version-kind";

/// Definition with one kind; `versions` has name, served and schema of each, the first is stored.
fn definition(group: &str, kind: &str, versions: &[(&str, bool, Value)]) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let versions = versions.iter().enumerate().map(|(position, (name, served, schema))| {
        json!({"name": name, "served": served, "storage": position == 0, "schema": {"openAPIV3Schema": schema}})
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions.collect::<Value>(),
        },
    })
}

fn lamp_schema() -> Value {
    json!({"type": "object", "description": "A lamp in a room.", "properties": {
        "spec": {"type": "object", "description": "What the lamp should be.", "properties": {
            "bulbs": {"type": "array", "description": "The bulbs of the lamp.", "items": {
                "type": "object", "required": ["socket"], "properties": {
                    "socket": {"type": "string", "description": "Where the bulb is."},
                    "color": {"type": "string", "enum": ["Warm", "Cold"], "description": "Color of the light."},
                    "tags": {"type": "array", "items": {"type": "string"}, "description": "Words about the bulb."},
                },
            }},
        }},
        "status": {"type": "object", "properties": {"lit": {"type": "boolean"}}},
    }})
}

fn room_schema() -> Value {
    let spec = json!({"type": "object", "description": "What the room should be.",
        "properties": {"floor": {"type": "integer", "default": 1}}});
    json!({"type": "object", "description": "A room.", "properties": {"spec": spec}})
}

/// Runs `kubectl create` and `kubectl apply`, and returns what each says of a refusal.
fn create_and_apply(kubeconfig: &Path, kind: &str, fields: &Value) -> Vec<Result<(), String>> {
    let mut object = json!({"apiVersion": "house.example.com/v1", "kind": kind, "metadata": {"name": "a"}});
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let file = kubeconfig.with_file_name("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    let file = file.display().to_string();
    let commands = [["create", "--validate=strict", "-f", &file], ["apply", "--validate=strict", "-f", &file]];
    let outcomes = commands.map(|command| {
        let output = kubectl(kubeconfig, &command);
        if output.code == Some(0) {
            kubectl(kubeconfig, &["delete", "-f", &file]).expect_success();
            Ok(())
        } else {
            Err(output.expect_failure())
        }
    });
    outcomes.into()
}

/// What a shell offers after these words.
fn complete(kubeconfig: &Path, words: &[&str]) -> String {
    let mut command = Command::new(required_path("UNSKEW_KUBECTL"));
    // No flag may stand before `__complete`.
    command.arg("__complete").args(words).env("KUBECONFIG", kubeconfig);
    command.env("KUBECACHEDIR", kubeconfig.with_extension("cache"));
    run_command(command, Duration::from_secs(60)).expect_success()
}

#[track_caller]
fn assert_in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let Some(position) = rest.find(word) else { panic!("no {word:?} in order in:\n{text}") };
        rest = &rest[position + word.len()..];
    }
}

#[test]
fn kubectl_explains_validates_and_completes_custom_resources() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let preserve = |schema: &Value, pointer: &str| {
        let mut schema = schema.clone();
        schema.pointer_mut(pointer).unwrap()["x-kubernetes-preserve-unknown-fields"] = true.into();
        schema
    };
    block_on(async {
        for (kind, schema) in [
            ("Lamp", lamp_schema()),
            ("Plain", preserve(&json!({"type": "object"}), "")),
            ("Attic", preserve(&room_schema(), "")),
            ("Cellar", preserve(&room_schema(), "/properties/spec")),
        ] {
            define(&server.admin(), &definition("house.example.com", kind, &[("v1", true, schema)])).await;
        }
    });
    let kubeconfig = server.kubeconfig();
    let explain = |target: &str, form: &str| {
        kubectl(&kubeconfig, &["explain", target, &format!("--output={form}")]).expect_success()
    };
    for form in ["plaintext", "plaintext-openapiv2"] {
        let text = explain("lamps", form);
        assert_in_order(&text, &["KIND:", "Lamp", "DESCRIPTION:", "A lamp in a room.", "FIELDS:"]);
        assert_in_order(&text, &["apiVersion", "<string>", "APIVersion defines", "spec", "What the lamp should be."]);
        let metadata =
            ["Standard object's metadata", "creationTimestamp", "<string>", "CreationTimestamp is a timestamp"];
        assert_in_order(&explain("lamps.metadata", form), &metadata);
        let bulbs =
            ["bulbs", "The bulbs of the lamp.", "color", "<string>", "Color of the light.", "tags", "<[]string>"];
        assert_in_order(&explain("lamps.spec.bulbs", form), &bulbs);
        let unknown = kubectl(&kubeconfig, &["explain", "lamps.spec.bulbs2", &format!("--output={form}")]);
        assert_in_order(&unknown.expect_failure(), &["field \"bulbs2\" does not exist"]);
        assert_in_order(&explain("plains", form), &["DESCRIPTION:", "<empty>"]);
        assert_in_order(&explain("attics", form), &["KIND:", "Attic"]);
        assert_in_order(&explain("cellars", form), &["DESCRIPTION:", "A room."]);
    }
    let accepted = vec![Ok(()), Ok(())];
    let create_and_apply = |kind: &str, fields: Value| create_and_apply(&kubeconfig, kind, &fields);
    assert_eq!(create_and_apply("Lamp", json!({"spec": {"bulbs": [{"socket": "a"}]}})), accepted);
    assert_eq!(create_and_apply("Plain", json!({"a": {"b": [{"c": "d"}]}})), accepted);
    assert_eq!(create_and_apply("Attic", json!({"a": {"b": [{"c": "d"}]}})), accepted);
    assert_eq!(create_and_apply("Cellar", json!({"spec": {"a": null, "b": [{"c": "d"}]}})), accepted);
    for (fields, expected) in [
        (json!({"bulbs": [{"socket": "a", "color": "Blue"}]}), r#"Unsupported value: "Blue""#),
        (json!({"shade": true}), r#"unknown field "spec.shade""#),
        (json!({"bulbs": [{"color": "Warm"}]}), "spec.bulbs[0].socket: Required value"),
    ] {
        for refused in create_and_apply("Lamp", json!({ "spec": fields })) {
            assert_in_order(&refused.unwrap_err(), &[expected]);
        }
    }
    for command in ["get", "delete"] {
        assert_in_order(&complete(&kubeconfig, &[command, "lam"]), &["lamps.house.example.com"]);
    }
}

async fn models_of_swagger(client: &Client) -> Value {
    client.get("/openapi/v2").await.json()["definitions"].take()
}

/// The paths of custom group-versions in the index, each with its address.
async fn custom_index(client: &Client) -> Vec<(String, String)> {
    let index = client.get("/openapi/v3").await.json();
    let paths = index["paths"].as_object().unwrap().iter().filter(|(path, _)| path.contains(".example.com"));
    paths.map(|(path, entry)| (path.clone(), entry["serverRelativeURL"].as_str().unwrap().to_owned())).collect()
}

/// Changes the versions of a definition.
async fn set_versions(client: &Client, versions: &[(&str, bool, Value)]) {
    let wanted = definition("many.example.com", "Lamp", versions);
    let patch = json!({"spec": {"versions": wanted["spec"]["versions"]}});
    let answer = merge_patch(client, &format!("{CRD_PATH}/lamps.many.example.com"), &patch).await;
    assert_eq!(answer.status, 200, "{}", answer.summary());
}

#[test]
fn openapi_documents_follow_definitions_on_every_server() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b"] {
            plane.start(name, &[]);
        }
        let [first, second] = ["a", "b"].map(|name| plane.admin(name));
        block_on(async {
            assert!(custom_index(&first).await.is_empty());
            let lamp = |group: &str, version| definition(group, "Lamp", &[(version, true, lamp_schema())]);
            define(&first, &lamp("one.example.com", "v1")).await;
            define(&second, &lamp("two.example.com", "v1beta1")).await;
            define(&first, &definition("one.example.com", "Room", &[("v1", true, room_schema())])).await;
            let many = [("v3", true, lamp_schema()), ("v2", true, lamp_schema())];
            define(&second, &definition("many.example.com", "Lamp", &many)).await;
            check_documents_of_definitions(&first, &second).await;
            check_changed_versions(&first, &second).await;
        });
    });
}

async fn check_documents_of_definitions(first: &Client, second: &Client) {
    // The first request for a document waits until the server has caught up with storage.
    assert_eq!(first.get("/openapi/v3/apis/many.example.com/v2").await.status, 200);
    assert_eq!(second.get("/openapi/v3/apis/one.example.com/v1").await.status, 200);
    assert_eq!(second.get("/openapi/v3/apis/one.example.com/v2").await.status, 404);
    let index = custom_index(first).await;
    assert_eq!(index, custom_index(second).await, "servers of one configuration have the same hashes");
    let paths: Vec<&str> = index.iter().map(|(path, _)| &**path).collect();
    let expected = [
        "apis/many.example.com/v2",
        "apis/many.example.com/v3",
        "apis/one.example.com/v1",
        "apis/two.example.com/v1beta1",
    ];
    assert_eq!(paths, expected);
    let (path, address) = &index[2];
    let answer = second.get(address).await;
    assert_eq!(
        (answer.status, &answer.headers["cache-control"]),
        (StatusCode::OK, &"public, immutable".parse().unwrap())
    );
    let etag = answer.headers["etag"].clone();
    assert_eq!(format!("/openapi/v3/{path}?hash={}", etag.to_str().unwrap().trim_matches('"')), *address);
    let again = first.request_builder(Method::GET, address).header("if-none-match", etag);
    assert_eq!(first.send(again, Bytes::new()).await.status, StatusCode::NOT_MODIFIED);
    let moved = first.get(&format!("/openapi/v3/{path}?hash=OLD")).await;
    assert_eq!(
        (moved.status, moved.headers["location"].to_str().unwrap()),
        (StatusCode::MOVED_PERMANENTLY, &**address)
    );
    let document = answer.json();
    let models = document["components"]["schemas"].as_object().unwrap();
    let own: Vec<&String> = models.keys().filter(|name| name.starts_with("com.example.one.v1.")).collect();
    assert_eq!(own.len(), 4, "{own:?}");
    assert_eq!(models["com.example.one.v1.Room"]["properties"]["spec"]["properties"]["floor"]["default"], 1);

    let definitions = models_of_swagger(second).await;
    for name in ["one.v1.Lamp", "one.v1.Room", "two.v1beta1.Lamp", "many.v2.Lamp", "many.v3.Lamp"] {
        let mut model = definitions[format!("com.example.{name}")].clone();
        assert!(model.is_object(), "{name}");
        if name.ends_with("Lamp") {
            model.as_object_mut().unwrap().remove(KIND_EXTENSION);
            for added in ["apiVersion", "kind", "metadata"] {
                model["properties"].as_object_mut().unwrap().remove(added);
            }
            assert_eq!(model, lamp_schema(), "{name}");
        }
    }
    assert!(definitions["com.example.one.v1.Room"]["properties"]["spec"]["properties"]["floor"]["default"].is_null());
    assert!(definitions["io.k8s.api.core.v1.Pod"].is_object());
}

async fn check_changed_versions(first: &Client, second: &Client) {
    let before = custom_index(first).await;
    set_versions(first, &[("v3", true, lamp_schema()), ("v2", false, lamp_schema())]).await;
    eventually("the second server has dropped the unserved version", async || {
        let index = custom_index(second).await;
        let expected: Vec<_> = before.iter().filter(|(path, _)| path != "apis/many.example.com/v2").cloned().collect();
        if index == expected { Ok(()) } else { Err(format!("{index:?}")) }
    })
    .await;
    let definitions = models_of_swagger(second).await;
    assert!(definitions["com.example.many.v2.Lamp"].is_null() && definitions["com.example.many.v3.Lamp"].is_object());
    assert_eq!(second.get("/openapi/v3/apis/many.example.com/v2").await.status, 404);

    // A version gets another name.
    set_versions(second, &[("v3", true, lamp_schema()), ("v4", true, room_schema())]).await;
    assert_eq!(first.get("/openapi/v3/apis/many.example.com/v4").await.status, 200);
    let definitions = models_of_swagger(first).await;
    assert!(definitions["com.example.many.v2.Lamp"].is_null() && definitions["com.example.many.v4.Lamp"].is_object());
    let (old, new) = (&before, custom_index(first).await);
    assert!(old.iter().filter(|(path, _)| !path.contains("many")).all(|entry| new.contains(entry)), "{old:?} {new:?}");

    let deleted = first.delete(&format!("{CRD_PATH}/lamps.two.example.com")).await;
    assert_eq!(deleted.status, 200, "{}", deleted.summary());
    wait_until_deleted(second, &format!("{CRD_PATH}/lamps.two.example.com")).await;
    assert_eq!(second.get("/openapi/v3/apis/two.example.com/v1beta1").await.status, 404);
    assert!(models_of_swagger(second).await["com.example.two.v1beta1.Lamp"].is_null());
}
