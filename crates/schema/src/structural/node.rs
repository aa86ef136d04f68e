//! The compiled form of a schema.
//!
//! A definition can have thousands of nodes and stays in memory as long as it is served, so that a node is small: the
//! keywords that most nodes lack are entries of one list.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

/// The schema of one value.
#[derive(Debug, Default)]
pub struct SchemaNode {
    pub(super) schema_type: Option<SchemaType>,
    pub(super) flags: Flags,
    pub(super) list_type: Option<ListType>,
    pub(super) map_type: Option<MapType>,
    /// Sorted by name.
    pub(super) properties: Box<[Property]>,
    /// At most one of each kind.
    pub(super) keywords: Box<[Keyword]>,
}

/// A named field of an object.
#[derive(Debug)]
pub struct Property {
    pub(super) name: Box<str>,
    pub(super) schema: SchemaNode,
}

/// The `type` of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaType {
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
    /// Text.
    String,
    /// A number without a fraction; `1.0` is one.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value for server-side apply.
    Atomic,
    /// Items are unique.
    Set,
    /// Items are objects, identified by [`SchemaNode::list_map_keys`].
    Map,
}

/// `x-kubernetes-map-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// The map is one value for server-side apply.
    Atomic,
    /// Each field is a value of its own.
    Granular,
}

/// `additionalProperties`.
#[derive(Clone, Copy, Debug)]
pub enum AdditionalProperties<'s> {
    /// The keyword is absent.
    Absent,
    /// The keyword is `true` or `false`.
    Allowed(bool),
    /// Every field that is no property has this schema.
    Schema(&'s SchemaNode),
}

/// An entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationRule {
    /// The CEL expression, which must be true.
    pub rule: Box<str>,
    /// The message of a failure; empty means a default.
    pub message: Box<str>,
    /// A CEL expression for the message; empty means [`Self::message`].
    pub message_expression: Box<str>,
    /// The class of the error.
    pub reason: RuleReason,
    /// The path of the error, relative to the node; empty means the node itself.
    pub field_path: Box<str>,
    /// True if the rule also runs without an old value; `None` if the definition does not say.
    pub optional_old_self: Option<bool>,
}

/// The class of the error of a failed [`ValidationRule`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleReason {
    /// `FieldValueInvalid`.
    #[default]
    Invalid,
    /// `FieldValueForbidden`.
    Forbidden,
    /// `FieldValueRequired`.
    Required,
    /// `FieldValueDuplicate`.
    Duplicate,
}

/// A regular expression of Go's syntax, compiled when it is first used.
pub struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Result<Box<Regex>, Box<str>>>,
}

/// Keywords without a value of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const NULLABLE: Self = Self(1);
    pub(super) const PRESERVE_UNKNOWN_FIELDS: Self = Self(1 << 1);
    pub(super) const EMBEDDED_RESOURCE: Self = Self(1 << 2);
    pub(super) const INT_OR_STRING: Self = Self(1 << 3);
    pub(super) const UNIQUE_ITEMS: Self = Self(1 << 4);
    pub(super) const EXCLUSIVE_MINIMUM: Self = Self(1 << 5);
    pub(super) const EXCLUSIVE_MAXIMUM: Self = Self(1 << 6);

    pub(super) fn set(&mut self, flag: Self, is_set: bool) {
        if is_set {
            self.0 |= flag.0;
        }
    }

    fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// A keyword that most nodes lack.
#[derive(Debug)]
pub(super) enum Keyword {
    Items(Box<SchemaNode>),
    AdditionalSchema(Box<SchemaNode>),
    AdditionalAllowed(bool),
    Default(Box<Value>),
    ListMapKeys(Box<[Box<str>]>),
    Rules(Box<[ValidationRule]>),
    Format(Box<str>),
    Pattern(Box<Pattern>),
    Maximum(f64),
    Minimum(f64),
    MultipleOf(f64),
    MaxLength(i64),
    MinLength(i64),
    MaxItems(i64),
    MinItems(i64),
    MaxProperties(i64),
    MinProperties(i64),
    Required(Box<[Box<str>]>),
    Enum(Box<[Value]>),
    AllOf(Box<[SchemaNode]>),
    AnyOf(Box<[SchemaNode]>),
    OneOf(Box<[SchemaNode]>),
    Not(Box<SchemaNode>),
}

