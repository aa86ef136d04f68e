//! Types as numbers, for whoever walks an object by a schema that it knows nothing of: a strategic merge patch, or the keeping
//! of fields that another release has stored.

use api::GroupVersionKind;

use super::table::{TypeTable, TypeWord, ValueTypeRow};
use super::{PatchRule, StructField, StructType};
use crate::release::Release;

/// A type with fields, or a map, as a number of this program's table. It means nothing to another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeIndex(u32);

/// A field of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedField {
    /// How a strategic merge patch treats it, if not in the usual way.
    pub patch: Option<PatchRule>,
    /// The place of the object, or of the items of the list; `None` for plain values and for what has no schema.
    pub inner: Option<TypeIndex>,
}

/// Set in the number of a map; the rest is the position of the field that has it.
const MAP_FLAG: u32 = 1 << 31;

impl TypeIndex {
    /// The place of a kind that servers of this release know.
    pub fn for_kind(release: Release, kind: GroupVersionKind<&str>) -> Option<Self> {
        Some(Self::for_position(TypeTable::get().position_of_type(StructType::for_kind(release, kind)?.row)))
    }

    /// The place with this number, if there is one.
    pub fn from_u32(number: u32) -> Option<Self> {
        let table = TypeTable::get();
        let (position, end) = if number & MAP_FLAG == 0 {
            (number, table.types.len())
        } else {
            (number ^ MAP_FLAG, table.fields().len())
        };
        ((position as usize) < end).then_some(Self(number))
    }

    /// The number.
    pub fn as_u32(self) -> u32 {
        self.0
    }

    /// The field of this name in a release; a map has every field.
    pub fn field(self, release: Release, name: &str) -> Option<IndexedField> {
        let table = TypeTable::get();
        let position = (self.0 & !MAP_FLAG) as usize;
        if self.0 & MAP_FLAG != 0 {
            let TypeWord::Map(values) = &strip_lists(&table.fields()[position].shape).word else { return None };
            return Some(IndexedField { patch: None, inner: Self::for_value_type(values, None) });
        }
        let home = StructType { row: &table.types[position], release };
        let field: StructField = home.field(name)?;
        let inner = Self::for_value_type(&field.row.shape, table.position_of_field(field.row, home.row));
        Some(IndexedField { patch: field.patch_rule(), inner })
    }

    fn for_position(position: usize) -> Self {
        Self(u32::try_from(position).expect("the table has some thousand types"))
    }

    /// A map is numbered by its field; a map of maps, which no type has, would have no place.
    fn for_value_type(shape: &ValueTypeRow, field: Option<usize>) -> Option<Self> {
        match &strip_lists(shape).word {
            TypeWord::Struct(position) => Some(Self::for_position(*position)),
            TypeWord::Map(_) => field.map(|position| Self(Self::for_position(position).0 | MAP_FLAG)),
            TypeWord::Text
            | TypeWord::Int32
            | TypeWord::Int64
            | TypeWord::Double
            | TypeWord::Bool
            | TypeWord::Bytes
            | TypeWord::Special(_)
            | TypeWord::List(_) => None,
        }
    }
}

fn strip_lists(mut shape: &ValueTypeRow) -> &ValueTypeRow {
    while let TypeWord::List(items) = &shape.word {
        shape = items;
    }
    shape
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &Expect) {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
        let mut place = TypeIndex::for_kind(Release::R36, kind);
        let mut shown = String::new();
        for name in path.split('.') {
            let field = place.and_then(|place| place.field(Release::R36, name));
            shown = match field {
                None => "unknown".to_owned(),
                Some(IndexedField { patch, inner }) => {
                    let patch = patch.map(|rule| format!("{} {:?}", rule.strategy, rule.merge_key)).unwrap_or_default();
                    format!("{patch} {}", if inner.is_some() { "typed" } else { "plain" })
                }
            };
            place = field.and_then(|field| field.inner);
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn type_index_follows_fields() {
        check("spec", &expect![" typed"]);
        check("spec.containers", &expect![[r#"merge Some("name") typed"#]]);
        check("spec.containers.ports", &expect![[r#"merge Some("containerPort") typed"#]]);
        check("spec.volumes", &expect![[r#"merge,retainKeys Some("name") typed"#]]);
        check("spec.containers.image", &expect![" plain"]);
        check("spec.containers.nonsense", &expect!["unknown"]);
        check("metadata.finalizers", &expect!["merge None plain"]);
    }

    #[test]
    fn patch_rule_may_replace_objects() {
        let kind = GroupVersionKind { group: "policy", version: "v1", kind: "PodDisruptionBudget" };
        let spec = TypeIndex::for_kind(Release::R36, kind)
            .and_then(|budget| budget.field(Release::R36, "spec")?.inner)
            .unwrap();
        let rule = spec.field(Release::R36, "selector").unwrap().patch.unwrap();
        assert_eq!((rule.replaces_objects, rule.merges_lists), (true, false));
    }

    #[test]
    fn map_type_index_has_every_field() {
        check("metadata.labels.whatever", &expect![" plain"]);
        check("spec.containers.resources.limits.cpu", &expect![" plain"]);
        check("metadata.labels.whatever.deeper", &expect!["unknown"]);
    }

    #[test]
    fn type_index_round_trips_through_u32() {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
        let pod = TypeIndex::for_kind(Release::R36, kind).unwrap();
        assert_eq!(TypeIndex::from_u32(pod.as_u32()), Some(pod));
        let metadata = pod.field(Release::R36, "metadata").unwrap().inner.unwrap();
        let labels = metadata.field(Release::R36, "labels").unwrap().inner.unwrap();
        assert_eq!(TypeIndex::from_u32(labels.as_u32()), Some(labels));
        assert_eq!(TypeIndex::from_u32(MAP_FLAG - 1), None);
        assert_eq!(TypeIndex::from_u32(u32::MAX), None);
    }
}
