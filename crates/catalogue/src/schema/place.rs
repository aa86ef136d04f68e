//! Types as numbers, for whoever walks an object by a schema that it knows nothing of: a strategic merge patch, or the keeping
//! of fields that another release has stored.

use api::GroupVersionKind;

use super::table::{Shape, Table, Word};
use super::{Field, PatchRule, Struct};
use crate::release::Release;

/// A type with fields, or a map, as a number of this program's table. It means nothing to another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(u32);

/// A field of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedField {
    /// How a strategic merge patch treats it, if not in the usual way.
    pub patch: Option<PatchRule>,
    /// The place of the object, or of the items of the list; `None` for plain values and for what has no schema.
    pub inner: Option<Place>,
}

/// Set in the number of a map; the rest is the position of the field that has it.
const MAP: u32 = 1 << 31;

impl Place {
    /// The place of a kind that servers of this release know.
    pub fn of_kind(release: Release, kind: GroupVersionKind<&str>) -> Option<Self> {
        Some(Self::of_type(Table::get().position(Struct::of_kind(release, kind)?.row)))
    }

    /// The place with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        let table = Table::get();
        let (position, end) =
            if number & MAP == 0 { (number, table.types.len()) } else { (number ^ MAP, table.fields().len()) };
        ((position as usize) < end).then_some(Self(number))
    }

    /// The number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The field of this name in a release; a map has every field.
    pub fn field(self, release: Release, name: &str) -> Option<PlacedField> {
        let table = Table::get();
        let position = (self.0 & !MAP) as usize;
        if self.0 & MAP != 0 {
            let Word::Map(values) = &without_lists(&table.fields()[position].shape).word else { return None };
            return Some(PlacedField { patch: None, inner: Self::within(values, None) });
        }
        let home = Struct { row: &table.types[position], release };
        let field: Field = home.field(name)?;
        let inner = Self::within(&field.row.shape, table.field_position(field.row, home.row));
        Some(PlacedField { patch: field.patch(), inner })
    }

    fn of_type(position: usize) -> Self {
        Self(u32::try_from(position).expect("the table has some thousand types"))
    }

    /// A map is numbered by its field; a map of maps, which no type has, would have no place.
    fn within(shape: &Shape, field: Option<usize>) -> Option<Self> {
        match &without_lists(shape).word {
            Word::Struct(position) => Some(Self::of_type(*position)),
            Word::Map(_) => field.map(|position| Self(Self::of_type(position).0 | MAP)),
            Word::Text
            | Word::Int32
            | Word::Int64
            | Word::Double
            | Word::Bool
            | Word::Bytes
            | Word::Special(_)
            | Word::List(_) => None,
        }
    }
}

fn without_lists(mut shape: &Shape) -> &Shape {
    while let Word::List(items) = &shape.word {
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
        let mut place = Place::of_kind(Release::R36, kind);
        let mut shown = String::new();
        for name in path.split('.') {
            let field = place.and_then(|place| place.field(Release::R36, name));
            shown = match field {
                None => "unknown".to_owned(),
                Some(PlacedField { patch, inner }) => {
                    let patch = patch.map(|rule| format!("{} {:?}", rule.strategy, rule.key)).unwrap_or_default();
                    format!("{patch} {}", if inner.is_some() { "typed" } else { "plain" })
                }
            };
            place = field.and_then(|field| field.inner);
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn places_follow_the_fields() {
        check("spec", &expect![" typed"]);
        check("spec.containers", &expect![[r#"merge Some("name") typed"#]]);
        check("spec.containers.ports", &expect![[r#"merge Some("containerPort") typed"#]]);
        check("spec.volumes", &expect![[r#"merge,retainKeys Some("name") typed"#]]);
        check("spec.containers.image", &expect![" plain"]);
        check("spec.containers.nonsense", &expect!["unknown"]);
        check("metadata.finalizers", &expect!["merge None plain"]);
    }

    #[test]
    fn an_object_may_be_replaced_as_a_whole() {
        let kind = GroupVersionKind { group: "policy", version: "v1", kind: "PodDisruptionBudget" };
        let spec =
            Place::of_kind(Release::R36, kind).and_then(|budget| budget.field(Release::R36, "spec")?.inner).unwrap();
        let rule = spec.field(Release::R36, "selector").unwrap().patch.unwrap();
        assert_eq!((rule.is_replaced, rule.is_merged), (true, false));
    }

    #[test]
    fn a_map_has_every_field() {
        check("metadata.labels.whatever", &expect![" plain"]);
        check("spec.containers.resources.limits.cpu", &expect![" plain"]);
        check("metadata.labels.whatever.deeper", &expect!["unknown"]);
    }

    #[test]
    fn numbers_lead_back_to_their_place() {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
        let pod = Place::of_kind(Release::R36, kind).unwrap();
        assert_eq!(Place::from_number(pod.number()), Some(pod));
        let metadata = pod.field(Release::R36, "metadata").unwrap().inner.unwrap();
        let labels = metadata.field(Release::R36, "labels").unwrap().inner.unwrap();
        assert_eq!(Place::from_number(labels.number()), Some(labels));
        assert_eq!(Place::from_number(MAP - 1), None);
        assert_eq!(Place::from_number(u32::MAX), None);
    }
}
