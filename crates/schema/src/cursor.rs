//! A cursor through an object and its schema, for strategic merge patches and for preserving fields of other releases.

use crate::types::{PatchRule, StructType, TypeForm, ValueType};

/// A position in an object: a struct, a map, or a value without schema.
#[derive(Clone, Copy, Debug)]
pub struct SchemaCursor<'t>(CursorPosition<'t>);

#[derive(Clone, Copy, Debug)]
enum CursorPosition<'t> {
    Struct(StructType<'t>),
    /// The type of the map's values.
    Map(ValueType<'t>),
    Untyped,
}

impl<'t> SchemaCursor<'t> {
    /// The root of an object of this type.
    pub fn new(kind: StructType<'t>) -> Self {
        Self(CursorPosition::Struct(kind))
    }

    /// Patch rule of a field and the position of its value; `None` for an unknown field. A map has every field.
    pub fn field(self, name: &str) -> Option<(PatchRule<'t>, Self)> {
        let field = match self.0 {
            CursorPosition::Struct(kind) => kind.field(name)?,
            CursorPosition::Map(values) => return Some((PatchRule::default(), Self::inside(values))),
            CursorPosition::Untyped => return None,
        };
        Some((field.patch_rule().unwrap_or_default(), Self::inside(field.value_type())))
    }

    /// Like [`Self::field`], with the default rule and no schema for an unknown field.
    pub fn field_or_default(self, name: &str) -> (PatchRule<'t>, Self) {
        self.field(name).unwrap_or((PatchRule::default(), Self(CursorPosition::Untyped)))
    }

    /// True if the position has a schema.
    pub fn is_typed(self) -> bool {
        !matches!(self.0, CursorPosition::Untyped)
    }

    /// The position of a value of this type, or of the items of a list.
    fn inside(value_type: ValueType<'t>) -> Self {
        match value_type.form() {
            TypeForm::Struct(inner) => Self::new(inner),
            TypeForm::Map(values) => Self(CursorPosition::Map(values)),
            TypeForm::List(items) => Self::inside(items),
            TypeForm::Text
            | TypeForm::Int32
            | TypeForm::Int64
            | TypeForm::Double
            | TypeForm::Bool
            | TypeForm::Bytes
            | TypeForm::Special(_) => Self(CursorPosition::Untyped),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::GroupVersionKind;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::built_in_types;

    #[track_caller]
    fn check_kind(kind: GroupVersionKind<&str>, path: &str, expected: &Expect) {
        let mut cursor = SchemaCursor::new(built_in_types(36).for_kind(kind).unwrap());
        let mut shown = "unknown".to_owned();
        for name in path.split('.') {
            let Some((rule, inside)) = cursor.field(name) else {
                expected.assert_eq("unknown");
                return;
            };
            let place = if inside.is_typed() { "typed" } else { "plain" };
            shown = format!("{} {:?} {place}", rule.strategy, rule.merge_key);
            cursor = inside;
        }
        expected.assert_eq(&shown);
    }

    #[track_caller]
    fn check(path: &str, expected: &Expect) {
        check_kind(GroupVersionKind { group: "", version: "v1", kind: "Pod" }, path, expected);
    }

    #[test]
    fn cursor_follows_fields() {
        check("spec", &expect![" None typed"]);
        check("spec.containers", &expect![[r#"merge Some("name") typed"#]]);
        check("spec.containers.ports", &expect![[r#"merge Some("containerPort") typed"#]]);
        check("spec.volumes", &expect![[r#"merge,retainKeys Some("name") typed"#]]);
        check("spec.containers.image", &expect![" None plain"]);
        check("spec.containers.nonsense", &expect!["unknown"]);
        check("metadata.finalizers", &expect!["merge None plain"]);
    }

    #[test]
    fn patch_rule_may_replace_objects() {
        let kind = GroupVersionKind { group: "policy", version: "v1", kind: "PodDisruptionBudget" };
        check_kind(kind, "spec.selector", &expect!["replace None typed"]);
    }

    #[test]
    fn map_has_every_field() {
        check("metadata.labels.whatever", &expect![" None plain"]);
        check("spec.containers.resources.limits.cpu", &expect![" None plain"]);
        check("metadata.labels.whatever.deeper", &expect!["unknown"]);
    }
}
