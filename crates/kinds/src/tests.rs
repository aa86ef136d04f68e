//! Tests over all kinds of the table.

mod conversions;
mod selectable_fields;
mod tables;
