//! What every kind goes through, over the real table of kinds.

mod conversions;
mod selectable_fields;
mod tables;
