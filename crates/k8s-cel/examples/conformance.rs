//! Runs the conformance tests of the CEL specification: one JSON object per line in, the failures and the total out.
//!
//! A line names the test (`file`, `section`, `name`), the expression (`expr`), its environment (`container`, `types`,
//! `bindings`) and what must come of it (`value`, `error`, `type`). Values are tagged, e.g. `{"uint": "7"}`.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;

use k8s_cel::{Blob, Environment, Evaluation, Input, List, Map, TimeZones, Timestamp, Type, Value};
use serde_json::Value as Json;

/// Features of protobuf messages, which expressions over JSON objects do not have.
const MESSAGE_MARKS: [&str; 4] = ["TestAllTypes", "google.protobuf.", "\"object\"", "wrapper("];

fn main() -> std::io::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut tally: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let test: Json = serde_json::from_str(&line)?;
        let counts = tally.entry(text(&test["file"])).or_default();
        counts[0] += 1;
        let Err(reason) = run(&test) else { continue };
        let messages = MESSAGE_MARKS.iter().any(|mark| line.contains(mark));
        counts[if messages { 2 } else { 1 }] += 1;
        let kind = if messages { "message" } else { "FAILED" };
        let path = format!("{}/{}/{}", text(&test["file"]), text(&test["section"]), text(&test["name"]));
        writeln!(out, "{kind} {path}: {:?}: {reason}", text(&test["expr"]))?;
    }
    let mut all = [0; 3];
    for (file, counts) in &tally {
        writeln!(out, "{file}: {} tests, {} failed, {} need protobuf messages", counts[0], counts[1], counts[2])?;
        all = [all[0] + counts[0], all[1] + counts[1], all[2] + counts[2]];
    }
    writeln!(out, "all: {} tests, {} failed, {} need protobuf messages", all[0], all[1], all[2])?;
    Ok(if all[1] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The zone files of the machine.
struct SystemZones;

impl TimeZones for SystemZones {
    fn zone(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(std::path::Path::new("/usr/share/zoneinfo").join(name)).ok()
    }
}

fn text(json: &Json) -> String {
    json.as_str().unwrap_or("").to_owned()
}

fn run(test: &Json) -> Result<(), String> {
    let mut env = Environment::language();
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
            match inner("map(").and_then(|both| both.split_once(", ")) {
                Some((key, value)) => Type::map(parse_type(key), parse_type(value)),
                None => Type::Dyn,
            }
        }
    }
}

/// The value of a tagged description.
fn value(tagged: &Json) -> Result<Value<'static>, String> {
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
        other => return Err(format!("values of kind {other} are protobuf messages")),
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
