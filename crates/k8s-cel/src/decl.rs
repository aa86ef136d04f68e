//! Declared types: what a schema says about a value, with the sizes that cost estimation needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::escaping::escape;
use crate::types::Type;

/// Largest request body, from which the largest possible sizes follow.
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;
const MIN_STRING_BYTES: u64 = 2;
const MIN_NUMBER_BYTES: u64 = 1;
const MIN_BOOL_BYTES: u64 = 4;
const MIN_DURATION_BYTES: u64 = 3;
const MAX_DURATION_BYTES: u64 = 32;
const MAX_DATE_TIME_BYTES: u64 = 32;
const MIN_DATE_TIME_BYTES: u64 = 21;
const DATE_BYTES: u64 = 12;

/// The declared type of a value in a JSON document.
#[derive(Clone, Debug)]
pub struct DeclType {
    pub(crate) kind: DeclKind,
    pub(crate) max_elements: u64,
    pub(crate) min_serialized_size: u64,
    pub(crate) nullable: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum DeclKind {
    Dyn,
    IntOrString,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    List {
        items: Arc<DeclType>,
        order: ListKind,
    },
    Map {
        values: Arc<DeclType>,
    },
    Object(ObjectDecl),
    /// A type of a library, e.g. the authorizer.
    Named(&'static str),
    Optional(Arc<DeclType>),
}

/// How elements of a list are told apart (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// By position.
    Atomic,
    /// Scalars without order: `==` compares as sets, `+` is the union.
    Set,
    /// Objects by these keys (names as in the JSON document): `==` ignores order, `+` merges by key.
    Map(Vec<String>),
}

#[derive(Clone, Debug)]
pub(crate) struct ObjectDecl {
    pub(crate) name: String,
    /// By name as expressions write it.
    pub(crate) fields: BTreeMap<String, FieldDecl>,
    /// Properties that expressions cannot name, by name in the document, with their type unless it is unknown. They only
    /// count for equality.
    pub(crate) hidden: BTreeMap<String, Option<Arc<DeclType>>>,
    /// Every name is a field of any type; `fields` is empty.
    pub(crate) is_open: bool,
}

impl ObjectDecl {
    /// The type of a property by its name in the document; nothing if the schema does not have the property, and no type
    /// if the schema does not say.
    pub(crate) fn property(&self, name: &str) -> Option<Option<&DeclType>> {
        match escape(name).and_then(|name| self.fields.get(&*name)) {
            Some(field) => Some(Some(&field.decl)),
            None => self.hidden.get(name).map(Option::as_deref),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FieldDecl {
    pub(crate) json_name: String,
    pub(crate) decl: Arc<DeclType>,
}

/// A field of a declared object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name in the JSON document.
    pub name: String,
    /// Declared type of its values.
    pub decl: DeclType,
    /// True if the field is required and has no default: it then counts into the smallest size of the object.
    pub always_serialized: bool,
}

impl Field {
    /// A field that may be absent.
    pub fn new(name: impl Into<String>, decl: DeclType) -> Self {
        Self { name: name.into(), decl, always_serialized: false }
    }

    /// Marks the field as required without default.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.always_serialized = true;
        self
    }
}

/// The name of objects that have not got one yet.
const UNNAMED: &str = "object";

impl DeclType {
    fn simple(kind: DeclKind, max_elements: u64, min_serialized_size: u64) -> Self {
        Self { kind, max_elements, min_serialized_size, nullable: false }
    }

    pub(crate) const fn plain() -> Self {
        Self { kind: DeclKind::Dyn, max_elements: 0, min_serialized_size: 1, nullable: false }
    }

    /// A value of any type.
    pub fn dynamic() -> Self {
        Self::simple(DeclKind::Dyn, 0, 1)
    }

    /// `x-kubernetes-int-or-string`, with its `maxLength`.
    pub fn int_or_string(max_length: Option<u64>) -> Self {
        Self::simple(DeclKind::IntOrString, max_string(max_length), 1)
    }

    /// `type: boolean`.
    pub fn bool() -> Self {
        Self::simple(DeclKind::Bool, 0, MIN_BOOL_BYTES)
    }

    /// `type: integer`.
    pub fn int() -> Self {
        Self::simple(DeclKind::Int, 0, MIN_NUMBER_BYTES)
    }

    /// An unsigned integer, which no schema has, but variables may.
    pub fn uint() -> Self {
        Self::simple(DeclKind::Uint, 0, MIN_NUMBER_BYTES)
    }

    /// `type: number`.
    pub fn double() -> Self {
        Self::simple(DeclKind::Double, 0, MIN_NUMBER_BYTES)
    }

