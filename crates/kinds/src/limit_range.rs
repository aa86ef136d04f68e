//! Limit ranges.

use api::json::JsonObject;
use object::KindRules;
use serde_json::Value;

use crate::fields::{object_field_mut, string_field};
use crate::strategy::{KindStrategy, RULES};

pub(crate) static STRATEGY: KindStrategy =
    KindStrategy { rules: KindRules { allows_create_on_update: true, ..RULES }, ..KindStrategy::DEFAULT };

/// For containers the default limit is the maximum; the default request is the default limit, else the minimum.
pub(crate) fn set_limit_range_item_defaults(item: &mut JsonObject) {
    if string_field(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(source)) = item.get(from).cloned() else { continue };
        let Some(target) = object_field_mut(item, to) else { continue };
        for (name, quantity) in source {
            target.entry(name).or_insert(quantity);
        }
    }
}
