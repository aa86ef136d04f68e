//! The types of built-in kinds in every release.
//!
//! One table for all releases, `schemas.txt`, is part of the program; `cargo xtask schemas` makes it. The table is read once, at
//! the first lookup.

use std::sync::LazyLock;

use schema::{TypeTable, Types};

use crate::release::Release;

static TABLE: LazyLock<TypeTable> = LazyLock::new(|| TypeTable::parse(include_str!("types/schemas.txt")));

/// The built-in types of a release.
pub fn types_of(release: Release) -> Types<'static> {
    TABLE.in_release(release.minor())
}

#[cfg(test)]
mod tests;
