//! The `Table` form of objects, which `kubectl get` requests and prints.
//!
//! The caller passes the columns of a kind; [`cells`] has common columns and helpers. Kinds without columns of their
//! own show name and creation time.

pub mod cells;
mod human_duration;

use api::json::JsonObject;
use api::metadata::ListMeta;
use api::time::Time;
use serde::Serialize;
use serde_json::{Value, json};

use crate::partial_object_metadata;
use crate::rejection::Rejection;

use cells::NAME;

pub use human_duration::human_duration;

/// A column: its definition for clients, and its cells.
pub trait TableColumn {
    /// What clients see of the column.
    fn definition(&self) -> ColumnDefinition<'_>;

    /// Computes the cell of an object; the time is the current one, for ages.
    fn cell(&self, object: &JsonObject, now: Time) -> Value;
}

/// A `TableColumnDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnDefinition<'a> {
    /// Heading; kubectl prints it in capitals.
    pub name: &'a str,
    /// OpenAPI type of the cells.
    #[serde(rename = "type")]
    pub cell_type: &'a str,
    /// `name` for the column that identifies the object; else mostly empty.
    pub format: &'a str,
    /// Description for clients; kubectl does not print it.
    pub description: &'a str,
    /// 0 is always shown, more only in wide output.
    pub priority: i32,
}

/// A column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading; kubectl prints it in capitals.
    pub name: &'static str,
    /// OpenAPI type of the cells.
    pub cell_type: &'static str,
    /// `name` for the column that identifies the object; else empty.
    pub format: &'static str,
    /// Description for clients; kubectl does not print it.
    pub description: &'static str,
    /// 0 is always shown, 1 only in wide output.
    pub priority: i32,
    /// Computes the cell of an object; the time is the current one, for ages.
    pub cell: fn(&JsonObject, Time) -> Value,
}

impl TableColumn for Column {
    fn definition(&self) -> ColumnDefinition<'_> {
        let Self { name, cell_type, format, description, priority, cell: _ } = *self;
        ColumnDefinition { name, cell_type, format, description, priority }
    }

    fn cell(&self, object: &JsonObject, now: Time) -> Value {
        (self.cell)(object, now)
    }
}

/// Part of the object that a row includes besides its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Cells only.
    None,
    /// A `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the `includeObject` parameter; empty means the default.
    pub fn parse(value: &str) -> Result<Self, Rejection> {
        match value {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => Err(Rejection::BadRequest(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Whether a table includes column definitions; in a watch only the first event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnDefinitions {
    /// The table includes them.
    Included,
    /// An earlier event of the watch included them.
    Omitted,
}

/// Options of [`build_table`].
#[derive(Clone, Copy, Debug)]
pub struct TableOptions<'a, C = Column> {
    /// Columns of the kind.
    pub columns: &'a [C],
    /// Computes the condition of a row, such as `Completed`; `None` for no condition.
    pub row_condition: fn(&JsonObject) -> Option<Value>,
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub api_version: &'a str,
    /// Part of the object that each row includes.
    pub include_object: IncludeObject,
    /// Whether the table includes column definitions.
    pub column_definitions: ColumnDefinitions,
    /// Current time, for ages.
    pub now: Time,
}

impl<'a, C> TableOptions<'a, C> {
    /// The same options with other columns.
    pub fn with_columns<D>(self, columns: &'a [D]) -> TableOptions<'a, D> {
        let Self { columns: _, row_condition, api_version, include_object, column_definitions, now } = self;
        TableOptions { columns, row_condition, api_version, include_object, column_definitions, now }
    }
}

/// Builds a `Table`. `metadata` is that of the list or, for a single object, its resourceVersion.
pub fn build_table<'o>(
    objects: impl IntoIterator<Item = &'o JsonObject>,
    metadata: &ListMeta,
    options: &TableOptions<'_, impl TableColumn>,
) -> Value {
    let rows: Vec<Value> = objects.into_iter().map(|object| build_row(object, options)).collect();
    let definitions: Option<Vec<ColumnDefinition<'_>>> = match options.column_definitions {
        ColumnDefinitions::Included => Some(options.columns.iter().map(TableColumn::definition).collect()),
        ColumnDefinitions::Omitted => None,
    };
    json!({
        "kind": "Table",
        "apiVersion": options.api_version,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn build_row(object: &JsonObject, options: &TableOptions<'_, impl TableColumn>) -> Value {
    let cells: Vec<Value> = options.columns.iter().map(|column| column.cell(object, options.now)).collect();
    let mut row = json!({ "cells": cells });
    if let Some(condition) = (options.row_condition)(object) {
        row["conditions"] = json!([condition]);
    }
    match options.include_object {
        IncludeObject::None => {}
        IncludeObject::Metadata => row["object"] = partial_object_metadata::object(object, options.api_version),
        IncludeObject::Object => row["object"] = Value::Object(object.clone()),
    }
    row
}

/// Columns of kinds that define none.
pub const DEFAULT_COLUMNS: &[Column] = &[
    NAME,
    Column { cell_type: "date", ..cells::string_column("Created At", "When it was created.", cells::created_at_cell) },
];