/// Defines an accessor of a node for a keyword.
macro_rules! keyword {
    ($(#[$doc:meta])* $name:ident, $keyword:ident($value:ident) => $result:expr, $type:ty) => {
        $(#[$doc])*
        pub fn $name(&self) -> Option<$type> {
            self.keywords.iter().find_map(|keyword| match keyword {
                Keyword::$keyword($value) => Some($result),
                #[allow(clippy::wildcard_enum_match_arm)]
                _ => None,
            })
        }
    };
}

impl SchemaNode {
    /// `type`; `None` if the node does not say, which only some nodes may.
    pub fn schema_type(&self) -> Option<SchemaType> {
        self.schema_type
    }

    /// `properties`, sorted by name.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// The schema of one of the [`Self::properties`].
    pub fn property(&self, name: &str) -> Option<&Self> {
        let found = self.properties.binary_search_by(|property| (*property.name).cmp(name)).ok()?;
        Some(&self.properties[found].schema)
    }

    /// The schema of a field, by `properties` or else by `additionalProperties`.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.property(name).or_else(|| self.additional_schema())
    }

    /// `additionalProperties`.
    pub fn additional_properties(&self) -> AdditionalProperties<'_> {
        for keyword in &self.keywords {
            #[allow(clippy::wildcard_enum_match_arm)]
            match keyword {
                Keyword::AdditionalSchema(schema) => return AdditionalProperties::Schema(schema),
                Keyword::AdditionalAllowed(allowed) => return AdditionalProperties::Allowed(*allowed),
                _ => {}
            }
        }
        AdditionalProperties::Absent
    }

    keyword!(
        /// The schema of `additionalProperties`; `None` if the keyword is absent or a boolean.
        additional_schema, AdditionalSchema(schema) => &**schema, &Self);
    keyword!(
        /// `items`.
        items, Items(schema) => &**schema, &Self);
    keyword!(
        /// `default`; never null.
        default, Default(value) => &**value, &Value);

    /// `nullable`.
    pub fn is_nullable(&self) -> bool {
        self.flags.has(Flags::NULLABLE)
    }

    /// `x-kubernetes-preserve-unknown-fields`.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.flags.has(Flags::PRESERVE_UNKNOWN_FIELDS)
    }

    /// `x-kubernetes-embedded-resource`.
    pub fn is_embedded_resource(&self) -> bool {
        self.flags.has(Flags::EMBEDDED_RESOURCE)
    }

    /// `x-kubernetes-int-or-string`.
    pub fn is_int_or_string(&self) -> bool {
        self.flags.has(Flags::INT_OR_STRING)
    }

    /// `x-kubernetes-list-type`; lists without one are atomic.
    pub fn list_type(&self) -> Option<ListType> {
        self.list_type
    }

    /// `x-kubernetes-map-type`; maps without one are granular.
    pub fn map_type(&self) -> Option<MapType> {
        self.map_type
    }

    /// `x-kubernetes-list-map-keys`.
    pub fn list_map_keys(&self) -> &[Box<str>] {
        self.list_map_keys_keyword().unwrap_or_default()
    }

    /// `x-kubernetes-validations`.
    pub fn validation_rules(&self) -> &[ValidationRule] {
        self.rules_keyword().unwrap_or_default()
    }

    /// `required`.
    pub fn required(&self) -> &[Box<str>] {
        self.required_keyword().unwrap_or_default()
    }

    /// `enum`; empty if any value is allowed.
    pub fn enum_values(&self) -> &[Value] {
        self.enum_keyword().unwrap_or_default()
    }

    /// `allOf`.
    pub fn all_of(&self) -> &[Self] {
        self.all_of_keyword().unwrap_or_default()
    }

    /// `anyOf`.
    pub fn any_of(&self) -> &[Self] {
        self.any_of_keyword().unwrap_or_default()
    }

    /// `oneOf`.
    pub fn one_of(&self) -> &[Self] {
        self.one_of_keyword().unwrap_or_default()
    }

    keyword!(
        /// `not`.
        not, Not(schema) => &**schema, &Self);
    keyword!(
        /// `format`, also if no release knows it.
        format, Format(format) => &**format, &str);
    keyword!(
        /// `pattern`.
        pattern, Pattern(pattern) => &**pattern, &Pattern);
    keyword!(
        /// `maximum`.
        maximum, Maximum(number) => *number, f64);
    keyword!(
        /// `minimum`.
        minimum, Minimum(number) => *number, f64);
    keyword!(
        /// `multipleOf`.
        multiple_of, MultipleOf(number) => *number, f64);
    keyword!(
        /// `maxLength`, in code points.
        max_length, MaxLength(count) => *count, i64);
    keyword!(
        /// `minLength`, in code points.
        min_length, MinLength(count) => *count, i64);
    keyword!(
        /// `maxItems`.
        max_items, MaxItems(count) => *count, i64);
    keyword!(
        /// `minItems`.
        min_items, MinItems(count) => *count, i64);
    keyword!(
        /// `maxProperties`.
        max_properties, MaxProperties(count) => *count, i64);
    keyword!(
        /// `minProperties`.
        min_properties, MinProperties(count) => *count, i64);

    /// `exclusiveMaximum`.
    pub fn is_maximum_exclusive(&self) -> bool {
        self.flags.has(Flags::EXCLUSIVE_MAXIMUM)
    }

    /// `exclusiveMinimum`.
    pub fn is_minimum_exclusive(&self) -> bool {
        self.flags.has(Flags::EXCLUSIVE_MINIMUM)
    }

    /// `uniqueItems`.
    pub fn has_unique_items(&self) -> bool {
        self.flags.has(Flags::UNIQUE_ITEMS)
    }
}

/// Accessors behind those that return a slice.
macro_rules! keyword_slice {
    ($name:ident, $keyword:ident, $type:ty) => {
        fn $name(&self) -> Option<&[$type]> {
            self.keywords.iter().find_map(|keyword| match keyword {
                Keyword::$keyword(values) => Some(&**values),
                #[allow(clippy::wildcard_enum_match_arm)]
                _ => None,
            })
        }
    };
}

impl SchemaNode {
    keyword_slice!(list_map_keys_keyword, ListMapKeys, Box<str>);
    keyword_slice!(rules_keyword, Rules, ValidationRule);
    keyword_slice!(required_keyword, Required, Box<str>);
    keyword_slice!(enum_keyword, Enum, Value);
    keyword_slice!(all_of_keyword, AllOf, Self);
    keyword_slice!(any_of_keyword, AnyOf, Self);
    keyword_slice!(one_of_keyword, OneOf, Self);
}

impl Property {
    /// The name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The schema of the field's value.
    pub fn schema(&self) -> &SchemaNode {
        &self.schema
    }
}

impl SchemaType {
    /// The name in schemas and error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    /// The expression as the definition has it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a text matches; the error is Go's, for a pattern that is not valid.
    pub fn is_match(&self, text: &str) -> Result<bool, &str> {
        let compile = || re2::compile(&self.text).map(Box::new).map_err(|error| error.to_string().into());
        match self.compiled.get_or_init(compile) {
            Ok(regex) => Ok(regex.is_match(text)),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.text, f)
    }
}
