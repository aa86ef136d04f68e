//! What structured merge knows about the type of a value.

use std::borrow::Cow;

use schema::structural::{AdditionalProperties, ListType, MapType, SchemaNode, SchemaType};
use schema::{ListMapKeys, SpecialType, StructField, StructType, Topology, TypeForm, ValueType, ZeroEncoding};
use serde_json::Value;

use crate::ObjectType;

/// The type of a value.
#[derive(Clone, Copy)]
pub(crate) enum Type<'t> {
    /// An object with the fields of a built-in type; the field that has it may declare another topology.
    Struct(StructType<'t>, Option<Topology<'t>>),
    /// Another built-in value.
    Value(ValueType<'t>, Option<Topology<'t>>),
    /// A value of a custom resource.
    Node(CustomNode<'t>),
    /// Text without a format.
    Text,
    /// Any value: maps are granular, lists atomic.
    Deduced,
    /// Any value, as a whole.
    Untyped,
}

/// A node of a structural schema.
#[derive(Clone, Copy)]
pub(crate) struct CustomNode<'t> {
    node: &'t SchemaNode,
    /// A node above preserves unknown fields.
    preserves: bool,
    object_meta: StructType<'t>,
    /// The object has `apiVersion`, `kind` and `metadata`.
    is_resource: bool,
}

/// The forms that a value of a type may have.
#[derive(Clone, Copy)]
pub(crate) struct Atom<'t> {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<List<'t>>,
    pub(crate) map: Option<MapOf<'t>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    Text,
    Boolean,
    Untyped,
}

#[derive(Clone, Copy)]
pub(crate) struct List<'t> {
    pub(crate) items: Type<'t>,
    pub(crate) topology: ListTopology<'t>,
}

#[derive(Clone, Copy)]
pub(crate) enum ListTopology<'t> {
    Atomic,
    Set,
    Keys(Keys<'t>),
}

#[derive(Clone, Copy)]
pub(crate) enum Keys<'t> {
    BuiltIn(ListMapKeys<'t>),
    Custom(&'t [Box<str>]),
}

/// An object or a map.
#[derive(Clone, Copy)]
pub(crate) struct MapOf<'t> {
    fields: NamedFields<'t>,
    /// The type of fields that have no name in the type; `None`: there are none.
    others: Option<OtherFields<'t>>,
    pub(crate) is_atomic: bool,
}

#[derive(Clone, Copy)]
enum NamedFields<'t> {
    None,
    Struct(StructType<'t>),
    Node(CustomNode<'t>),
}

#[derive(Clone, Copy)]
enum OtherFields<'t> {
    Deduced,
    Untyped,
    Value(ValueType<'t>),
    Node(CustomNode<'t>),
}

/// The form in which a value is handled.
#[derive(Clone, Copy)]
pub(crate) enum Handled<'t> {
    Map(MapOf<'t>),
    Scalar(Scalar),
    List(List<'t>),
}

impl<'t> From<ObjectType<'t>> for Type<'t> {
    fn from(object_type: ObjectType<'t>) -> Self {
        match object_type {
            ObjectType::BuiltIn(kind) => Self::Struct(kind, None),
            ObjectType::Custom { schema, object_meta } => {
                Self::Node(CustomNode { node: schema.root(), preserves: false, object_meta, is_resource: true })
            }
            ObjectType::Deduced => Self::Deduced,
        }
    }
}

impl<'t> Type<'t> {
    pub(crate) fn of_field(field: StructField<'t>) -> Self {
        Self::of_value(field.value_type(), field.topology())
    }

    fn of_value(value_type: ValueType<'t>, topology: Option<Topology<'t>>) -> Self {
        match value_type.form() {
            TypeForm::Struct(inner) => Self::Struct(inner, topology),
            TypeForm::Text
            | TypeForm::Int32
            | TypeForm::Int64
            | TypeForm::Double
            | TypeForm::Bool
            | TypeForm::Bytes
            | TypeForm::Special(_)
            | TypeForm::List(_)
            | TypeForm::Map(_) => Self::Value(value_type, topology),
        }
    }

    pub(crate) fn atom(self) -> Atom<'t> {
        match self {
            Self::Struct(kind, topology) => Atom::of_map(MapOf::of_struct(kind, topology)),
            Self::Value(value_type, topology) => Atom::of_built_in(value_type, topology),
            Self::Node(node) => node.atom(),
            Self::Text => Atom::of_scalar(Scalar::Text),
            Self::Deduced => Atom::of_any(OtherFields::Deduced, false),
            Self::Untyped => Atom::of_any(OtherFields::Untyped, true),
        }
    }

    /// The form of a value: its own if the type has it, else the type's first. Null has every form.
    pub(crate) fn handled(self, value: &Value) -> Handled<'t> {
        let atom = self.atom();
        let own = match value {
            Value::Null => None,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => atom.scalar.map(Handled::Scalar),
            Value::Array(_) => atom.list.map(Handled::List),
            Value::Object(_) => atom.map.map(Handled::Map),
        };
        own.unwrap_or_else(|| atom.first())
    }
}

