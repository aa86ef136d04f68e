//! A node of an OpenAPI schema, read from JSON as Go reads it: null and absent are the same.

use std::sync::LazyLock;

use api::json::JsonObject;
use serde_json::Value;

use crate::rules::PathSchema;

static EMPTY: LazyLock<JsonObject> = LazyLock::new(JsonObject::new);

/// One node of an OpenAPI schema (`JSONSchemaProps`). The depth of a schema is that of its JSON, which parsers limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaNode<'a>(pub(crate) &'a JsonObject);

/// The value of `items`.
#[derive(Clone, Debug)]
pub(crate) enum Items<'a> {
    /// One schema for all items.
    One(SchemaNode<'a>),
    /// A list of schemas, which no release supports; may be empty.
    Many(Vec<SchemaNode<'a>>),
}

/// The value of `additionalProperties` or `additionalItems`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SchemaOrBool<'a> {
    Schema(SchemaNode<'a>),
    Bool(bool),
}

impl<'a> SchemaNode<'a> {
    /// A node from a value of a list or a map, where null stands for the empty schema.
    fn from_item(value: &'a Value) -> Self {
        Self(value.as_object().unwrap_or(&EMPTY))
    }

    /// The value of a field that is present and not null.
    pub(crate) fn value(self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn is_set(self, field: &str) -> bool {
        self.value(field).is_some()
    }

    /// A string; absent is empty.
    pub(crate) fn text(self, field: &str) -> &'a str {
        self.optional_text(field).unwrap_or_default()
    }

    pub(crate) fn optional_text(self, field: &str) -> Option<&'a str> {
        self.value(field).and_then(Value::as_str)
    }

    pub(crate) fn flag(self, field: &str) -> bool {
        self.value(field).and_then(Value::as_bool) == Some(true)
    }

    pub(crate) fn schema_type(self) -> &'a str {
        self.text("type")
    }

    pub(crate) fn list(self, field: &str) -> &'a [Value] {
        self.value(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The strings of a list.
    pub(crate) fn texts(self, field: &str) -> impl Iterator<Item = &'a str> {
        self.list(field).iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// The schema in a field, such as `not`.
    pub(crate) fn node(self, field: &str) -> Option<Self> {
        self.value(field).and_then(Value::as_object).map(Self)
    }

    /// The schemas of a list, such as `allOf`.
    pub(crate) fn nodes(self, field: &str) -> impl Iterator<Item = Self> {
        self.list(field).iter().map(Self::from_item)
    }

    /// The schemas of a map by key, such as `properties`.
    pub(crate) fn named_nodes(self, field: &str) -> impl Iterator<Item = (&'a str, Self)> {
        let map = self.value(field).and_then(Value::as_object);
        map.into_iter().flatten().map(|(name, value)| (name.as_str(), Self::from_item(value)))
    }

    pub(crate) fn property(self, name: &str) -> Option<Self> {
        self.value("properties")?.as_object()?.get(name).map(Self::from_item)
    }

    pub(crate) fn has_properties(self) -> bool {
        self.value("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty())
    }

    pub(crate) fn items(self) -> Option<Items<'a>> {
        Some(match self.value("items")? {
            Value::Object(schema) => Items::One(Self(schema)),
            Value::Array(list) => Items::Many(list.iter().map(Self::from_item).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Items::Many(Vec::new()),
        })
    }

    /// The schema of all items, unless there is a list of schemas.
    pub(crate) fn item_schema(self) -> Option<Self> {
        self.node("items")
    }

    pub(crate) fn schema_or_bool(self, field: &str) -> Option<SchemaOrBool<'a>> {
        let value = self.value(field)?;
        Some(match value.as_object() {
            Some(schema) => SchemaOrBool::Schema(Self(schema)),
            None => SchemaOrBool::Bool(value.as_bool() == Some(true)),
        })
    }

    /// True if this node or one below it, under any keyword, satisfies the condition.
    pub(crate) fn any(self, condition: &dyn Fn(SchemaNode<'_>) -> bool) -> bool {
        condition(self) || self.children().into_iter().any(|child| child.any(condition))
    }

    /// The schemas directly below, under any keyword.
    pub(crate) fn children(self) -> Vec<Self> {
        let mut children: Vec<Self> = match self.items() {
            Some(Items::One(schema)) => vec![schema],
            Some(Items::Many(schemas)) => schemas,
            None => Vec::new(),
        };
        for field in ["allOf", "anyOf", "oneOf"] {
            children.extend(self.nodes(field));
        }
        children.extend(self.node("not"));
        let named = |field| self.named_nodes(field).map(|(_, node)| node);
        children.extend(named("properties"));
        children.extend(self.node("additionalProperties"));
        children.extend(named("patternProperties"));
        children.extend(self.node("additionalItems"));
        children.extend(named("definitions"));
        let dependencies = self.value("dependencies").and_then(Value::as_object);
        children.extend(dependencies.into_iter().flatten().filter_map(|(_, value)| value.as_object()).map(Self));
        children
    }
}

impl PathSchema for SchemaNode<'_> {
    fn has_properties(self) -> bool {
        Self::has_properties(self)
    }

    fn property(self, name: &str) -> Option<Self> {
        Self::property(self, name)
    }

    fn additional(self) -> Option<Option<Self>> {
        self.is_set("additionalProperties").then(|| self.node("additionalProperties"))
    }
}
