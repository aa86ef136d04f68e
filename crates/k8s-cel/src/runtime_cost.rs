//! What a call costs at run time, by the sizes of its arguments.

use crate::error::EvalError;
use crate::function::Function;
use crate::library::Opaque;
use crate::value::Value;

/// Cost of text per byte or code point.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// Cost of a pattern per character.
pub(crate) const PATTERN: f64 = 0.25;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;
/// One authorization check: at most two fit into the limit of an expression.
pub(crate) const CHECK: u64 = 350_000;

/// How the cost of a call follows from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    Fixed(u64),
    /// The size of the first argument is traversed once.
    Traverse,
    /// Traversed and written.
    TraverseTwice,
    /// Both sizes are traversed.
    Both,
    /// One per element of the second argument.
    InList,
    Matches,
    Contains,
    /// All scalars within the first argument.
    Deep,
    /// The size of the result, twice.
    Result,
    /// A new list of the result's size.
    NewList,
    Flatten,
    /// Every element is compared with every other of the argument at this index.
    SelfCompare(usize),
    /// Every element of one list is compared with those of the other, this many times.
    Sets(u64),
    Selector,
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
}

impl CostRule {
    /// The cost is known only after the call.
    pub(crate) fn is_of_result(self) -> bool {
        matches!(self, CostRule::Result | CostRule::NewList)
    }

    pub(crate) fn of(function: Function, overload: &str) -> CostRule {
        use Function as F;
        match function {
            F::Check => CostRule::Fixed(CHECK),
            F::FieldSelector | F::LabelSelector => CostRule::Selector,
            F::IsSorted | F::Sum | F::ListMax | F::ListMin | F::IndexOf | F::LastIndexOf | F::Includes => {
                CostRule::Deep
            }
            F::ToUrl | F::EscapeKey | F::LowerAscii | F::UpperAscii | F::Substring | F::Trim => CostRule::Traverse,
            F::Replace | F::Split => CostRule::TraverseTwice,
            F::Join => CostRule::Result,
            F::Find | F::FindAll => CostRule::Matches,
            F::Cidr | F::IsIP | F::IsCIDR => CostRule::Traverse,
            F::Ip if overload == "cidr_ip" => CostRule::Fixed(1),
            F::Ip => CostRule::Traverse,
            F::IpIsCanonical => CostRule::TraverseTwice,
            F::ContainsIP => CostRule::ContainsIp { text: overload == "cidr_contains_ip_string" },
            F::ContainsCIDR => CostRule::ContainsCidr { text: overload == "cidr_contains_cidr_string" },
            F::Quantity | F::IsQuantity | F::Semver | F::IsSemver => CostRule::Traverse,
            F::Validate => CostRule::Validate,
            _ => Self::of_overload(overload),
        }
    }