impl<'t> Atom<'t> {
    /// The form of values that have none of their own.
    pub(crate) fn first(&self) -> Handled<'t> {
        let map = self.map.map(Handled::Map);
        let scalar = || self.scalar.map(Handled::Scalar);
        map.or_else(scalar).or_else(|| self.list.map(Handled::List)).unwrap_or(Handled::Scalar(Scalar::Untyped))
    }

    fn of_scalar(scalar: Scalar) -> Self {
        Self { scalar: Some(scalar), list: None, map: None }
    }

    fn of_map(map: MapOf<'t>) -> Self {
        Self { scalar: None, list: None, map: Some(map) }
    }

    fn of_any(others: OtherFields<'t>, is_atomic: bool) -> Self {
        let map = MapOf { fields: NamedFields::None, others: Some(others), is_atomic };
        let list = List { items: Type::Untyped, topology: ListTopology::Atomic };
        Self { scalar: Some(Scalar::Untyped), list: Some(list), map: Some(map) }
    }

    fn of_built_in(value_type: ValueType<'t>, topology: Option<Topology<'t>>) -> Self {
        match value_type.form() {
            TypeForm::Text | TypeForm::Bytes => Self::of_scalar(Scalar::Text),
            TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => Self::of_scalar(Scalar::Numeric),
            TypeForm::Bool => Self::of_scalar(Scalar::Boolean),
            TypeForm::Special(special) => Self::of_special(special),
            TypeForm::List(items) => {
                let topology = match topology {
                    Some(Topology::Set) => ListTopology::Set,
                    Some(Topology::Map(keys)) => ListTopology::Keys(Keys::BuiltIn(keys)),
                    Some(Topology::Atomic | Topology::Granular) | None => ListTopology::Atomic,
                };
                let list = List { items: Type::of_value(items, None), topology };
                Self { scalar: None, list: Some(list), map: None }
            }
            TypeForm::Map(values) => Self::of_map(MapOf {
                fields: NamedFields::None,
                others: Some(OtherFields::Value(values)),
                is_atomic: topology == Some(Topology::Atomic),
            }),
            TypeForm::Struct(inner) => Self::of_map(MapOf::of_struct(inner, topology)),
        }
    }

    fn of_special(special: SpecialType) -> Self {
        match special {
            SpecialType::Quantity | SpecialType::Time | SpecialType::MicroTime => Self::of_scalar(Scalar::Untyped),
            SpecialType::Raw => Self::of_any(OtherFields::Untyped, true),
            SpecialType::Fields | SpecialType::Patch => {
                Self::of_map(MapOf { fields: NamedFields::None, others: Some(OtherFields::Deduced), is_atomic: false })
            }
            SpecialType::IntOrString
            | SpecialType::Json
            | SpecialType::SchemaOrArray
            | SpecialType::SchemaOrBool
            | SpecialType::SchemaOrStrings => Self::of_any(OtherFields::Deduced, false),
        }
    }
}

impl<'t> MapOf<'t> {
    fn of_struct(kind: StructType<'t>, topology: Option<Topology<'t>>) -> Self {
        let is_atomic = topology.or_else(|| kind.topology()) == Some(Topology::Atomic);
        let others = kind.fields().next().is_none().then_some(OtherFields::Deduced);
        Self { fields: NamedFields::Struct(kind), others, is_atomic }
    }

