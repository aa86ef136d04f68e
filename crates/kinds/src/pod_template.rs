//! The kind `PodTemplate`.

use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{NAME, string_column};
use object::table::{Column, cells};

use crate::pod::validation::check_pod_template;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::workload::{CONTAINERS, IMAGES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..LENIENT_RULES },
    returns_deleted_object: true,
    validate: |object| check_pod_template(object.at("template")),
    columns: POD_TEMPLATES,
    ..KindStrategy::DEFAULT
};

const POD_TEMPLATES: &[Column] = &[
    NAME,
    Column { priority: 0, ..CONTAINERS },
    Column { priority: 0, ..IMAGES },
    string_column("Pod Labels", "The labels of its pods.", |template, _| {
        cells::labels_cell(template, &["template", "metadata", "labels"])
    }),
];
