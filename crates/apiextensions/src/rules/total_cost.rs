//! Estimated costs of rules: limits, cardinality, and the sum of a schema.

use api::FieldError;
use schema::structural::{AdditionalProperties, SchemaNode, SchemaType};

/// The most that one expression may be estimated to cost for all values of its node.
pub(super) const EXPRESSION_COST_MAX: u64 = 10_000_000;
/// The most that all expressions of a schema may be estimated to cost.
pub(super) const SCHEMA_COST_MAX: u64 = 100_000_000;
/// Expressions below one percent of the limit are not named as contributors.
const CONTRIBUTION_MIN: u64 = SCHEMA_COST_MAX / 100;
const CONTRIBUTORS_MAX: usize = 4;

/// How many values of a node an object can have; `None` if a list or map above has no limit.
pub(super) type Cardinality = Option<u64>;

/// The cardinality of the nodes directly below one.
pub(super) fn cardinality_below(schema: &SchemaNode, cardinality: Cardinality) -> Cardinality {
    let limit = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
    let factor = match schema.schema_type() {
        Some(SchemaType::Array) => limit(schema.max_items())?,
        Some(SchemaType::Object) => match schema.additional_properties() {
            AdditionalProperties::Absent => 1,
            AdditionalProperties::Allowed(_) | AdditionalProperties::Schema(_) => limit(schema.max_properties())?,
        },
        _ => 1,
    };
    Some(cardinality?.saturating_mul(factor))
}

/// The sum of the costs of a schema's expressions.
#[derive(Default)]
pub(super) struct TotalCost {
    total: u64,
    /// The most expensive expressions, by falling cost.
    contributors: Vec<(u64, String)>,
}

impl TotalCost {
    pub(super) fn add(&mut self, path: &str, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < CONTRIBUTION_MIN {
            return;
        }
        let at = self.contributors.partition_point(|(known, _)| *known >= cost);
        if at < CONTRIBUTORS_MAX {
            self.contributors.insert(at, (cost, path.to_owned()));
            self.contributors.truncate(CONTRIBUTORS_MAX);
        }
    }

    /// The errors if the sum exceeds the limit; `path` is that of the schema.
    pub(super) fn errors(&self, path: &str) -> Vec<FieldError> {
        if self.total <= SCHEMA_COST_MAX {
            return Vec::new();
        }
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let contributors = self.contributors.iter();
        let mut errors: Vec<_> = contributors.map(|(_, path)| FieldError::forbidden(path, detail)).collect();
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, excess_message(what, self.total, SCHEMA_COST_MAX)));
        errors
    }
}

/// How far a cost exceeds its limit.
pub(super) fn excess_message(what: &str, cost: u64, limit: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, \
         and maxLength where arrays, maps, and strings are declared)"
    )
}