    /// The built-in type of the object, if it has one.
    pub(crate) fn struct_type(&self) -> Option<StructType<'t>> {
        match self.fields {
            NamedFields::Struct(kind) => Some(kind),
            NamedFields::None | NamedFields::Node(_) => None,
        }
    }

    /// The type of a field that the type names.
    pub(crate) fn field(&self, name: &str) -> Option<Type<'t>> {
        match self.fields {
            NamedFields::None => None,
            NamedFields::Struct(kind) => kind.field(name).map(Type::of_field),
            NamedFields::Node(node) => node.field(name),
        }
    }

    /// The type of fields that the type does not name.
    pub(crate) fn others(&self) -> Option<Type<'t>> {
        self.others.map(|others| match others {
            OtherFields::Deduced => Type::Deduced,
            OtherFields::Untyped => Type::Untyped,
            OtherFields::Value(values) => Type::of_value(values, None),
            OtherFields::Node(node) => Type::Node(node),
        })
    }

    /// The type of the field, declared or not; `None` if the map has no such field.
    pub(crate) fn child(&self, name: &str) -> Option<Type<'t>> {
        self.field(name).or_else(|| self.others())
    }

    /// True for a map without a schema, whose topology does not change.
    pub(crate) fn is_free(&self) -> bool {
        let has_names = match self.fields {
            NamedFields::None => false,
            NamedFields::Struct(kind) => kind.fields().next().is_some(),
            NamedFields::Node(node) => node.has_names(),
        };
        let is_free = match self.others {
            Some(OtherFields::Deduced) => true,
            Some(OtherFields::Node(node)) => node.atom().scalar == Some(Scalar::Untyped),
            Some(OtherFields::Value(_) | OtherFields::Untyped) | None => false,
        };
        is_free && !has_names
    }

    /// The default of a field, for the keys of list items.
    pub(crate) fn default_of(&self, name: &str) -> Option<Cow<'t, Value>> {
        match self.fields {
            NamedFields::None => None,
            NamedFields::Node(node) => node.node.property(name)?.default().map(Cow::Borrowed),
            NamedFields::Struct(kind) => {
                let field = kind.field(name)?;
                if let Some(default) = field.default() {
                    return serde_json::from_str(default).ok().map(Cow::Owned);
                }
                if field.zero_encoding() != ZeroEncoding::Zero {
                    return None;
                }
                match field.value_type().form() {
                    TypeForm::Text => Some(Cow::Owned("".into())),
                    TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => Some(Cow::Owned(0.into())),
                    TypeForm::Bool => Some(Cow::Owned(false.into())),
                    TypeForm::Bytes
                    | TypeForm::Special(_)
                    | TypeForm::List(_)
                    | TypeForm::Map(_)
                    | TypeForm::Struct(_) => None,
                }
            }
        }
    }
}

impl<'t> CustomNode<'t> {
    fn below(self, node: &'t SchemaNode) -> Self {
        let is_resource = node.is_embedded_resource();
        Self { node, preserves: self.preserves_below(), object_meta: self.object_meta, is_resource }
    }

    fn preserves_below(self) -> bool {
        self.preserves || self.node.preserves_unknown_fields()
    }

    fn has_names(self) -> bool {
        self.is_resource || !self.node.properties().is_empty()
    }

    fn field(self, name: &str) -> Option<Type<'t>> {
        match name {
            "apiVersion" | "kind" if self.is_resource => Some(Type::Text),
            "metadata" if self.is_resource => Some(Type::Struct(self.object_meta, None)),
            _ => self.node.property(name).map(|node| Type::Node(self.below(node))),
        }
    }

    fn atom(self) -> Atom<'t> {
        match self.node.schema_type() {
            None => Atom { scalar: Some(Scalar::Untyped), list: Some(self.list()), map: Some(self.map()) },
            Some(SchemaType::Object) => Atom::of_map(self.map()),
            Some(SchemaType::Array) => Atom { scalar: None, list: Some(self.list()), map: None },
            Some(SchemaType::Integer | SchemaType::Number) => Atom::of_scalar(Scalar::Numeric),
            Some(SchemaType::Boolean) => Atom::of_scalar(Scalar::Boolean),
            Some(SchemaType::String) => match self.node.format() {
                None | Some("" | "byte") => Atom::of_scalar(Scalar::Text),
                Some(_) => Atom::of_scalar(Scalar::Untyped),
            },
        }
    }

    fn map(self) -> MapOf<'t> {
        let others = match self.node.additional_properties() {
            AdditionalProperties::Absent if self.preserves_below() || !self.has_names() => Some(OtherFields::Deduced),
            AdditionalProperties::Allowed(true) => Some(OtherFields::Deduced),
            AdditionalProperties::Absent | AdditionalProperties::Allowed(false) => None,
            AdditionalProperties::Schema(values) => Some(OtherFields::Node(self.below(values))),
        };
        let fields = if self.has_names() { NamedFields::Node(self) } else { NamedFields::None };
        MapOf { fields, others, is_atomic: self.node.map_type() == Some(MapType::Atomic) }
    }

    fn list(self) -> List<'t> {
        let topology = match self.node.list_type() {
            None | Some(ListType::Atomic) => ListTopology::Atomic,
            Some(ListType::Set) => ListTopology::Set,
            Some(ListType::Map) => ListTopology::Keys(Keys::Custom(self.node.list_map_keys())),
        };
        List { items: self.node.items().map_or(Type::Untyped, |items| Type::Node(self.below(items))), topology }
    }
}

impl List<'_> {
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.topology, ListTopology::Atomic)
    }
}

impl<'t> Keys<'t> {
    /// Calls `visit` with each name, in the order of declaration.
    pub(crate) fn for_each(self, mut visit: impl FnMut(&'t str)) {
        match self {
            Self::BuiltIn(keys) => keys.names().for_each(visit),
            Self::Custom(names) => names.iter().for_each(|name| visit(name)),
        }
    }
}