    /// `type: string` with its `maxLength` in code points.
    pub fn string(max_length: Option<u64>) -> Self {
        Self::simple(DeclKind::String, max_string(max_length), MIN_STRING_BYTES)
    }

    /// `type: string` with an `enum` and no `maxLength`: the longest value bounds the size.
    pub fn string_enum<'e>(values: impl IntoIterator<Item = &'e str>) -> Self {
        let longest = values.into_iter().map(str::len).max().unwrap_or(0);
        Self::simple(DeclKind::String, longest as u64, MIN_STRING_BYTES)
    }

    /// `format: byte`: base64 in the document, bytes in expressions.
    pub fn bytes(max_length: Option<u64>) -> Self {
        Self::simple(DeclKind::Bytes, max_length.unwrap_or(MAX_REQUEST_BYTES - 2), MIN_STRING_BYTES)
    }

    /// `format: duration`.
    pub fn duration() -> Self {
        Self::simple(DeclKind::Duration, MAX_DURATION_BYTES, MIN_DURATION_BYTES)
    }

    /// `format: date`.
    pub fn date() -> Self {
        Self::simple(DeclKind::Date, DATE_BYTES, DATE_BYTES)
    }

    /// `format: date-time`.
    pub fn date_time() -> Self {
        Self::simple(DeclKind::DateTime, MAX_DATE_TIME_BYTES, MIN_DATE_TIME_BYTES)
    }

    /// `type: array` with its `maxItems`.
    pub fn list(items: DeclType, max_items: Option<u64>, order: ListKind) -> Self {
        let max = max_items.unwrap_or((MAX_REQUEST_BYTES - 2) / (items.min_serialized_size + 1));
        Self::simple(DeclKind::List { items: Arc::new(items), order }, max, 2)
    }

    /// `type: object` with `additionalProperties` and `maxProperties`.
    pub fn map(values: DeclType, max_properties: Option<u64>) -> Self {
        let max = max_properties.unwrap_or((MAX_REQUEST_BYTES - 2) / (values.min_serialized_size + 6));
        Self::simple(DeclKind::Map { values: Arc::new(values) }, max, 2)
    }

    /// `type: object` with `properties`. Expressions cannot select properties whose names no identifier can express.
    pub fn object(fields: impl IntoIterator<Item = Field>) -> Self {
        Self::named_object(UNNAMED, fields)
    }

    /// An object type whose name expressions can use, e.g. to construct it.
    pub fn named_object(name: impl Into<String>, fields: impl IntoIterator<Item = Field>) -> Self {
        let mut min_serialized_size = 2;
        let (mut declared, mut hidden) = (BTreeMap::new(), BTreeMap::new());
        for field in fields {
            if field.always_serialized {
                min_serialized_size += field.name.len() as u64 + field.decl.min_serialized_size + 4;
            }
            let decl = Arc::new(field.decl);
            match escape(&field.name) {
                Some(name) => drop(declared.insert(name.into_owned(), FieldDecl { json_name: field.name, decl })),
                None => drop(hidden.insert(field.name, Some(decl))),
            }
        }
        let object = ObjectDecl { name: name.into(), fields: declared, hidden, is_open: false };
        Self::simple(DeclKind::Object(object), 0, min_serialized_size)
    }

    /// An object type with every field, each of any type.
    pub(crate) fn open_object(name: &str) -> Self {
        let (fields, hidden) = (BTreeMap::new(), BTreeMap::new());
        Self::simple(DeclKind::Object(ObjectDecl { name: name.to_owned(), fields, hidden, is_open: true }), 0, 2)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.kind, DeclKind::Object(object) if object.is_open)
    }

    /// Adds a property of unknown type to an object. Expressions cannot select it, but objects that differ in it differ.
    #[must_use]
    pub fn with_unknown_property(mut self, name: impl Into<String>) -> Self {
        if let DeclKind::Object(object) = &mut self.kind {
            object.hidden.insert(name.into(), None);
        }
        self
    }

    /// A value of a library type, by its name in error messages (e.g. `kubernetes.authorization.Authorizer`).
    pub fn library(name: &'static str) -> Self {
        Self::simple(DeclKind::Named(name), 0, 1)
    }

    /// An optional value, as `oldSelf` is with `optionalOldSelf`.
    pub fn optional(value: impl Into<Arc<DeclType>>) -> Self {
        let value = value.into();
        let (max, min) = (value.max_elements, value.min_serialized_size);
        Self::simple(DeclKind::Optional(value), max, min)
    }

