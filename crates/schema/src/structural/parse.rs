//! Reads the OpenAPI v3 form of a schema.
//!
//! A keyword that is null is absent. A keyword of a wrong JSON type is an error: kube-apiserver could not decode the
//! definition.

use serde_json::{Map, Value};

use super::StructuralSchema;
use super::node::{
    Flags, Keyword, ListType, MapType, Pattern, Property, RuleReason, SchemaNode, SchemaType, ValidationRule,
};

/// How deep schemas may nest. Every walk over a schema, or over a value beside it, is as deep at most.
pub(super) const SCHEMA_DEPTH_MAX: usize = 128;

/// Keywords with which Kubernetes refuses to build a structural schema.
const UNSUPPORTED: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// Why a schema cannot be compiled. Objects of the version cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct SchemaError {
    /// The path of the node, such as `openAPIV3Schema.properties[spec]`.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

impl StructuralSchema {
    /// Compiles the `openAPIV3Schema` of a version.
    pub fn from_json(schema: &Value) -> Result<Self, SchemaError> {
        let mut parser = Parser { path: "openAPIV3Schema".to_owned(), depth: 0 };
        Ok(Self { root: parser.node(schema)? })
    }
}

type Parsed<T> = Result<T, SchemaError>;

struct Parser {
    path: String,
    depth: usize,
}

