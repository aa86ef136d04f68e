//! The types of built-in kinds in every release: fields, their shapes, how lists and maps are merged.
//!
//! One table for all releases, `schemas.txt`, is part of the program. Nothing of it is read before the first lookup, and
//! then once; a lookup is a binary search. [`Struct::of_kind`] is where to begin; everything reached from it is of the same
//! release.
//!
//! [`check`](mod@check) says what is wrong with a body, [`settle`](mod@settle) writes it as Kubernetes would; [`place`] is for
//! patches.

pub mod check;
pub mod place;
mod quantity;
pub(crate) mod same;
pub mod settle;
mod table;

use std::fmt;

use api::GroupVersionKind;

use crate::release::Release;
use table::{Table, Word};

pub(crate) use quantity::compare as compare_quantities;

pub use check::{WrongType, cannot_be_handled, check, strict_error};
pub use place::{Place, PlacedField};
pub use settle::{drop_unknown, settle};

/// A type made of fields, in one release.
#[derive(Clone, Copy)]
pub struct Struct {
    row: &'static table::Type,
    release: Release,
}

/// One field of a type, in one release.
#[derive(Clone, Copy)]
pub struct Field {
    row: &'static table::Field,
    home: Struct,
}

/// What a value looks like, with where it stands: the name of a string type is that of a package.
#[derive(Clone, Copy)]
pub struct Shape {
    row: &'static table::Shape,
    home: Struct,
}

/// The forms of values.
#[derive(Clone, Copy, Debug)]
pub enum Form {
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
    /// A special type: see [`Special`].
    Special(Special),
    /// A list of values of one shape.
    List(Shape),
    /// A map from text to values of one shape.
    Map(Shape),
    /// An object with known fields.
    Struct(Struct),
}

/// Types that are neither plain values nor made of fields: in Go each of them reads JSON by its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
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
    /// Any JSON: who manages which fields.
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

/// How two versions of a list or a map become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// As a whole.
    Atomic,
    /// Field by field: the usual way for maps.
    Granular,
    /// A list without duplicates, item by item.
    Set,
    /// A list of objects which these fields tell apart.
    Map(Keys),
}

/// The fields that tell the items of a list apart; never empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys(&'static str);

/// How a strategic merge patch treats a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchRule {
    /// Lists are merged, not replaced.
    pub is_merged: bool,
    /// Objects are replaced, not merged.
    pub is_replaced: bool,
    /// The patch may say which fields stay, and all others go.
    pub retains_keys: bool,
    /// The field that tells the items of a merged list apart; `None` for plain values.
    pub key: Option<&'static str>,
    /// As Kubernetes writes it: `merge,retainKeys`.
    pub strategy: &'static str,
}

impl Struct {
    /// The type of a kind that servers of this release know.
    pub fn of_kind(release: Release, kind: GroupVersionKind<&str>) -> Option<Self> {
        let found = Table::get().kind(kind.group, kind.version, kind.kind)?;
        Self::existing(found, release)
    }

    /// The type of this name in OpenAPI documents: `io.k8s.api.apps.v1.Deployment`.
    pub fn of_definition(release: Release, definition: &str) -> Option<Self> {
        let (package, name) = definition.rsplit_once('.')?;
        Self::existing(Table::get().named(package, name)?, release)
    }

    /// Every type of a release, by package and name.
    #[cfg(test)]
    pub(crate) fn all(release: Release) -> impl Iterator<Item = Self> {
        Table::get().types.iter().filter_map(move |row| Self::existing(row, release))
    }

    fn existing(row: &'static table::Type, release: Release) -> Option<Self> {
        row.releases.contains(release).then_some(Self { row, release })
    }

    /// The name alone: `DeploymentSpec`.
    pub fn name(self) -> &'static str {
        self.row.name
    }

    /// The name in OpenAPI documents.
    pub fn definition(self) -> String {
        format!("{}.{}", self.package(), self.row.name)
    }

    /// The package of Go in the form of OpenAPI documents: `io.k8s.api.apps.v1`.
    pub fn package(self) -> &'static str {
        Table::get().packages[self.row.package].name
    }

    /// The release it was asked for.
    pub fn release(self) -> Release {
        self.release
    }

    /// The kind that objects of this type say they are; `None` for a part of other types.
    pub fn kind(self) -> Option<GroupVersionKind<&'static str>> {
        let package = &Table::get().packages[self.row.package];
        let kind = GroupVersionKind { group: package.group, version: package.version, kind: self.row.name };
        self.row.is_kind.then_some(kind)
    }

    /// How two versions of it become one, if that is said.
    pub fn topology(self) -> Option<Topology> {
        self.row.topology
    }

    /// The field of this name.
    pub fn field(self, name: &str) -> Option<Field> {
        let fields = Table::get().fields_of(self.row);
        let first = fields.partition_point(|field| field.name < name);
        let forms = fields[first..].iter().take_while(|field| field.name == name);
        forms.filter_map(|row| self.existing_field(row)).next()
    }

    /// The fields, by name.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Table::get().fields_of(self.row).iter().filter_map(move |row| self.existing_field(row))
    }

    fn existing_field(self, row: &'static table::Field) -> Option<Field> {
        row.releases.contains(self.release).then_some(Field { row, home: self })
    }

    /// The last part of the package, which Go writes before a type's name.
    fn go_package(self) -> &'static str {
        self.package().rsplit('.').next().unwrap_or_default()
    }
}