    /// Names the object types within that have no name, after `name` and their fields. Variables of one named type can be
    /// compared, e.g. `self` and `oldSelf`.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name_objects(&mut self, name);
        self
    }

    /// Allows null (`nullable: true`).
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// How often a value of this type fits into one request: the factor of a rule's cost below unbounded lists and maps.
    pub fn max_cardinality(&self) -> u64 {
        MAX_REQUEST_BYTES / (self.min_serialized_size + 1)
    }

    /// The largest number of elements, properties or bytes.
    pub fn max_elements(&self) -> u64 {
        self.max_elements
    }

    pub(crate) fn type_name(&self) -> &str {
        match &self.kind {
            DeclKind::Object(object) => &object.name,
            _ => "",
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&FieldDecl> {
        match &self.kind {
            DeclKind::Object(object) => object.fields.get(name),
            _ => None,
        }
    }

    /// The declared type of a property of an object, by its name in the JSON document.
    pub fn property(&self, name: &str) -> Option<&Arc<DeclType>> {
        self.field(&escape(name)?).map(|field| &field.decl)
    }

    /// The type of the elements of a list or the values of a map.
    pub fn element(&self) -> Option<&Arc<DeclType>> {
        match &self.kind {
            DeclKind::List { items, .. } => Some(items),
            DeclKind::Map { values } => Some(values),
            _ => None,
        }
    }
}

fn max_string(max_length: Option<u64>) -> u64 {
    // Lengths count code points of up to four bytes.
    max_length.map_or(MAX_REQUEST_BYTES - 2, |length| length.saturating_mul(4))
}

/// The static type of a declaration.
pub(crate) fn static_type(decl: &Arc<DeclType>) -> Type {
    match &decl.kind {
        DeclKind::Dyn | DeclKind::IntOrString => Type::Dyn,
        DeclKind::Bool => Type::Bool,
        DeclKind::Int => Type::Int,
        DeclKind::Uint => Type::Uint,
        DeclKind::Double => Type::Double,
        DeclKind::String => Type::String,
        DeclKind::Bytes => Type::Bytes,
        DeclKind::Duration => Type::Duration,
        DeclKind::Date | DeclKind::DateTime => Type::Timestamp,
        DeclKind::List { items, .. } => Type::list(static_type(items)),
        DeclKind::Map { values } => Type::map(Type::String, static_type(values)),
        DeclKind::Object(_) => Type::Object(Arc::clone(decl)),
        DeclKind::Named(name) => Type::Named(name),
        DeclKind::Optional(inner) => Type::optional(static_type(inner)),
    }
}

/// Gives every unnamed object the name of the path that leads to it.
pub(crate) fn name_objects(decl: &mut DeclType, name: &str) {
    match &mut decl.kind {
        DeclKind::Object(object) => {
            if object.name == UNNAMED {
                name.clone_into(&mut object.name);
            }
            let prefix = object.name.clone();
            for (field, declared) in &mut object.fields {
                name_objects(Arc::make_mut(&mut declared.decl), &format!("{prefix}.{field}"));
            }
            for (name, decl) in object.hidden.iter_mut().filter_map(|(name, decl)| Some((name, decl.as_mut()?))) {
                name_objects(Arc::make_mut(decl), &format!("{prefix}.{name}"));
            }
        }
        DeclKind::List { items, .. } => name_objects(Arc::make_mut(items), &format!("{name}.@idx")),
        DeclKind::Map { values } => name_objects(Arc::make_mut(values), &format!("{name}.@elem")),
        DeclKind::Optional(inner) => name_objects(Arc::make_mut(inner), name),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_the_largest_request() {
        assert_eq!(DeclType::string(None).max_elements(), 3_145_726);
        assert_eq!(DeclType::string(Some(10)).max_elements(), 40);
        assert_eq!(DeclType::list(DeclType::string(None), None, ListKind::Atomic).max_elements(), 1_048_575);
        assert_eq!(DeclType::map(DeclType::int(), None).max_elements(), 449_389);
        let object = DeclType::object([Field::new("name", DeclType::string(None)).required()]);
        assert_eq!(object.max_cardinality(), 3_145_728 / 13);
    }

    #[test]
    fn objects_are_named_by_path() {
        let mut decl = DeclType::object([Field::new(
            "items",
            DeclType::list(DeclType::object([Field::new("x", DeclType::int())]), None, ListKind::Atomic),
        )]);
        name_objects(&mut decl, "self");
        let items = decl.field("items").unwrap().decl.element().unwrap();
        assert_eq!(items.type_name(), "self.items.@idx");
    }
}
