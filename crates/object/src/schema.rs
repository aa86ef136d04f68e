//! What this crate needs to know of a type's fields: how lists merge, and which fields there are at all.
//!
//! The tables themselves are the catalogue's; here is only the question.

/// Answers questions about the fields of types.
pub trait FieldSchema {
    /// What is known of a field of a type; `None` for a field that the type does not have.
    ///
    /// A map, such as labels, is a type that has every field.
    fn field(&self, type_ref: TypeRef, name: &str) -> Option<FieldInfo<'_>>;
}

/// A type in the schema's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeRef(pub u32);

/// What is known of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldInfo<'s> {
    /// How a strategic merge patch treats it.
    pub strategy: PatchStrategy,
    /// The field by which items of a list of objects are told apart.
    pub merge_key: Option<&'s str>,
    /// The type of the object, or of the items of the list; `None` for scalars and for objects without a schema.
    pub type_ref: Option<TypeRef>,
}

/// How a strategic merge patch treats a field. `retainKeys` needs no mention: the patch itself says so where it applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Objects merge, lists are replaced.
    #[default]
    Default,
    /// Lists merge too.
    Merge,
    /// Objects are replaced too.
    Replace,
}

/// A schema and a type in it, or nothing known from here on.
#[derive(Clone, Copy)]
pub struct SchemaCursor<'s> {
    schema: &'s dyn FieldSchema,
    type_ref: Option<TypeRef>,
}

impl<'s> SchemaCursor<'s> {
    /// A type of a schema.
    pub fn new(schema: &'s dyn FieldSchema, type_ref: TypeRef) -> Self {
        Self { schema, type_ref: Some(type_ref) }
    }

    /// What is known of a field, and what is known inside of it.
    pub(crate) fn field(self, name: &str) -> Option<(FieldInfo<'s>, Self)> {
        let field = self.schema.field(self.type_ref?, name)?;
        Some((field, Self { type_ref: field.type_ref, ..self }))
    }

    /// The same, with the least that is true of a field nobody knows.
    pub(crate) fn field_or_default(self, name: &str) -> (FieldInfo<'s>, Self) {
        self.field(name).unwrap_or((FieldInfo::default(), Self { type_ref: None, ..self }))
    }

    /// Whether anything is known here.
    pub(crate) fn is_typed(self) -> bool {
        self.type_ref.is_some()
    }
}

impl std::fmt::Debug for SchemaCursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchemaCursor").field("of", &self.type_ref).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The part of a pod that patches are tested with.
    pub(crate) struct TestSchema;

    pub(crate) const POD: TypeRef = TypeRef(0);
    const META: TypeRef = TypeRef(1);
    const LABELS: TypeRef = TypeRef(2);
    const SPEC: TypeRef = TypeRef(3);
    const CONTAINER: TypeRef = TypeRef(4);
    const PORT: TypeRef = TypeRef(5);
    const ENV: TypeRef = TypeRef(6);
    const VOLUME: TypeRef = TypeRef(7);
    const TOLERATION: TypeRef = TypeRef(8);
    const OWNER: TypeRef = TypeRef(9);
    const EMPTY_DIR: TypeRef = TypeRef(10);
    const STRATEGY: TypeRef = TypeRef(11);

    impl FieldSchema for TestSchema {
        fn field(&self, type_ref: TypeRef, name: &str) -> Option<FieldInfo<'_>> {
            let merged =
                |of, key| FieldInfo { strategy: PatchStrategy::Merge, merge_key: Some(key), type_ref: Some(of) };
            let object = |of| FieldInfo { type_ref: Some(of), ..FieldInfo::default() };
            Some(match (type_ref, name) {
                (POD, "metadata") => object(META),
                (POD, "spec") => object(SPEC),
                (META, "labels" | "annotations") => object(LABELS),
                (META, "finalizers") => FieldInfo { strategy: PatchStrategy::Merge, ..FieldInfo::default() },
                (META, "ownerReferences") => merged(OWNER, "uid"),
                (SPEC, "containers") => merged(CONTAINER, "name"),
                (SPEC, "volumes") => merged(VOLUME, "name"),
                (SPEC, "tolerations") => object(TOLERATION),
                (SPEC, "strategy") => object(STRATEGY),
                (SPEC, "selector") => FieldInfo { strategy: PatchStrategy::Replace, ..object(LABELS) },
                (CONTAINER, "ports") => merged(PORT, "containerPort"),
                (CONTAINER, "env") => merged(ENV, "name"),
                (VOLUME, "emptyDir") => object(EMPTY_DIR),
                (LABELS, _)
                | (POD, "kind")
                | (META, "name")
                | (SPEC, "nodeName")
                | (CONTAINER, "name" | "image" | "args")
                | (PORT, "containerPort" | "protocol")
                | (ENV, "name" | "value")
                | (VOLUME, "name" | "hostPath")
                | (TOLERATION, "key")
                | (OWNER, "uid" | "name")
                | (EMPTY_DIR, "medium")
                | (STRATEGY, "type" | "rollingUpdate") => FieldInfo::default(),
                _ => return None,
            })
        }
    }
}
