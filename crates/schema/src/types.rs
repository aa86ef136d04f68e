//! Struct types, their fields, and value types.
//!
//! The entry point is [`Types::for_kind`]; everything reached from it belongs to the same table and release.

use std::fmt;

use api::GroupVersionKind;

use crate::table::{self, TypeTable, TypeWord};

/// The types of one release of a table.
#[derive(Clone, Copy)]
pub struct Types<'t> {
    pub(crate) table: &'t TypeTable,
    /// The minor version of the release.
    pub(crate) release: u8,
}

/// A type made of fields, in one release.
#[derive(Clone, Copy)]
pub struct StructType<'t> {
    row: &'t table::TypeRow,
    types: Types<'t>,
}

/// One field of a type, in one release.
#[derive(Clone, Copy)]
pub struct StructField<'t> {
    row: &'t table::FieldRow,
    owner: StructType<'t>,
}

/// The type of a value, and the type that has it as a field.
#[derive(Clone, Copy)]
pub struct ValueType<'t> {
    row: &'t table::ValueTypeRow,
    /// The type that has the field.
    pub(crate) owner: StructType<'t>,
}

/// The forms of values.
#[derive(Clone, Copy, Debug)]
pub enum TypeForm<'t> {
    /// Text.
    Text,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// True or false.
    Bool,
    /// Bytes, in base64.
    Bytes,
    /// A special type: see [`SpecialType`].
    Special(SpecialType),
    /// A list of values of one shape.
    List(ValueType<'t>),
    /// A map from text to values of one shape.
    Map(ValueType<'t>),
    /// An object with known fields.
    Struct(StructType<'t>),
}

/// Types with custom JSON encoding in Go, neither scalars nor structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialType {
    /// A number with a unit, `100m`: text, or a number.
    Quantity,
    /// A port, a percentage: a 32-bit integer or text.
    IntOrString,
    /// An instant to the second.
    Time,
    /// An instant to the microsecond.
    MicroTime,
    /// Any JSON, kept as it is.
    Raw,
    /// Any JSON: the field set of a managed fields entry.
    Fields,
    /// Any JSON: a default, an example, a value of an enumeration.
    Json,
    /// The body of a patch request; no field has this type.
    Patch,
    /// A schema or a list of schemas.
    SchemaOrArray,
    /// A schema, or whether anything is allowed.
    SchemaOrBool,
    /// A schema or a list of names.
    SchemaOrStrings,
}

/// Merge behaviour of a list or a map in server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology<'t> {
    /// Replaced as a whole.
    Atomic,
    /// Field by field: the usual way for maps.
    Granular,
    /// A list without duplicates, item by item.
    Set,
    /// A list of objects identified by these fields.
    Map(ListMapKeys<'t>),
}

/// How Go encodes a field that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroEncoding {
    /// The field is absent; so are empty texts, lists and maps, zero and false, unless the field is a pointer.
    Omitted,
    /// As the zero value: a struct with its own zero encodings, an empty text, 0, false; null for lists, maps and times.
    Zero,
    /// As null: a pointer.
    Null,
}

/// The fields that identify the items of a list; never empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ListMapKeys<'t>(pub(crate) &'t str);

/// Fields of which one may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldUnion<'t>(&'t str);

impl<'t> FieldUnion<'t> {
    /// The field that names the one that is set.
    pub fn discriminator(self) -> Option<&'t str> {
        self.0.split_once(' ').map(|(discriminator, _)| discriminator).filter(|name| *name != "-")
    }

    /// The fields, with their names in the discriminator.
    pub fn fields(self) -> impl Iterator<Item = (&'t str, &'t str)> {
        let fields = self.0.split_once(' ').map_or("", |(_, fields)| fields);
        fields.split(',').filter_map(|field| field.split_once('='))
    }
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchRule<'t> {
    /// Lists are merged, not replaced.
    pub merges_lists: bool,
    /// Objects are replaced, not merged.
    pub replaces_objects: bool,
    /// The patch may list the fields to retain; all others are removed.
    pub retains_keys: bool,
    /// Merge key of a list of objects; `None` for lists of scalars.
    pub merge_key: Option<&'t str>,
    /// In Kubernetes' notation: `merge,retainKeys`.
    pub strategy: &'t str,
}

