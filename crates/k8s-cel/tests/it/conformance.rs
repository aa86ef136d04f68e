//! The conformance tests of the CEL specification.
//!
//! `data/conformance.jsonl` is a selection that always runs. With `UNSKEW_CEL_SPEC`, the folder of the specification's
//! repository, all tests of the sections that Kubernetes has run from its `tests/simple/testdata`.
//!
//! A case names the test (`file`, `section`, `name`), the expression (`expr`), its environment (`container`, `types`,
//! `bindings`) and what must come of it (`value`, `error`, `type`). Values are tagged, e.g. `{"uint": "7"}`.

mod messages;
mod textproto;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use k8s_cel::{Blob, Environment, Evaluation, Input, List, Map, TimeZones, Timestamp, Type, Value};
use serde_json::Value as Json;

/// Sections of the specification that Kubernetes' JSON objects and libraries have.
const FILES: [&str; 18] = [
    "basic",
    "comparisons",
    "conversions",
    "fields",
    "fp_math",
    "integer_math",
    "lists",
    "logic",
    "macros",
    "macros2",
    "namespace",
    "optionals",
    "parse",
    "plumbing",
    "string",
    "string_ext",
    "timestamps",
    "type_deduction",
];

/// Tests that fail, with the reason: `file/section/name: reason`.
const KNOWN: &str = include_str!("data/conformance-known.txt");

#[test]
fn selected_conformance_tests_pass() {
    let cases = include_str!("data/conformance.jsonl").lines();
    let cases: Vec<Json> = cases.map(|line| serde_json::from_str(line).expect("a line is a case")).collect();
    let failures: Vec<String> =
        cases.iter().filter_map(failure).map(|(path, reason)| format!("{path}: {reason}")).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases.len() >= 200, "the selection has {} cases only", cases.len());
}

#[test]
fn conformance_tests_of_the_specification_pass_but_the_known_ones() {
    let Some(folder) = std::env::var_os("UNSKEW_CEL_SPEC") else {
        println!("given nothing: UNSKEW_CEL_SPEC names no folder of the CEL specification");
        return;
    };
    let folder = Path::new(&folder).join("tests/simple/testdata");
    let (mut count, mut failures) = (0, BTreeMap::new());
    for file in FILES {
        let path = folder.join(format!("{file}.textproto"));
        let source = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let cases = textproto::read(&source);
        let failed: Vec<_> = cases.iter().filter_map(failure).collect();
        println!("{file}: {} tests, {} failed", cases.len(), failed.len());
        count += cases.len();
        failures.extend(failed);
    }
    println!("all: {count} tests, {} failed", failures.len());
    let known: BTreeSet<&str> = KNOWN.lines().filter_map(|line| line.split_once(": ").map(|(path, _)| path)).collect();
    let unexpected = failures.iter().filter(|(path, _)| !known.contains(path.as_str()));
    let unexpected: Vec<String> = unexpected.map(|(path, reason)| format!("{path}: {reason}")).collect();
    assert!(unexpected.is_empty(), "{} fail:\n{}", unexpected.len(), unexpected.join("\n"));
    let passing: Vec<&&str> = known.iter().filter(|path| !failures.contains_key(**path)).collect();
    assert!(passing.is_empty(), "known to fail, but pass: {passing:?}");
    assert!(failures.len() * 100 <= count, "{} of {count} fail: more than one in a hundred", failures.len());
}

/// Path of the test and the reason, if it fails.
fn failure(test: &Json) -> Option<(String, String)> {
    let reason = run(test).err()?;
    let path = format!("{}/{}/{}", text(&test["file"]), text(&test["section"]), text(&test["name"]));
    Some((path, format!("{:?}: {reason}", text(&test["expr"]))))
}

/// The zone files of the machine.
struct SystemZones;

impl TimeZones for SystemZones {
    fn zone(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(Path::new("/usr/share/zoneinfo").join(name)).ok()
    }
}

fn text(json: &Json) -> String {
    json.as_str().unwrap_or("").to_owned()
}

