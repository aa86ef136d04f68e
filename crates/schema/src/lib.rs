//! Model of API types: fields, value types, merge rules of lists and maps.
//!
//! The crate is pure and defines no kind: a [`TypeTable`] is parsed from text, and every function works on a
//! [`StructType`] from it. A table spans several releases; [`Types`] is one release of it.
//!
//! A request body passes through [`check_types`], [`normalize()`] and, for a new object, [`drop_unknown_fields`].
//! [`semantic_equality`] compares two objects as Go does, [`SchemaCursor`] guides patches, [`protobuf`] decodes bodies,
//! and [`openapi`] generates OpenAPI documents.
//!
//! Custom resources have [`structural`] schemas instead, compiled from their definitions.

mod cursor;
pub mod normalize;
pub mod openapi;
pub mod protobuf;
mod quantity;
pub mod semantic_equality;
pub mod structural;
mod table;
pub mod type_check;
mod types;

pub use cursor::SchemaCursor;
pub use normalize::{drop_unknown_fields, normalize};
pub use quantity::{compare_quantities, quantity_in_billionths, quantity_in_thousandths};
pub use table::TypeTable;
pub use type_check::{
    TypeMismatchError, cannot_be_handled_message, canonical_time, check_types, check_types_of_document,
    strict_decoding_error,
};
pub use types::{
    FieldUnion, ListMapKeys, PatchRule, SpecialType, StructField, StructType, Topology, TypeForm, Types, ValueType,
    ZeroEncoding,
};

/// The table of built-in types, for tests.
#[cfg(test)]
pub(crate) fn built_in_types(minor: u8) -> Types<'static> {
    use std::sync::LazyLock;
    static TABLE: LazyLock<TypeTable> =
        LazyLock::new(|| TypeTable::parse(include_str!("../../kinds/src/types/schemas.txt")));
    TABLE.in_release(minor)
}