impl<'t> Types<'t> {
    /// The type of a kind.
    pub fn for_kind(self, kind: GroupVersionKind<&str>) -> Option<StructType<'t>> {
        self.if_in_release(self.table.find_kind(kind.group, kind.version, kind.kind)?)
    }

    /// The type of this name in OpenAPI documents: `io.k8s.api.apps.v1.Deployment`.
    pub fn for_definition(self, definition: &str) -> Option<StructType<'t>> {
        let (package, name) = definition.rsplit_once('.')?;
        self.if_in_release(self.table.find_type(package, name)?)
    }

    /// Every type, by package and name.
    pub fn all(self) -> impl Iterator<Item = StructType<'t>> {
        self.table.types.iter().filter_map(move |row| self.if_in_release(row))
    }

    fn if_in_release(self, row: &'t table::TypeRow) -> Option<StructType<'t>> {
        row.releases.contains(self.release).then_some(StructType { row, types: self })
    }
}

impl<'t> StructType<'t> {
    /// The name alone: `DeploymentSpec`.
    pub fn name(self) -> &'t str {
        self.row.name
    }

    /// The name in OpenAPI documents.
    pub fn definition(self) -> String {
        format!("{}.{}", self.package(), self.row.name)
    }

    /// The package of Go in the form of OpenAPI documents: `io.k8s.api.apps.v1`.
    pub fn package(self) -> &'t str {
        self.types.table.packages[self.row.package].name
    }

    /// The kind of objects of this type; `None` if it only occurs inside of other types.
    pub fn kind(self) -> Option<GroupVersionKind<&'t str>> {
        let package = &self.types.table.packages[self.row.package];
        let kind = GroupVersionKind { group: package.group, version: package.version, kind: self.row.name };
        self.row.is_kind.then_some(kind)
    }

    /// Merge behaviour of the type, if declared.
    pub fn topology(self) -> Option<Topology<'t>> {
        self.row.topology
    }

    /// The fields of which one may be set, if declared and known in this release.
    pub fn union(self) -> Option<FieldUnion<'t>> {
        let unions = &self.types.table.packages[self.row.package].unions;
        let found = unions.iter().find(|row| row.name == self.row.name)?;
        found.releases.contains(self.types.release).then_some(FieldUnion(found.values))
    }

    /// The field of this name.
    pub fn field(self, name: &str) -> Option<StructField<'t>> {
        let fields = self.types.table.fields_of(self.row);
        let first = fields.partition_point(|field| field.name < name);
        let forms = fields[first..].iter().take_while(|field| field.name == name);
        forms.filter_map(|row| self.field_if_in_release(row)).next()
    }

    /// The fields, by name.
    pub fn fields(self) -> impl Iterator<Item = StructField<'t>> {
        self.types.table.fields_of(self.row).iter().filter_map(move |row| self.field_if_in_release(row))
    }

    fn field_if_in_release(self, row: &'t table::FieldRow) -> Option<StructField<'t>> {
        row.releases.contains(self.types.release).then_some(StructField { row, owner: self })
    }

    /// The last part of the package, which Go writes before a type's name.
    fn go_package(self) -> &'t str {
        self.package().rsplit('.').next().unwrap_or_default()
    }
}

impl<'t> StructField<'t> {
    /// The name in JSON.
    pub fn name(self) -> &'t str {
        self.row.name
    }

    /// True if the field is required.
    pub fn is_required(self) -> bool {
        self.row.is_required
    }

    /// Type of the value.
    pub fn value_type(self) -> ValueType<'t> {
        ValueType { row: &self.row.shape, owner: self.owner }
    }

    /// Merge behaviour of the field, if declared.
    pub fn topology(self) -> Option<Topology<'t>> {
        self.row.topology
    }

    /// Strategic merge patch rule; `None` for the default.
    pub fn patch_rule(self) -> Option<PatchRule<'t>> {
        self.row.patch
    }

    /// The declared default as JSON.
    pub fn default(self) -> Option<&'t str> {
        self.row.default
    }

    /// Protobuf field numbers, the outermost message's first: more than one where JSON inlines a message, none if
    /// protobuf lacks the field.
    pub fn protobuf_numbers(self) -> impl Iterator<Item = u32> {
        self.row.number.trim_end_matches('*').split('.').filter_map(|number| number.parse().ok())
    }

    /// True if JSON includes a zero that was set: Go always encodes the field, or it is a pointer. For other fields a
    /// zero in protobuf means absent.
    pub fn is_written_when_zero(self) -> bool {
        // A required number or boolean that Go may omit is a pointer.
        let is_required_pointer = || {
            let form = self.value_type().form();
            self.is_required() && matches!(form, TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double | TypeForm::Bool)
        };
        self.zero_encoding() != ZeroEncoding::Omitted || self.is_pointer() || is_required_pointer()
    }

    /// How Go encodes the field if it is not set.
    pub fn zero_encoding(self) -> ZeroEncoding {
        self.row.zero_encoding
    }

    /// True if the field is a pointer in Go, which distinguishes absent from zero.
    pub fn is_pointer(self) -> bool {
        self.row.number.ends_with('*')
    }
}