fn run(test: &Json) -> Result<(), String> {
    if test["functions"] == true {
        return Err("the test declares a function".into());
    }
    let mut env = messages::TYPES.iter().cloned().fold(Environment::language(), Environment::message_type);
    if let Some(container) = test["container"].as_str() {
        env = env.container(container);
    }
    if test["disable_check"] == true {
        env = env.unchecked();
    }
    for pair in test["types"].as_array().into_iter().flatten() {
        let declared = parse_type(pair[1].as_str().unwrap_or("dyn"));
        env = env.typed_variable(pair[0].as_str().unwrap_or(""), declared);
    }
    let bindings = test["bindings"].as_array().into_iter().flatten();
    let values: Vec<(String, Value<'_>)> =
        bindings.map(|pair| Ok((text(&pair[0]), value(&pair[1])?))).collect::<Result<_, String>>()?;
    for (name, value) in &values {
        if !test["types"].as_array().into_iter().flatten().any(|pair| pair[0] == name.as_str()) {
            env = env.typed_variable(name, value.runtime_type());
        }
    }
    let inputs: Vec<(&str, Input<'_>)> =
        values.iter().map(|(name, value)| (name.as_str(), Input::Value(value.clone()))).collect();
    let program = match env.compile(test["expr"].as_str().unwrap_or("")) {
        Ok(program) => program,
        Err(_) if test.get("error").is_some() => return Ok(()),
        Err(error) => return Err(format!("does not compile: {error}")),
    };
    if let Some(expected) = test["type"].as_str()
        && program.output_type().to_string() != expected
    {
        return Err(format!("type {} instead of {expected}", program.output_type()));
    }
    if test["check_only"] == true {
        return Ok(());
    }
    let outcome = program.evaluate(&Evaluation { time_zones: Some(&SystemZones), ..Evaluation::new(&inputs) });
    match (outcome.result, test.get("value")) {
        (Ok(actual), Some(expected)) => compare(&actual, expected),
        (Err(_), None) if test.get("error").is_some() => Ok(()),
        (Ok(actual), None) => Err(format!("{actual} instead of an error")),
        (Err(error), _) => Err(error.to_string()),
    }
}

fn parse_type(name: &str) -> Type {
    let inner = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
    match name {
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        _ => {
            if let Some(element) = inner("list(") {
                return Type::list(parse_type(element));
            }
            if let Some(value) = inner("optional_type(") {
                return Type::optional(parse_type(value));
            }
            if let Some(scalar) = inner("wrapper(") {
                return Type::Wrapper(Arc::new(parse_type(scalar)));
            }
            match inner("map(").and_then(|both| both.split_once(", ")) {
                Some((key, value)) => Type::map(parse_type(key), parse_type(value)),
                None => messages::find(name).map_or(Type::Dyn, |message| Type::Message(message.name().into())),
            }
        }
    }
}

/// The value of a tagged description.
fn value(tagged: &Json) -> Result<Value<'_>, String> {
    let (tag, content) = tagged.as_object().and_then(|object| object.iter().next()).ok_or("no value")?;
    let number = || content.as_str().unwrap_or("");
    let wrong = |what: &str| format!("{what}: {content}");
    Ok(match tag.as_str() {
        "null" => Value::Null,
        "bool" => Value::Bool(content == true),
        "int" => Value::Int(number().parse().map_err(|_| wrong("int"))?),
        "uint" => Value::Uint(number().parse().map_err(|_| wrong("uint"))?),
        "double" => Value::Double(number().parse().map_err(|_| wrong("double"))?),
        "string" => Value::from(text(content)),
        "bytes" => Value::Bytes(Blob::Shared(hex(number()).into())),
        "duration" => Value::Duration(number().parse().map_err(|_| wrong("duration"))?),
        "timestamp" => {
            let seconds = content[0].as_str().and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
            let nanos = u32::try_from(content[1].as_u64().unwrap_or(0)).unwrap_or(0);
            Value::Timestamp(Timestamp::new(seconds, nanos).ok_or_else(|| wrong("timestamp"))?)
        }
        "list" => {
            let items: Result<Vec<_>, String> = content.as_array().into_iter().flatten().map(value).collect();
            Value::List(List::from(items?))
        }
        "map" => {
            let entries = content.as_array().into_iter().flatten();
            let entries = entries.map(|pair| Ok((value(&pair[0])?, value(&pair[1])?)));
            Value::Map(entries.collect::<Result<Map<'_>, String>>()?)
        }
        "message" => {
            let name = content[0].as_str().unwrap_or("");
            let message = messages::find(name).ok_or_else(|| format!("unknown message type {name}"))?;
            let fields = content[1].as_array().into_iter().flatten();
            let fields = fields.map(|pair| Ok((pair[0].as_str().unwrap_or(""), value(&pair[1])?)));
            message.message(fields.collect::<Result<Vec<_>, String>>()?).map_err(|error| error.to_string())?
        }
        other => return Err(format!("values of kind {other} are unknown")),
    })
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).filter_map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()).collect()
}

fn compare(actual: &Value<'_>, expected: &Json) -> Result<(), String> {
    if same(actual, expected) { Ok(()) } else { Err(format!("{actual} instead of {expected}")) }
}

/// Equality of kind and content; NaN equals NaN.
fn same(actual: &Value<'_>, expected: &Json) -> bool {
    match actual {
        Value::Type(_) => expected["type"] == actual.to_string(),
        Value::List(list) => {
            let Some(items) = expected["list"].as_array() else { return false };
            items.len() == list.len()
                && items.iter().enumerate().all(|(at, item)| list.get(at).is_ok_and(|actual| same(&actual, item)))
        }
        Value::Map(map) if expected.get("message").is_some() => {
            let message = value(expected);
            message.is_ok_and(|message| matches!(message, Value::Map(other) if is_same_message(map, &other)))
        }
        Value::Map(map) => {
            let Some(entries) = expected["map"].as_array() else { return false };
            entries.len() == map.len()
                && entries.iter().all(|entry| {
                    let found = value(&entry[0]).ok().and_then(|key| map.find(&key).ok().flatten());
                    found.is_some_and(|actual| same(&actual, &entry[1]))
                })
        }
        Value::Double(number) => match value(expected) {
            Ok(Value::Double(other)) => *number == other || (number.is_nan() && other.is_nan()),
            _ => false,
        },
        Value::Optional(_) | Value::Opaque(_) => false,
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => value(expected).is_ok_and(|expected| {
            expected.runtime_type().is_exactly(&actual.runtime_type()) && expected.to_string() == actual.to_string()
        }),
    }
}

/// Messages of one type with the same fields, in any order.
fn is_same_message(actual: &Map<'_>, expected: &Map<'_>) -> bool {
    let names = |map: &Map<'_>| Value::Map(map.clone()).runtime_type().to_string();
    names(actual) == names(expected)
        && actual.len() == expected.len()
        && actual.keys().iter().all(|key| {
            let show = |map: &Map<'_>| map.find(key).ok().flatten().map(|value| value.to_string());
            show(actual) == show(expected)
        })
}
