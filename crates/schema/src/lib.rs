//! The model of types behind the kinds of an API: fields, value forms, how lists and maps merge.
//!
//! Pure, and without knowledge of any kind: a [`TypeTable`] comes in as text, and every function works on the [`StructType`]
//! that the caller looked up in it. A table spans several releases; [`Types`] is one release of it.
//!
//! A body goes through [`check_types`], [`normalize()`] and, if it is new, [`drop_unknown_fields`]. [`semantic_equality`]
//! compares two objects as Go would, [`SchemaCursor`] guides patches, [`protobuf`] decodes bodies, and [`openapi`] describes
//! types and operations to clients.

mod cursor;
pub mod normalize;
pub mod openapi;
pub mod protobuf;
mod quantity;
pub mod semantic_equality;
mod table;
pub mod type_check;
mod types;

pub use cursor::SchemaCursor;
pub use normalize::{drop_unknown_fields, normalize};
pub use quantity::compare_quantities;
pub use table::TypeTable;
pub use type_check::{TypeMismatchError, cannot_be_handled_message, check_types, strict_decoding_error};
pub use types::{ListMapKeys, PatchRule, SpecialType, StructField, StructType, Topology, TypeForm, Types, ValueType};

/// The table of built-in types, which the tests of the model run over.
#[cfg(test)]
pub(crate) fn built_in_types(minor: u8) -> Types<'static> {
    use std::sync::LazyLock;
    static TABLE: LazyLock<TypeTable> =
        LazyLock::new(|| TypeTable::parse(include_str!("../../kinds/src/types/schemas.txt")));
    TABLE.in_release(minor)
}
