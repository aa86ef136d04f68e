//! A test case: an expression with the schema and values of its variables, and what comes of it, in the form of the
//! recorded tables.

use k8s_cel::{
    Authorizer, AuthorizerDecision, CheckAttributes, DeclType, Environment, Evaluation, Field, Input, ListKind,
    Release, Value,
};
use serde_json::{Map, Value as Json, json};

/// Lowers an OpenAPI schema of a test to a declared type; nothing if expressions cannot see such values.
pub(crate) fn lower(schema: &Json, root: bool) -> Option<DeclType> {
    let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
    let decl = if flag("x-kubernetes-int-or-string") {
        DeclType::int_or_string(schema["maxLength"].as_u64())
    } else {
        lower_type(schema, root)?
    };
    Some(if flag("nullable") { decl.nullable() } else { decl })
}

fn lower_type(schema: &Json, root: bool) -> Option<DeclType> {
    let embedded = |schema: &Json| schema["x-kubernetes-embedded-resource"].as_bool().unwrap_or(false);
    match schema["type"].as_str()? {
        "array" => {
            let items = lower(&schema["items"], embedded(&schema["items"]))?;
            let order = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListKind::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
                    ListKind::Map(keys.iter().filter_map(|key| Some(key.as_str()?.to_owned())).collect())
                }
                _ => ListKind::Atomic,
            };
            Some(DeclType::list(items, schema["maxItems"].as_u64(), order))
        }
        "object" => {
            let values = &schema["additionalProperties"];
            if !values.is_object() {
                return Some(DeclType::object(fields(schema, root)));
            }
            Some(DeclType::map(lower(values, embedded(values))?, schema["maxProperties"].as_u64()))
        }
        "string" => Some(lower_string(schema)),
        "boolean" => Some(DeclType::bool()),
        "number" => Some(DeclType::double()),
        "integer" => Some(DeclType::int()),
        _ => None,
    }
}

fn fields(schema: &Json, root: bool) -> Vec<Field> {
    let empty = Map::new();
    let mut properties = schema["properties"].as_object().unwrap_or(&empty).clone();
    if root {
        let text = json!({"type": "string"});
        properties.insert("kind".into(), text.clone());
        properties.insert("apiVersion".into(), text.clone());
        let names = json!({"type": "object", "properties": {"name": text, "generateName": text}});
        properties.insert("metadata".into(), names);
    }
    let required = |name: &str| schema["required"].as_array().is_some_and(|list| list.iter().any(|item| item == name));
    let mut fields = Vec::new();
    for (name, property) in &properties {
        if let Some(decl) = lower(property, property["x-kubernetes-embedded-resource"].as_bool().unwrap_or(false)) {
            let field = Field::new(name, decl);
            let always = required(name) && property["default"].is_null();
            fields.push(if always { field.required() } else { field });
        }
    }
    fields
}

fn lower_string(schema: &Json) -> DeclType {
    let max_length = schema["maxLength"].as_u64();
    match schema["format"].as_str() {
        Some("byte") => DeclType::bytes(max_length),
        Some("duration") => DeclType::duration(),
        Some("date") => DeclType::date(),
        Some("date-time") => DeclType::date_time(),
        _ => match schema["enum"].as_array() {
            Some(values) if max_length.is_none() => DeclType::string_enum(values.iter().filter_map(Json::as_str)),
            _ => DeclType::string(max_length),
        },
    }
}

/// The answers that the reference's test authorizer gives.
struct FixedAuthorizer;

impl Authorizer for FixedAuthorizer {
    fn authorize(&self, attributes: &CheckAttributes) -> AuthorizerDecision {
        let error = (attributes.verb == "error").then(|| "authorizer failed".to_owned());
        let reason = if error.is_some() { "broken".to_owned() } else { attributes.verb.clone() };
        AuthorizerDecision { allowed: attributes.verb == "get", reason, error }
    }
}

