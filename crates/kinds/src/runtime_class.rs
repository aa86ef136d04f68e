//! Runtime classes.

use object::KindRules;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_column};

use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_unconditional_update: false, ..RULES },
    immutable_fields: &[fixed_field("handler")],
    columns: RUNTIME_CLASSES,
    ..KindStrategy::DEFAULT
};

const RUNTIME_CLASSES: &[Column] =
    &[NAME, string_column("Handler", "What runs the containers.", |class, _| string_cell(class, &["handler"])), AGE];
