//! The `Table` form of objects: what `kubectl get` asks for and prints.
//!
//! Columns and cells are those of kube-apiserver, wide columns always included; only the descriptions, which no client
//! prints, are our own. Kinds without columns of their own show their name and when they were created.

mod admission;
mod apps;
mod batch;
mod cells;
mod cluster;
mod core;
mod events;
mod human_duration;
mod network;
mod pods;
mod storage;

use api::GroupKind;
use api::metadata::ListMeta;
use api::time::Time;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value, json};

use crate::partial_object_metadata;
use crate::rejection::Rejection;

use cells::NAME;

pub use human_duration::human_duration;

/// A column: what it is called, and how a cell is made from an object at an instant.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading; kubectl prints it in capitals.
    pub name: &'static str,
    /// The OpenAPI type of the cells.
    pub cell_type: &'static str,
    /// `name` for the column that identifies the object; else empty.
    pub format: &'static str,
    /// What it means.
    pub description: &'static str,
    /// 0 is always shown, 1 only in wide output.
    pub priority: i32,
    cell: fn(&Map<String, Value>, Time) -> Value,
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut column = serializer.serialize_struct("TableColumnDefinition", 5)?;
        column.serialize_field("name", self.name)?;
        column.serialize_field("type", self.cell_type)?;
        column.serialize_field("format", self.format)?;
        column.serialize_field("description", self.description)?;
        column.serialize_field("priority", &self.priority)?;
        column.end()
    }
}

/// What the rows carry of their objects, beside the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter; empty means absent.
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

/// Whether a table says what its columns are; the events of a watch do so once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnDefinitions {
    /// It does.
    Included,
    /// An earlier one did.
    Omitted,
}

/// How a table is wanted.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions<'a> {
    /// The kind of the objects.
    pub kind: GroupKind<&'a str>,
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub api_version: &'a str,
    /// What the rows carry.
    pub include_object: IncludeObject,
    /// Whether the columns are named.
    pub column_definitions: ColumnDefinitions,
    /// Now; ages count from here.
    pub now: Time,
}

/// Makes the table of some objects. `metadata` is that of the list, or the resourceVersion of the one object.
pub fn build_table<'o>(
    objects: impl IntoIterator<Item = &'o Map<String, Value>>,
    metadata: &ListMeta,
    options: &TableOptions<'_>,
) -> Value {
    let columns = columns_of(options.kind);
    let rows: Vec<Value> = objects.into_iter().map(|object| build_row(object, columns, options)).collect();
    let definitions = match options.column_definitions {
        ColumnDefinitions::Included => Some(columns),
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

fn build_row(object: &Map<String, Value>, columns: &[Column], options: &TableOptions<'_>) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| (column.cell)(object, options.now)).collect();
    let mut row = json!({ "cells": cells });
    if (options.kind.group, options.kind.kind) == ("", "Pod")
        && let Some(condition) = pods::completed_condition(object)
    {
        row["conditions"] = json!([condition]);
    }
    match options.include_object {
        IncludeObject::None => {}
        IncludeObject::Metadata => row["object"] = partial_object_metadata::object(object, options.api_version),
        IncludeObject::Object => row["object"] = Value::Object(object.clone()),
    }
    row
}

/// The columns of a kind.
pub fn columns_of(kind: GroupKind<&str>) -> &'static [Column] {
    let of_kind = match kind.group {
        "" => core::columns(kind.kind),
        "apps" | "autoscaling" | "policy" => apps::columns(kind.kind),
        "batch" => batch::columns(kind.kind),
        "events.k8s.io" => (kind.kind == "Event").then_some(events::EVENTS),
        "networking.k8s.io" | "discovery.k8s.io" => network::columns(kind.kind),
        "storage.k8s.io" | "resource.k8s.io" => storage::columns(kind.kind),
        "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io" => admission::columns(kind.kind),
        _ => cluster::columns(kind),
    };
    of_kind.unwrap_or(DEFAULT_COLUMNS)
}

/// The columns of kinds that have none of their own.
const DEFAULT_COLUMNS: &[Column] = &[
    NAME,
    Column { cell_type: "date", ..cells::string_column("Created At", "When it was created.", cells::created_at_cell) },
];

#[cfg(test)]
mod tests;