/// Runs a case and describes the outcome with the keys of the recorded tables.
pub(crate) fn run(case: &Json) -> Json {
    let minor = case["version"].as_str().and_then(|version| version.strip_prefix("1.")).and_then(|m| m.parse().ok());
    let release = Release(minor.unwrap_or(36));
    let mut env = if case["stored"] == true {
        Environment::for_stored_expressions(release)
    } else {
        // The tables name the compatibility version, which is one below the server's.
        Environment::for_new_expressions(Release(release.0 + 1))
    };
    let mut inputs: Vec<(&str, Input<'_>)> = Vec::new();
    if let Some(decl) = case.get("schema").and_then(|schema| lower(schema, case["root"] == true)) {
        let optional = case["optOld"] == true;
        let decl = decl.named("selfType");
        env = env.variable("self", decl.clone());
        env = env.variable("oldSelf", if optional { DeclType::optional(decl) } else { decl });
        inputs.extend(case.get("self").map(|value| ("self", Input::Json(value))));
        match case.get("old") {
            Some(old) => inputs.push(("oldSelf", Input::Json(old))),
            None if optional => inputs.push(("oldSelf", Input::Value(Value::Optional(None)))),
            None => {}
        }
    }
    for (name, value) in case["vars"].as_object().into_iter().flatten() {
        env = env.variable(name, DeclType::dynamic());
        inputs.push((name, Input::Json(value)));
    }
    if case["auth"] == true {
        env = env.variable("authorizer", DeclType::library("kubernetes.authorization.Authorizer"));
        inputs.push(("authorizer", Input::Value(Value::authorizer())));
    }
    outcome(&env, case["expr"].as_str().unwrap_or(""), &inputs)
}

fn outcome<'a>(env: &Environment, expression: &str, inputs: &'a [(&'a str, Input<'a>)]) -> Json {
    let mut out = Map::new();
    out.insert("expr".into(), expression.into());
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(error) if error.is_instantiation() => {
            out.insert("error".into(), format!("program: {error}").into());
            return Json::Object(out);
        }
        Err(error) => {
            out.insert("compile".into(), error.to_string().into());
            return Json::Object(out);
        }
    };
    let estimate = program.estimated_cost();
    out.insert("type".into(), program.output_type().to_string().into());
    out.insert("estMin".into(), estimate.min.to_string().into());
    out.insert("estMax".into(), estimate.max.to_string().into());
    // The program borrows nothing; the evaluation borrows from both.
    let evaluation = Evaluation { authorizer: Some(&FixedAuthorizer), ..Evaluation::new(inputs) };
    let result = program.evaluate(&evaluation);
    out.insert("cost".into(), result.cost.into());
    match result.result {
        Ok(value) => out.insert("result".into(), show(&value).into()),
        Err(error) => out.insert("error".into(), error.to_string().into()),
    };
    Json::Object(out)
}

/// A value in the notation of the recorded tables.
pub(crate) fn show(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => Json::String(text.to_string()).to_string(),
        Value::Uint(number) => format!("{number}u"),
        Value::Double(_) => format!("double({value})"),
        Value::Bytes(bytes) => format!("b'{}'", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        Value::Duration(nanos) => format!("duration({nanos}ns)"),
        Value::Timestamp(time) => format!("timestamp({}.{:09})", time.seconds, time.nanos),
        Value::Optional(Some(inner)) => format!("optional({})", show(inner)),
        Value::Optional(None) => "optional.none".to_owned(),
        Value::Type(_) => format!("type({value})"),
        Value::Opaque(opaque) => format!("{}({})", value.runtime_type(), opaque.text()),
        Value::List(list) => {
            let items: Vec<String> =
                (0..list.len()).map(|at| list.get(at).map_or_else(|e| e.to_string(), |v| show(&v))).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(map) => {
            let mut items = Vec::new();
            for key in map.keys() {
                let value = map.find(&key).ok().flatten().unwrap_or(Value::Null);
                items.push(format!("{}:{}", show(&key), show(&value)));
            }
            items.sort();
            format!("{{{}}}", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Int(_) => value.to_string(),
    }
}