impl Parser {
    fn error<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        Err(SchemaError { path: self.path.clone(), problem: problem.into() })
    }

    /// Parses a schema below the current one.
    fn child(&mut self, suffix: &str, schema: &Value) -> Parsed<SchemaNode> {
        if self.depth == SCHEMA_DEPTH_MAX {
            return self.error(format!("nests more than {SCHEMA_DEPTH_MAX} schemas"));
        }
        let length = self.path.len();
        self.path.push_str(suffix);
        self.depth += 1;
        let node = self.node(schema)?;
        self.depth -= 1;
        self.path.truncate(length);
        Ok(node)
    }

    fn node(&mut self, schema: &Value) -> Parsed<SchemaNode> {
        let Some(schema) = schema.as_object() else {
            return self.error("must be an object");
        };
        self.refuse_unsupported(schema)?;
        let mut keywords = Vec::new();
        self.structure(schema, &mut keywords)?;
        self.junctors(schema, &mut keywords)?;
        self.limits(schema, &mut keywords)?;
        self.extensions(schema, &mut keywords)?;
        Ok(SchemaNode {
            schema_type: self.schema_type(schema)?,
            flags: self.flags(schema)?,
            list_type: self.list_type(schema)?,
            map_type: self.map_type(schema)?,
            properties: self.properties(schema)?,
            keywords: keywords.into(),
        })
    }

    fn refuse_unsupported(&self, schema: &Map<String, Value>) -> Parsed<()> {
        for keyword in UNSUPPORTED {
            let is_set = match schema.get(keyword) {
                None | Some(Value::Null) => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Object(map)) => keyword == "additionalItems" || !map.is_empty(),
                Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => true,
            };
            if is_set {
                return self.error(format!("'{keyword}' is not supported"));
            }
        }
        Ok(())
    }

    fn structure(&mut self, schema: &Map<String, Value>, keywords: &mut Vec<Keyword>) -> Parsed<()> {
        match schema.get("items") {
            None | Some(Value::Null) => {}
            Some(Value::Array(_)) => return self.error("'items' must be a schema, but is an array"),
            Some(items) => keywords.push(Keyword::Items(Box::new(self.child(".items", items)?))),
        }
        match schema.get("additionalProperties") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(allowed)) => keywords.push(Keyword::AdditionalAllowed(*allowed)),
            Some(values) => {
                let values = self.child(".additionalProperties", values)?;
                keywords.push(Keyword::AdditionalSchema(Box::new(values)));
            }
        }
        match schema.get("default") {
            None | Some(Value::Null) => {}
            Some(default) => keywords.push(Keyword::Default(Box::new(default.clone()))),
        }
        Ok(())
    }

    fn properties(&mut self, schema: &Map<String, Value>) -> Parsed<Box<[Property]>> {
        let Some(schemas) = self.object(schema, "properties")? else { return Ok(Box::default()) };
        let mut properties = Vec::with_capacity(schemas.len());
        for (name, schema) in schemas {
            let schema = self.child(&format!(".properties[{name}]"), schema)?;
            properties.push(Property { name: name.as_str().into(), schema });
        }
        properties.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(properties.into())
    }

    fn junctors(&mut self, schema: &Map<String, Value>, keywords: &mut Vec<Keyword>) -> Parsed<()> {
        if let Some(all) = self.schemas(schema, "allOf")? {
            keywords.push(Keyword::AllOf(all));
        }
        if let Some(any) = self.schemas(schema, "anyOf")? {
            keywords.push(Keyword::AnyOf(any));
        }
        if let Some(one) = self.schemas(schema, "oneOf")? {
            keywords.push(Keyword::OneOf(one));
        }
        match schema.get("not") {
            None | Some(Value::Null) => {}
            Some(not) => keywords.push(Keyword::Not(Box::new(self.child(".not", not)?))),
        }
        Ok(())
    }

    fn schemas(&mut self, schema: &Map<String, Value>, keyword: &str) -> Parsed<Option<Box<[SchemaNode]>>> {
        let Some(schemas) = self.array(schema, keyword)? else { return Ok(None) };
        let schemas = schemas.iter().enumerate();
        let nodes = schemas.map(|(index, schema)| self.child(&format!(".{keyword}[{index}]"), schema));
        nodes.collect::<Parsed<Box<[_]>>>().map(Some)
    }

    fn limits(&self, schema: &Map<String, Value>, keywords: &mut Vec<Keyword>) -> Parsed<()> {
        for (keyword, build) in [
            ("maximum", Keyword::Maximum as fn(f64) -> Keyword),
            ("minimum", Keyword::Minimum),
            ("multipleOf", Keyword::MultipleOf),
        ] {
            keywords.extend(self.number(schema, keyword)?.map(build));
        }
        for (keyword, build) in [
            ("maxLength", Keyword::MaxLength as fn(i64) -> Keyword),
            ("minLength", Keyword::MinLength),
            ("maxItems", Keyword::MaxItems),
            ("minItems", Keyword::MinItems),
            ("maxProperties", Keyword::MaxProperties),
            ("minProperties", Keyword::MinProperties),
        ] {
            keywords.extend(self.integer(schema, keyword)?.map(build));
        }
        let format = self.text(schema, "format")?;
        keywords.extend(format.map(|format| Keyword::Format(format.into())));
        let pattern = self.text(schema, "pattern")?;
        keywords.extend(pattern.map(|pattern| Keyword::Pattern(Box::new(Pattern::new(pattern)))));
        keywords.extend(self.texts(schema, "required")?.map(Keyword::Required));
        let values = self.array(schema, "enum")?;
        keywords.extend(values.map(|values| Keyword::Enum(values.into())));
        Ok(())
    }

    fn extensions(&self, schema: &Map<String, Value>, keywords: &mut Vec<Keyword>) -> Parsed<()> {
        keywords.extend(self.texts(schema, "x-kubernetes-list-map-keys")?.map(Keyword::ListMapKeys));
        let Some(rules) = self.array(schema, "x-kubernetes-validations")? else { return Ok(()) };
        let rules = rules.iter().map(|rule| self.rule(rule)).collect::<Parsed<Box<[_]>>>()?;
        keywords.push(Keyword::Rules(rules));
        Ok(())
    }

    fn rule(&self, rule: &Value) -> Parsed<ValidationRule> {
        let Some(rule) = rule.as_object() else {
            return self.error("entries of 'x-kubernetes-validations' must be objects");
        };
        let text = |name| self.text(rule, name).map(|text| Box::from(text.unwrap_or_default()));
        let reason = match self.text(rule, "reason")? {
            Some("FieldValueForbidden") => RuleReason::Forbidden,
            Some("FieldValueRequired") => RuleReason::Required,
            Some("FieldValueDuplicate") => RuleReason::Duplicate,
            // Kubernetes maps every other reason to this one.
            Some(_) | None => RuleReason::Invalid,
        };
        Ok(ValidationRule {
            rule: text("rule")?,
            message: text("message")?,
            message_expression: text("messageExpression")?,
            reason,
            field_path: text("fieldPath")?,
            optional_old_self: self.boolean(rule, "optionalOldSelf")?,
        })
    }

    fn schema_type(&self, schema: &Map<String, Value>) -> Parsed<Option<SchemaType>> {
        Ok(Some(match self.text(schema, "type")? {
            None => return Ok(None),
            Some("object") => SchemaType::Object,
            Some("array") => SchemaType::Array,
            Some("string") => SchemaType::String,
            Some("integer") => SchemaType::Integer,
            Some("number") => SchemaType::Number,
            Some("boolean") => SchemaType::Boolean,
            Some(other) => return self.error(format!("unknown type {other:?}")),
        }))
    }

    fn flags(&self, schema: &Map<String, Value>) -> Parsed<Flags> {
        let mut flags = Flags::default();
        for (keyword, flag) in [
            ("nullable", Flags::NULLABLE),
            ("x-kubernetes-embedded-resource", Flags::EMBEDDED_RESOURCE),
            ("x-kubernetes-int-or-string", Flags::INT_OR_STRING),
            ("uniqueItems", Flags::UNIQUE_ITEMS),
            ("exclusiveMinimum", Flags::EXCLUSIVE_MINIMUM),
            ("exclusiveMaximum", Flags::EXCLUSIVE_MAXIMUM),
        ] {
            flags.set(flag, self.boolean(schema, keyword)? == Some(true));
        }
        let preserve = "x-kubernetes-preserve-unknown-fields";
        match self.boolean(schema, preserve)? {
            None => {}
            Some(true) => flags.set(Flags::PRESERVE_UNKNOWN_FIELDS, true),
            Some(false) => return self.error(format!("'{preserve}' must be true or undefined")),
        }
        Ok(flags)
    }

    /// List types of releases to come are read as absent.
    fn list_type(&self, schema: &Map<String, Value>) -> Parsed<Option<ListType>> {
        Ok(match self.text(schema, "x-kubernetes-list-type")? {
            Some("atomic") => Some(ListType::Atomic),
            Some("set") => Some(ListType::Set),
            Some("map") => Some(ListType::Map),
            Some(_) | None => None,
        })
    }

    fn map_type(&self, schema: &Map<String, Value>) -> Parsed<Option<MapType>> {
        Ok(match self.text(schema, "x-kubernetes-map-type")? {
            Some("atomic") => Some(MapType::Atomic),
            Some("granular") => Some(MapType::Granular),
            Some(_) | None => None,
        })
    }

    /// A text that is not empty, which is the same as absent.
    fn text<'v>(&self, object: &'v Map<String, Value>, keyword: &str) -> Parsed<Option<&'v str>> {
        match object.get(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                self.error(format!("'{keyword}' must be a string"))
            }
        }
    }

    fn boolean(&self, object: &Map<String, Value>, keyword: &str) -> Parsed<Option<bool>> {
        match object.get(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                self.error(format!("'{keyword}' must be a boolean"))
            }
        }
    }

    fn number(&self, object: &Map<String, Value>, keyword: &str) -> Parsed<Option<f64>> {
        match object.get(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => self.error(format!("'{keyword}' must be a number")),
            },
        }
    }

    /// An integer, also if it is written with a fraction of zero.
    fn integer(&self, object: &Map<String, Value>, keyword: &str) -> Parsed<Option<i64>> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let Some(number) = self.number(object, keyword)? else { return Ok(None) };
        match object.get(keyword).and_then(Value::as_i64) {
            Some(integer) => Ok(Some(integer)),
            #[allow(clippy::cast_possible_truncation)]
            None if number.fract() == 0.0 && number.abs() <= EXACT => Ok(Some(number as i64)),
            None => self.error(format!("'{keyword}' must be an integer")),
        }
    }

    fn object<'v>(&self, object: &'v Map<String, Value>, keyword: &str) -> Parsed<Option<&'v Map<String, Value>>> {
        match object.get(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map).filter(|map| !map.is_empty())),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                self.error(format!("'{keyword}' must be an object"))
            }
        }
    }

    /// An array that is not empty, which is the same as absent.
    fn array<'v>(&self, object: &'v Map<String, Value>, keyword: &str) -> Parsed<Option<&'v [Value]>> {
        match object.get(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.as_slice()).filter(|items| !items.is_empty())),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                self.error(format!("'{keyword}' must be an array"))
            }
        }
    }

    fn texts(&self, object: &Map<String, Value>, keyword: &str) -> Parsed<Option<Box<[Box<str>]>>> {
        let Some(items) = self.array(object, keyword)? else { return Ok(None) };
        let texts = items.iter().map(|item| item.as_str().map(Box::from)).collect::<Option<Box<[_]>>>();
        match texts {
            Some(texts) => Ok(Some(texts)),
            None => self.error(format!("entries of '{keyword}' must be strings")),
        }
    }
}
