//! The OpenAPI documents of the scripted server.

use cluster_tests::scripted_members::http_response;
use serde_json::{Value, json};

use super::Mode;

/// The type of gadgets. The second clashes with a built-in type of the same name.
pub(in super::super) const GADGET: &str = "com.example.ext.v1.Gadget";
pub(in super::super) const CLASHING: &str = "io.k8s.api.core.v1.PodSpec";
const COLLECTION: &str = "/apis/ext.example.com/v1/namespaces/{namespace}/gadgets";

/// The response to a request for OpenAPI; `None` for others.
pub(super) fn respond(target: &str, mode: Mode) -> Option<String> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with("/openapi/") {
        return None;
    }
    if mode == Mode::BrokenOpenApi {
        return Some(http_response("200 OK", "application/json", r#"{"paths": {"apis/ext.example.com/v1":"#));
    }
    let release = if mode == Mode::NewerOpenApi { 2 } else { 1 };
    let json = |body: &Value| http_response("200 OK", "application/json", &body.to_string());
    let hash = format!("ABC{release}");
    let address = format!("/openapi/v3/apis/ext.example.com/v1?hash={hash}");
    Some(match path {
        "/openapi/v3" => json(&json!({"paths": {
            "apis/ext.example.com/v1": {"serverRelativeURL": address},
            // Not a group-version of this server.
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=EVIL"}}})),
        "/openapi/v3/apis/ext.example.com/v1" if query == format!("hash={hash}") => json(&openapi_v3(release)),
        "/openapi/v3/apis/ext.example.com/v1" => {
            format!("HTTP/1.1 301 Moved Permanently\r\nLocation: {address}\r\nContent-Length: 0\r\n\r\n")
        }
        "/openapi/v2" => json(&swagger(release)),
        _ => http_response("404 Not Found", "text/plain", "404 page not found\n"),
    })
}

fn gadget_type(reference: &str, release: u32) -> Value {
    json!({"type": "object", "description": "Gadget is made by an extension server.",
        "x-kubernetes-group-version-kind": [{"group": "ext.example.com", "version": "v1", "kind": "Gadget"}],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "size": {"type": "integer", "description": format!("Size in release {release}.")},
            "pod": {"$ref": format!("{reference}{CLASHING}")}}})
}

fn clashing_type() -> Value {
    json!({"type": "object", "properties": {"wheels": {"type": "integer"}}})
}

fn operation(extra: &Value) -> Value {
    let mut operation = json!({"operationId": "createExtV1NamespacedGadget", "x-kubernetes-action": "post",
        "x-kubernetes-group-version-kind": {"group": "ext.example.com", "version": "v1", "kind": "Gadget"}});
    operation.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    operation
}

fn openapi_v3(release: u32) -> Value {
    let reference = "#/components/schemas/";
    let medium = json!({"application/json": {"schema": {"$ref": format!("{reference}{GADGET}")}}});
    let post = operation(&json!({"requestBody": {"content": medium},
        "responses": {"201": {"description": "Created", "content": medium}}}));
    json!({"openapi": "3.0.0", "info": {"title": "Gadgets", "version": format!("v{release}")},
        "paths": {COLLECTION: {"post": post}},
        "components": {"schemas": {GADGET: gadget_type(reference, release), CLASHING: clashing_type()}}})
}

fn swagger(release: u32) -> Value {
    let reference = "#/definitions/";
    let schema = json!({"$ref": format!("{reference}{GADGET}")});
    let post = operation(&json!({"parameters": [{"name": "body", "in": "body", "schema": schema}],
        "responses": {"201": {"description": "Created", "schema": schema}}}));
    json!({"swagger": "2.0", "info": {"title": "Gadgets", "version": format!("v{release}")},
        "paths": {COLLECTION: {"post": post}, "/apis/apps/v1/evils": {"post": post}},
        "definitions": {GADGET: gadget_type(reference, release), CLASHING: clashing_type()}})
}
