//! The message types that the tests of the CEL specification use.

use std::sync::{Arc, LazyLock};

use k8s_cel::{MessageType, Type};

const PACKAGES: [&str; 2] = ["cel.expr.conformance.proto2", "cel.expr.conformance.proto3"];

/// Fields of every kind are called `single_int32`, `repeated_int32` and so on.
const SCALARS: [(&str, Type); 15] = [
    ("int32", Type::Int),
    ("int64", Type::Int),
    ("uint32", Type::Uint),
    ("uint64", Type::Uint),
    ("sint32", Type::Int),
    ("sint64", Type::Int),
    ("fixed32", Type::Uint),
    ("fixed64", Type::Uint),
    ("sfixed32", Type::Int),
    ("sfixed64", Type::Int),
    ("float", Type::Double),
    ("double", Type::Double),
    ("bool", Type::Bool),
    ("string", Type::String),
    ("bytes", Type::Bytes),
];
/// Fields whose names are reserved words.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// All message types.
pub(super) static TYPES: LazyLock<Vec<Arc<MessageType>>> = LazyLock::new(|| {
    // Compared as it is, never unpacked.
    let any = [("type_url".to_owned(), Type::String), ("value".to_owned(), Type::Bytes)];
    let types = PACKAGES.iter().flat_map(|package| {
        let nested = [("bb".to_owned(), Type::Int)];
        let nested = MessageType::new(&format!("{package}.TestAllTypes.NestedMessage"), nested);
        [all_types(package), nested_types(package), nested]
    });
    types.chain([MessageType::new("google.protobuf.Any", any)]).map(Arc::new).collect()
});

fn all_types(package: &str) -> MessageType {
    let mut fields = Vec::new();
    for (name, scalar) in &SCALARS {
        fields.push((format!("single_{name}"), scalar.clone()));
        fields.push((format!("single_{name}_wrapper"), Type::Wrapper(Arc::new(scalar.clone()))));
        fields.push((format!("repeated_{name}"), Type::list(scalar.clone())));
        fields.push((format!("map_string_{name}"), Type::map(Type::String, scalar.clone())));
        fields.push((format!("map_bool_{name}"), Type::map(Type::Bool, scalar.clone())));
    }
    fields.extend(RESERVED.map(|name| (name.to_owned(), Type::Bool)));
    let nested = Type::Message(format!("{package}.TestAllTypes.NestedMessage").into());
    let more = [
        ("repeated_nested_message", Type::list(nested.clone())),
        ("standalone_message", nested),
        ("single_any", Type::Dyn),
        ("single_duration", Type::Duration),
        ("single_timestamp", Type::Timestamp),
        ("single_struct", Type::map(Type::String, Type::Dyn)),
        ("single_value", Type::Dyn),
        ("list_value", Type::list(Type::Dyn)),
        ("standalone_enum", Type::Int),
        ("repeated_nested_enum", Type::list(Type::Int)),
        ("map_int32_enum", Type::map(Type::Int, Type::Int)),
    ];
    fields.extend(more.map(|(name, declared)| (name.to_owned(), declared)));
    MessageType::new(&format!("{package}.TestAllTypes"), fields)
}

fn nested_types(package: &str) -> MessageType {
    let fields = [("child", "NestedTestAllTypes"), ("payload", "TestAllTypes")];
    let fields = fields.map(|(name, other)| (name.to_owned(), Type::Message(format!("{package}.{other}").into())));
    MessageType::new(&format!("{package}.NestedTestAllTypes"), fields)
}

pub(super) fn find(name: &str) -> Option<&'static Arc<MessageType>> {
    TYPES.iter().find(|message| message.name() == name)
}

pub(super) fn field_type(message: &str, field: &str) -> Option<&'static Type> {
    find(message)?.field(field)
}
