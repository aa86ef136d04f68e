//! Warnings about definitions that are valid but probably not what their author wants.

use std::collections::{BTreeSet, HashSet};

use api::json::JsonObject;
use api::quote::Quoted;

use super::ValidationOptions;
use super::internal_form::InternalSpec;
use super::schema_node::SchemaNode;

/// The first release that warns of unknown formats.
const FORMAT_WARNINGS_SINCE: u8 = 34;
/// The first release that warns of sets whose items are lists or objects.
const SET_WARNINGS_SINCE: u8 = 37;

/// Formats of strings, without dashes, and the first release that knows each.
const STRING_FORMATS: &[(&str, u8)] = &[
    ("bsonobjectid", 0),
    ("uri", 0),
    ("email", 0),
    ("hostname", 0),
    ("ipv4", 0),
    ("ipv6", 0),
    ("cidr", 0),
    ("mac", 0),
    ("uuid", 0),
    ("uuid3", 0),
    ("uuid4", 0),
    ("uuid5", 0),
    ("isbn", 0),
    ("isbn10", 0),
    ("isbn13", 0),
    ("creditcard", 0),
    ("ssn", 0),
    ("hexcolor", 0),
    ("rgbcolor", 0),
    ("byte", 0),
    ("password", 0),
    ("date", 0),
    ("duration", 0),
    ("datetime", 0),
    ("k8sshortname", 34),
    ("k8slongname", 34),
];

/// The warnings of a write of `new`; those that `old` has already given are left out.
pub fn warnings(old: Option<&JsonObject>, new: &JsonObject, options: &ValidationOptions) -> Vec<String> {
    let mut warnings = Vec::new();
    let (old, new) = (old.map(InternalSpec::new), InternalSpec::new(new));
    if options.minor >= FORMAT_WARNINGS_SINCE {
        let known: HashSet<_> = old.iter().flat_map(|old| unknown_formats(old, options)).collect();
        let formats = unknown_formats(&new, options).into_iter().filter(|format| !known.contains(format));
        warnings.extend(formats.map(|format| format!("unrecognized format {}", Quoted(format))));
    }
    if options.minor >= SET_WARNINGS_SINCE {
        let known: BTreeSet<_> = old.iter().flat_map(types_of_set_items).collect();
        let types = types_of_set_items(&new).into_iter().filter(|item_type| !known.contains(item_type));
        warnings.extend(types.map(|item_type| {
            format!(
                "x-kubernetes-list-type: set for items of type \"{item_type}\" is not supported by server-side apply or \
                 CEL validation rules"
            )
        }));
    }
    warnings
}

fn unknown_formats<'a>(spec: &InternalSpec<'a>, options: &ValidationOptions) -> Vec<&'a str> {
    let mut formats = Vec::new();
    spec.schemas().for_each(|schema| collect_unknown_formats(&mut formats, schema, options));
    formats
}

fn collect_unknown_formats<'a>(formats: &mut Vec<&'a str>, node: SchemaNode<'a>, options: &ValidationOptions) {
    let format = node.text("format");
    if !format.is_empty() && !is_known_format(node.schema_type(), format, options) {
        formats.push(format);
    }
    for child in node.children() {
        collect_unknown_formats(formats, child, options);
    }
}

/// A server knows the formats of the release before its own, so that it can be rolled back.
fn is_known_format(schema_type: &str, format: &str, options: &ValidationOptions) -> bool {
    match schema_type {
        "" | "string" => {
            let plain = format.replace('-', "");
            STRING_FORMATS.iter().any(|(known, since)| *known == plain && *since < options.minor)
        }
        "integer" => ["int32", "int64"].contains(&format),
        "number" => ["float", "double"].contains(&format),
        _ => false,
    }
}

fn types_of_set_items<'a>(spec: &InternalSpec<'a>) -> BTreeSet<&'a str> {
    let mut types = BTreeSet::new();
    let mut nodes: Vec<_> = spec.schemas().collect();
    while let Some(node) = nodes.pop() {
        if node.optional_text("x-kubernetes-list-type") == Some("set")
            && let Some(items) = node.item_schema()
            && ["object", "array"].contains(&items.schema_type())
        {
            types.insert(items.schema_type());
        }
        nodes.extend(node.children());
    }
    types
}
