//! From schemas to the types that expressions see.

use k8s_cel::{DeclType, Field, ListKind};
use schema::structural::{AdditionalProperties, ListType, Property, SchemaNode, SchemaType};

/// The name of the type of `self`, which expressions cannot use.
const SELF_TYPE: &str = "selfType";

/// The named type of a node's values; `None` if expressions cannot see them.
///
/// Resources, which are the root and embedded ones, have `apiVersion`, `kind`, `metadata.name` and
/// `metadata.generateName` even if the schema does not say so.
pub(super) fn declare(schema: &SchemaNode, is_resource: bool) -> Option<DeclType> {
    Some(declare_unnamed(schema, is_resource)?.named(SELF_TYPE))
}

/// Recursion is as deep as the schema, whose depth is limited.
fn declare_unnamed(schema: &SchemaNode, is_resource: bool) -> Option<DeclType> {
    let decl = if schema.is_int_or_string() {
        DeclType::int_or_string(schema.max_length().map(size))
    } else {
        declare_type(schema, is_resource)?
    };
    Some(if schema.is_nullable() { decl.nullable() } else { decl })
}

fn declare_type(schema: &SchemaNode, is_resource: bool) -> Option<DeclType> {
    Some(match schema.schema_type()? {
        SchemaType::Array => {
            let items = schema.items()?;
            let items = declare_unnamed(items, items.is_embedded_resource())?;
            DeclType::list(items, schema.max_items().map(size), list_kind(schema))
        }
        SchemaType::Object => match schema.additional_properties() {
            AdditionalProperties::Schema(values) => {
                let values = declare_unnamed(values, values.is_embedded_resource())?;
                DeclType::map(values, schema.max_properties().map(size))
            }
            AdditionalProperties::Absent | AdditionalProperties::Allowed(_) => {
                let unknown = unseen_properties(schema);
                unknown.fold(DeclType::object(fields(schema, is_resource)), DeclType::with_unknown_property)
            }
        },
        SchemaType::String => declare_string(schema),
        SchemaType::Boolean => DeclType::bool(),
        SchemaType::Number => DeclType::double(),
        SchemaType::Integer => DeclType::int(),
    })
}

fn size(limit: i64) -> u64 {
    u64::try_from(limit).unwrap_or(0)
}

fn list_kind(schema: &SchemaNode) -> ListKind {
    match schema.list_type() {
        Some(ListType::Set) => ListKind::Set,
        Some(ListType::Map) => ListKind::Map(schema.list_map_keys().iter().map(|key| key.to_string()).collect()),
        Some(ListType::Atomic) | None => ListKind::Atomic,
    }
}

fn declare_string(schema: &SchemaNode) -> DeclType {
    let max_length = schema.max_length().map(size);
    match schema.format() {
        Some("byte") => DeclType::bytes(max_length),
        Some("duration") => DeclType::duration(),
        Some("date") => DeclType::date(),
        Some("date-time") => DeclType::date_time(),
        _ if max_length.is_none() && !schema.enum_values().is_empty() => {
            DeclType::string_enum(schema.enum_values().iter().filter_map(|value| value.as_str()))
        }
        _ => DeclType::string(max_length),
    }
}

fn fields(schema: &SchemaNode, is_resource: bool) -> Vec<Field> {
    let implied = is_resource && !declares_resource(schema);
    let is_implied = |name: &str| implied && matches!(name, "apiVersion" | "kind" | "metadata");
    let mut fields = Vec::with_capacity(schema.properties().len());
    for property in schema.properties().iter().filter(|property| !is_implied(property.name())) {
        let node = property.schema();
        if let Some(decl) = declare_unnamed(node, node.is_embedded_resource()) {
            fields.push(field(schema, property.name(), decl, node.default().is_some()));
        }
    }
    if implied {
        let names = ["name", "generateName"].map(|name| Field::new(name, DeclType::string(None)));
        fields.push(field(schema, "metadata", DeclType::object(names), false));
        for name in ["apiVersion", "kind"] {
            fields.push(field(schema, name, DeclType::string(None), false));
        }
    }
    fields
}

/// The properties of unknown type.
fn unseen_properties(schema: &SchemaNode) -> impl Iterator<Item = &str> {
    schema.properties().iter().filter(|property| !is_visible(property.schema())).map(Property::name)
}

/// True if expressions can see values of the node.
fn is_visible(schema: &SchemaNode) -> bool {
    schema.is_int_or_string()
        || match schema.schema_type() {
            Some(SchemaType::Array) => schema.items().is_some_and(is_visible),
            Some(SchemaType::Object) => schema.additional_schema().is_none_or(is_visible),
            Some(SchemaType::String | SchemaType::Integer | SchemaType::Number | SchemaType::Boolean) => true,
            None => false,
        }
}

fn field(schema: &SchemaNode, name: &str, decl: DeclType, has_default: bool) -> Field {
    let field = Field::new(name, decl);
    let is_required = schema.required().iter().any(|required| &**required == name);
    if is_required && !has_default { field.required() } else { field }
}

/// True if the schema itself declares everything that resources always have.
fn declares_resource(schema: &SchemaNode) -> bool {
    let has_type = |node: &SchemaNode, name: &str, wanted: SchemaType| {
        node.property(name).and_then(SchemaNode::schema_type) == Some(wanted)
    };
    has_type(schema, "kind", SchemaType::String)
        && has_type(schema, "apiVersion", SchemaType::String)
        && has_type(schema, "metadata", SchemaType::Object)
        && schema.property("metadata").is_some_and(|metadata| {
            ["name", "generateName"].iter().all(|name| has_type(metadata, name, SchemaType::String))
        })
}
