//! The table columns of custom resources.

use api::json::JsonObject;
use api::time::Time;
use object::table::cells::{AGE, NAME, time_since};
use object::table::{ColumnDefinition, TableColumn};
use serde_json::Value;

use crate::definition::{DefinitionVersion, PrinterColumn};
use crate::json_path::{JsonPath, PathValue};

/// A column of a version of a custom resource, or of its scale.
#[derive(Clone, Debug)]
pub struct CustomColumn {
    definition: PrinterColumn,
    /// `None` for the name of the object.
    path: Option<JsonPath>,
}

/// The columns of a version: the name, then the printer columns, by default the age.
///
/// A path that cannot be parsed ends the columns: its column and all after it are left out.
pub fn columns_of_version(version: &DefinitionVersion) -> Vec<CustomColumn> {
    match &*version.additional_printer_columns {
        [] => columns(std::iter::once(age())),
        printer_columns => columns(printer_columns.iter().cloned()),
    }
}

/// The columns of the `Scale` of a version.
pub fn columns_of_scale() -> Vec<CustomColumn> {
    let replicas = |name: &str, description: &str, json_path: &str| PrinterColumn {
        name: name.to_owned(),
        cell_type: "integer".to_owned(),
        format: String::new(),
        description: description.to_owned(),
        priority: 0,
        json_path: json_path.to_owned(),
    };
    columns([
        replicas("Desired", "Number of desired replicas", ".spec.replicas"),
        replicas("Available", "Number of actual replicas", ".status.replicas"),
        age(),
    ])
}

fn columns(printer_columns: impl IntoIterator<Item = PrinterColumn>) -> Vec<CustomColumn> {
    let name = PrinterColumn {
        name: NAME.name.to_owned(),
        cell_type: NAME.cell_type.to_owned(),
        format: NAME.format.to_owned(),
        description: NAME.description.to_owned(),
        priority: 0,
        json_path: ".metadata.name".to_owned(),
    };
    let mut columns = vec![CustomColumn { definition: name, path: None }];
    columns.extend(printer_columns.into_iter().map_while(|mut definition| {
        let path = JsonPath::parse(&definition.json_path).ok()?;
        if definition.description.is_empty() {
            definition.description =
                format!("Custom resource definition column (in JSONPath format): {}", definition.json_path);
        }
        Some(CustomColumn { definition, path: Some(path) })
    }));
    columns
}

fn age() -> PrinterColumn {
    PrinterColumn {
        name: AGE.name.to_owned(),
        cell_type: "date".to_owned(),
        format: String::new(),
        description: AGE.description.to_owned(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".to_owned(),
    }
}

impl TableColumn for CustomColumn {
    fn definition(&self) -> ColumnDefinition<'_> {
        let PrinterColumn { name, cell_type, format, description, priority, json_path: _ } = &self.definition;
        ColumnDefinition { name, cell_type, format, description, priority: *priority }
    }

    fn cell(&self, object: &JsonObject, now: Time) -> Value {
        match &self.path {
            None => object::unstructured::metadata_string(object, "name").into(),
            Some(path) => {
                path.first(object).map_or(Value::Null, |value| typed_cell(&self.definition.cell_type, value, now))
            }
        }
    }
}

/// The value as a cell of an OpenAPI type; null if the value is of another type.
fn typed_cell(cell_type: &str, value: PathValue<'_>, now: Time) -> Value {
    match cell_type {
        "string" => value.print().into(),
        "integer" => value.as_integer().or_else(|| value.as_float().map(truncate)).into(),
        #[expect(clippy::cast_precision_loss, reason = "the column asks for floats")]
        "number" => value.as_integer().map(|value| value as f64).or_else(|| value.as_float()).into(),
        "boolean" => value.as_bool().into(),
        "date" => value.as_text().map(|time| age_of(time, now)).into(),
        _ => Value::Null,
    }
}

/// Truncates like Go on amd64: the smallest integer stands for all floats out of range.
#[expect(clippy::cast_possible_truncation, reason = "floats out of range are excluded")]
fn truncate(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

/// The time since a timestamp; no timestamp is unknown, and text that is none is invalid.
fn age_of(time: &str, now: Time) -> String {
    match time {
        "" | "null" | "0001-01-01T00:00:00Z" => "<unknown>".to_owned(),
        time if time.parse::<Time>().is_err() => "<invalid>".to_owned(),
        time => time_since(time, now),
    }
}

#[cfg(test)]
mod tests;
