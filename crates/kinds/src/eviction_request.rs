//! Eviction requests, and the evictions that serve them.

use object::KindRules;
use object::rules::StatusSubresource;

use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static EVICTION_REQUEST_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES },
    immutable_fields: &[fixed_field("spec.target"), fixed_field("spec.requester")],
    ..KindStrategy::DEFAULT
};

pub(crate) static EVICTION_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES },
    immutable_fields: &[fixed_field("spec.target")],
    ..KindStrategy::DEFAULT
};