impl<'t> ValueType<'t> {
    /// The form of the value.
    pub fn form(self) -> TypeForm<'t> {
        let at = |row: &'t table::ValueTypeRow| ValueType { row, owner: self.owner };
        match &self.row.word {
            TypeWord::Text => TypeForm::Text,
            TypeWord::Int32 => TypeForm::Int32,
            TypeWord::Int64 => TypeForm::Int64,
            TypeWord::Double => TypeForm::Double,
            TypeWord::Bool => TypeForm::Bool,
            TypeWord::Bytes => TypeForm::Bytes,
            TypeWord::Special(special) => TypeForm::Special(*special),
            TypeWord::List(items) => TypeForm::List(at(items)),
            TypeWord::Map(values) => TypeForm::Map(at(values)),
            TypeWord::Struct(index) => {
                TypeForm::Struct(StructType { row: &self.owner.types.table.types[*index], types: self.owner.types })
            }
        }
    }

    /// The values of an enumeration, sorted; `None` if the text is any, or if the table does not know the values in this release.
    pub fn enum_values(self) -> Option<impl Iterator<Item = &'t str>> {
        let package = &self.owner.types.table.packages[self.owner.row.package];
        let found = package.enums.iter().find(|row| Some(row.name) == self.row.name)?;
        found.releases.contains(self.owner.types.release).then(|| found.values.split(','))
    }

    /// The name of Go's type, without its package; none for types without a name.
    pub fn go_name(self) -> Option<&'t str> {
        self.row.name
    }

    /// The type's name in Go's decoder: `v1.PullPolicy`, `[]v1.Container`, `map[string]string`.
    pub fn go_type_name(self) -> String {
        let named = |name: &str| match name.contains('.') {
            true => name.to_owned(),
            false => format!("{}.{name}", self.owner.go_package()),
        };
        if let Some(name) = self.row.name {
            return named(name);
        }
        match self.form() {
            TypeForm::Text => "string".to_owned(),
            TypeForm::Int32 => "int32".to_owned(),
            TypeForm::Int64 => "int64".to_owned(),
            TypeForm::Double => "float64".to_owned(),
            TypeForm::Bool => "bool".to_owned(),
            TypeForm::Bytes => "[]uint8".to_owned(),
            TypeForm::Special(special) => special.go_type_name().to_owned(),
            TypeForm::List(items) => format!("[]{}", items.go_type_name()),
            TypeForm::Map(values) => {
                let key = self.row.key.map_or_else(|| "string".to_owned(), named);
                format!("map[{key}]{}", values.go_type_name())
            }
            TypeForm::Struct(inner) => format!("{}.{}", inner.go_package(), inner.name()),
        }
    }
}

impl SpecialType {
    /// Every special type.
    pub const ALL: [Self; 11] = [
        Self::Quantity,
        Self::IntOrString,
        Self::Time,
        Self::MicroTime,
        Self::Raw,
        Self::Fields,
        Self::Json,
        Self::Patch,
        Self::SchemaOrArray,
        Self::SchemaOrBool,
        Self::SchemaOrStrings,
    ];

    /// The name in OpenAPI documents.
    pub fn definition(self) -> &'static str {
        match self {
            Self::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
            Self::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            Self::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            Self::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            Self::Raw => "io.k8s.apimachinery.pkg.runtime.RawExtension",
            Self::Fields => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
            Self::Json => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
            Self::Patch => "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
            Self::SchemaOrArray => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
            Self::SchemaOrBool => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
            Self::SchemaOrStrings => {
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
            }
        }
    }

    /// The last two parts of the definition are Go's package and name.
    fn go_type_name(self) -> &'static str {
        let definition = self.definition();
        let dots = definition.rmatch_indices('.').map(|(dot, _)| dot + 1);
        definition.get(dots.take(2).last().unwrap_or_default()..).unwrap_or_default()
    }
}

impl<'t> ListMapKeys<'t> {
    /// The names of the fields.
    pub fn names(self) -> impl Iterator<Item = &'t str> {
        self.0.split(',')
    }
}

impl fmt::Debug for ListMapKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Debug for StructType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (1.{})", self.definition(), self.types.release)
    }
}

impl fmt::Debug for StructField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}: {}", self.owner.name(), self.name(), self.value_type().go_type_name())
    }
}

impl fmt::Debug for ValueType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.go_type_name())
    }
}

#[cfg(test)]
mod tests;