    fn of_overload(overload: &str) -> CostRule {
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
            | "string_format" => CostRule::Traverse,
            "in_list" => CostRule::InList,
            "add_string" | "add_bytes" => CostRule::Both,
            "matches_string" => CostRule::Matches,
            "contains_string" => CostRule::Contains,
            "list_slice" | "lists_range" | "list_reverse" => CostRule::NewList,
            "list_flatten" | "list_flatten_int" => CostRule::Flatten,
            "list_distinct" => CostRule::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => CostRule::Sets(1),
            "list_sets_equivalent_list" => CostRule::Sets(2),
            _ if overload.ends_with("_sortByAssociatedKeys") => CostRule::SelfCompare(1),
            _ if overload.starts_with("list_") && overload.ends_with("_sort") => CostRule::SelfCompare(0),
            _ => CostRule::Fixed(1),
        }
    }

    /// The cost of a call with these arguments; what follows from the result is charged later.
    pub(crate) fn cost(self, args: &[Value<'_>]) -> Result<u64, EvalError> {
        let size = |at: usize| args.get(at).map_or(1, Value::cost_size);
        Ok(match self {
            CostRule::Fixed(cost) => cost,
            CostRule::Traverse => traverse(size(0)),
            CostRule::TraverseTwice => twice(size(0)),
            CostRule::Both => traverse(size(0).saturating_add(size(1))),
            CostRule::InList => size(1),
            CostRule::Matches => pattern(size(0), size(1)),
            CostRule::Contains => traverse(size(0)).saturating_mul(traverse(size(1))),
            CostRule::Deep => args.first().map_or(Ok(0), |value| deep(value, &mut 0))?,
            CostRule::Result | CostRule::NewList => 0,
            CostRule::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                // A negative depth makes the cost smaller, and below zero more than any limit.
                (size(0) as f64 * depth + (1 + LIST) as f64) as i64 as u64
            }
            CostRule::SelfCompare(at) => self_compare(args.get(at))?,
            CostRule::Sets(factor) => size(0).saturating_mul(size(1)).saturating_mul(factor).saturating_add(1),
            CostRule::Selector => selector(size(1)),
            CostRule::ContainsIp { text } => traverse(size(0) * 2) + if text { traverse(size(1)) } else { 0 },
            CostRule::ContainsCidr { text } => {
                traverse(size(0) * 2) + traverse(size(0)) + 1 + if text { traverse(size(1)) } else { 0 }
            }
            CostRule::Validate => match args.first() {
                Some(Value::Opaque(opaque)) => match &**opaque {
                    Opaque::Format(format) => pattern(size(1), format.max_pattern_size()),
                    _ => 1,
                },
                _ => 1,
            },
        })
    }
}

fn self_compare(value: Option<&Value<'_>>) -> Result<u64, EvalError> {
    let Some(Value::List(list)) = value else { return Ok(1 + LIST) };
    let mut factor = 2.0;
    if list.len() > 0 && matches!(list.get(0)?, Value::String(_) | Value::Bytes(_)) {
        factor += TRAVERSAL;
    }
    let size = list.len() as u64;
    Ok((size.saturating_mul(size) as f64 * factor) as u64 + 1 + LIST)
}

/// The cost of a call that follows from its result.
pub(crate) fn of_result(rule: CostRule, size: u64) -> u64 {
    if rule == CostRule::NewList { size + 1 + LIST } else { twice(size) }
}

/// `ceil(size * 0.1)` in the floating point arithmetic that decides limits upstream.
pub(crate) fn traverse(size: u64) -> u64 {
    (size as f64 * TRAVERSAL).ceil() as u64
}

pub(crate) fn twice(size: u64) -> u64 {
    (size as f64 * 2.0 * TRAVERSAL).ceil() as u64
}

fn pattern(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * TRAVERSAL).ceil() as u64;
    text.saturating_mul((pattern as f64 * PATTERN).ceil() as u64)
}

fn selector(length: u64) -> u64 {
    let requirements = (length as f64 * 0.5).ceil();
    LIST + traverse(length) + (requirements * (LIST + STRUCT) as f64).ceil() as u64
}

/// More scalars than this exceed every budget.
const MAX_DEEP: u64 = 100_000_000;

/// One per scalar, a tenth per byte of text. `visited` bounds the walk over lists that share elements.
fn deep(value: &Value<'_>, visited: &mut u64) -> Result<u64, EvalError> {
    *visited += 1;
    if *visited > MAX_DEEP {
        return Err(EvalError::cost_limit());
    }
    Ok(match value {
        Value::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Value::List(list) => {
            let mut cost = 0u64;
            for item in list.iter() {
                cost = cost.saturating_add(item.map_or(Ok(1), |item| deep(&item, visited))?);
            }
            cost
        }
        Value::Map(map) => {
            let mut cost = 0u64;
            for key in map.keys() {
                let value = map.find(&key).ok().flatten();
                let inner = value.map_or(Ok(1), |value| deep(&value, visited))?;
                cost = cost.saturating_add(deep(&key, visited)?).saturating_add(inner);
            }
            cost
        }
        _ => 1,
    })
}