impl Field {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.row.name
    }

    /// Whether it must be given.
    pub fn is_required(self) -> bool {
        self.row.is_required
    }

    /// What its value looks like.
    pub fn shape(self) -> Shape {
        Shape { row: &self.row.shape, home: self.home }
    }

    /// How two values of it become one, if that is said.
    pub fn topology(self) -> Option<Topology> {
        self.row.topology
    }

    /// How a strategic merge patch treats it, if not in the usual way.
    pub fn patch(self) -> Option<PatchRule> {
        self.row.patch
    }

    /// The declared default as JSON.
    pub fn default(self) -> Option<&'static str> {
        self.row.default
    }

    /// The numbers of the protobuf field, the outer message's first; more than one where JSON has a message inline, none
    /// for what protobuf does not carry.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        self.row.number.trim_end_matches('*').split('.').filter_map(|number| number.parse().ok())
    }

    /// Whether JSON has the field even if its value is zero: it is required, or a pointer in Go. Protobuf carries the zeros of
    /// all others too, which mean that nothing was given.
    pub fn keeps_zero(self) -> bool {
        self.row.is_required || self.is_pointer()
    }

    /// Whether it is a pointer in Go, which tells nothing and an empty value apart.
    pub(crate) fn is_pointer(self) -> bool {
        self.row.number.ends_with('*')
    }
}

impl Shape {
    /// The form of the value.
    pub fn form(self) -> Form {
        let at = |row: &'static table::Shape| Shape { row, home: self.home };
        match &self.row.word {
            Word::Text => Form::Text,
            Word::Int32 => Form::Int32,
            Word::Int64 => Form::Int64,
            Word::Double => Form::Double,
            Word::Bool => Form::Bool,
            Word::Bytes => Form::Bytes,
            Word::Special(special) => Form::Special(*special),
            Word::List(items) => Form::List(at(items)),
            Word::Map(values) => Form::Map(at(values)),
            Word::Struct(index) => {
                Form::Struct(Struct { row: &Table::get().types[*index], release: self.home.release })
            }
        }
    }

    /// What Go's decoder calls the type: `v1.PullPolicy`, `[]v1.Container`, `map[string]string`.
    pub fn go_name(self) -> String {
        let named = |name: &str| match name.contains('.') {
            true => name.to_owned(),
            false => format!("{}.{name}", self.home.go_package()),
        };
        if let Some(name) = self.row.name {
            return named(name);
        }
        match self.form() {
            Form::Text => "string".to_owned(),
            Form::Int32 => "int32".to_owned(),
            Form::Int64 => "int64".to_owned(),
            Form::Double => "float64".to_owned(),
            Form::Bool => "bool".to_owned(),
            Form::Bytes => "[]uint8".to_owned(),
            Form::Special(special) => special.go_name().to_owned(),
            Form::List(items) => format!("[]{}", items.go_name()),
            Form::Map(values) => {
                let key = self.row.key.map_or_else(|| "string".to_owned(), named);
                format!("map[{key}]{}", values.go_name())
            }
            Form::Struct(inner) => format!("{}.{}", inner.go_package(), inner.name()),
        }
    }
}

impl Special {
    /// Every one.
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
    fn go_name(self) -> &'static str {
        let definition = self.definition();
        let dots = definition.rmatch_indices('.').map(|(dot, _)| dot + 1);
        definition.get(dots.take(2).last().unwrap_or_default()..).unwrap_or_default()
    }
}

impl Keys {
    /// The names of the fields.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.split(',')
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Debug for Struct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.definition(), self.release)
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}: {}", self.home.name(), self.name(), self.shape().go_name())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.go_name())
    }
}

#[cfg(test)]
mod tests;
