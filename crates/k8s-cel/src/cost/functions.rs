//! Estimated costs and result sizes of calls.

use super::{CostEstimate, Estimator, Path, Size, Step, union_entries};
use crate::ast::{ExprId, ExprKind, Literal};
use crate::runtime_cost::{CHECK, LIST, PATTERN, STRUCT, TRAVERSAL};
use crate::types::Type;

/// A call with one of its possible overloads.
pub(super) struct Call<'c> {
    pub(super) id: ExprId,
    pub(super) name: &'static str,
    pub(super) overload: &'static str,
    pub(super) target: Option<ExprId>,
    pub(super) args: &'c [ExprId],
}

/// Cost without arguments, and the size of the result where it is known.
type Estimate = (CostEstimate, Option<Size>);

const ONE: CostEstimate = CostEstimate::fixed(1);

impl<'e> Estimator<'e, '_> {
    pub(super) fn function(&mut self, call: &Call<'_>, args: &[CostEstimate]) -> Estimate {
        let sum = args.iter().fold(CostEstimate::default(), |sum, cost| sum.add(*cost));
        let known = self.list_library(call).or_else(|| self.kubernetes(call));
        match known.or_else(|| self.sized(call)) {
            Some((cost, size)) => (cost.add(sum), size),
            None => self.standard(call, args, sum),
        }
    }

    /// CEL's own list and set libraries.
    fn list_library(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let new_list =
            |size: Size, factor: f64| Some((size.scale(factor).add(ONE).add(CostEstimate::fixed(LIST)), Some(size)));
        match (call.overload, call.target) {
            ("list_slice", Some(target)) => {
                let size = self.node_size(target);
                let (start, end) = (self.int_literal(call.args[0], 0), self.int_literal(call.args[1], size.max));
                new_list(Size::fixed(end.wrapping_sub(start)), 1.0)
            }
            ("lists_range", None) => new_list(Size::fixed(self.int_literal(call.args[0], u64::MAX)), 1.0),
            ("list_reverse", Some(target)) => new_list(self.node_size(target), 1.0),
            ("list_flatten" | "list_flatten_int", Some(target)) => {
                let depth = call.args.first().map_or(1, |&arg| self.int_literal(arg, u64::MAX));
                new_list(self.node_size(target), depth as f64)
            }
            ("list_distinct", Some(target)) => {
                let size = self.node_size(target);
                new_list(size.multiply(size), 2.0)
            }
            ("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list", _) => {
                let factor = if call.overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
                let (a, b) = (self.node_size(call.args[0]), self.node_size(call.args[1]));
                Some((a.multiply(b).scale(factor).add(ONE), None))
            }
            (overload, Some(target)) => {
                let by_keys = overload.ends_with("_sortByAssociatedKeys");
                let plain = overload.starts_with("list_") && overload.ends_with("_sort");
                if !by_keys && !plain {
                    return None;
                }
                let size = self.node_size(if by_keys { call.args[0] } else { target });
                let text = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
                new_list(size.multiply(size), if text { 2.0 + TRAVERSAL } else { 2.0 })
            }
            _ => None,
        }
    }

    fn int_literal(&self, id: ExprId, default: u64) -> u64 {
        match self.ast.kind(id) {
            ExprKind::Literal(Literal::Int(value)) => u64::try_from(*value).unwrap_or(0),
            _ => default,
        }
    }

    fn node_size(&mut self, id: ExprId) -> Size {
        self.size_or_unknown(id)
    }

    /// Kubernetes' libraries, by function name.
    fn kubernetes(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let first = call.args.first().copied();
        let traversed = |size: Size| Some((size.scale(TRAVERSAL), None));
        match call.name {
            "check" => Some((CostEstimate::fixed(CHECK), None)),
            "fieldSelector" | "labelSelector" => {
                let length = self.node_size(first?);
                let requirements = length.scale(0.5).scale((LIST + STRUCT) as f64);
                Some((CostEstimate::fixed(LIST).add(length.scale(TRAVERSAL)).add(requirements), None))
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
                self.element_traversal(call.target?, call.name == "includes")
            }
            "url" | "jsonpatch.escapeKey" => {
                let size = self.node_size(first?);
                Some((size.scale(TRAVERSAL), Some(size)))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.node_size(call.target?);
                Some((size.scale(TRAVERSAL), Some(size)))
            }
            "replace" => self.replace(call),
            "split" => {
                let size = self.node_size(call.target?);
                let limit = call.args.get(1).and_then(|&arg| match self.ast.kind(arg) {
                    ExprKind::Literal(Literal::Int(limit)) => Some(*limit as u64),
                    _ => None,
                });
                Some((size.scale(2.0 * TRAVERSAL), Some(Size { min: 0, max: limit.unwrap_or(size.max) })))
            }
            "join" => self.join(call),
            "find" | "findAll" => {
                let size = self.node_size(call.target?);
                let text = size.add(Size::fixed(1)).scale(TRAVERSAL);
                let pattern = self.node_size(first?).scale(PATTERN);
                Some((text.multiply(pattern), Some(Size { min: 0, max: size.max })))
            }
            "ip" if call.overload == "cidr_ip" => Some((ONE, None)),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                traversed(self.node_size(first?))
            }
            "ip.isCanonical" => Some((self.node_size(first?).scale(2.0 * TRAVERSAL), None)),
            "containsIP" | "containsCIDR" => self.network(call),
            "validate" => Some((self.node_size(first?).scale(TRAVERSAL).scale(128.0 * PATTERN), None)),
            "_==_" => self.equality(call),
            _ => None,
        }
    }

    /// One per element, and the text of elements that are text.
    fn element_traversal(&mut self, target: ExprId, includes: bool) -> Option<Estimate> {
        let element = match self.type_of(target) {
            Type::List(element) | Type::Optional(element) => &**element,
            Type::Map(kv) => &kv.0,
            _ if includes => return Some((self.node_size(target), None)),
            _ => return Some((self.node_size(target).scale(TRAVERSAL), None)),
        };
        let mut each = ONE;
        if matches!(element, Type::String | Type::Bytes) {
            each = each.add(self.element_size(target).scale(TRAVERSAL));
        }
        Some((self.node_size(target).multiply(each), None))
    }

    /// The declared size of a list's elements.
    fn element_size(&self, list: ExprId) -> Size {
        let path = self.path(list);
        match path {
            Path::Empty => Size::UNKNOWN,
            Path::At(_) => self.path_size(self.append(path, Step::Element)).unwrap_or(Size::UNKNOWN),
        }
    }

    fn replace(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let size = self.node_size(call.target?);
        let (old, new) = (self.node_size(*call.args.first()?), self.node_size(*call.args.get(1)?));
        let pieces = |total: u64, piece: u64| (total as f64 / piece as f64).ceil() as u64;
        let (mut count, mut kept) = (Size::default(), Size::default());
        if old.min == 0 {
            count.max = size.max.saturating_add(1);
            kept.max = size.max;
        } else if new.max <= old.min {
            kept.max = size.max;
        } else {
            count.max = pieces(size.max, old.min);
        }
        if old.max == 0 {
            count.min = size.min.saturating_add(1);
            kept.min = size.min;
        } else if old.max <= new.min {
            kept.min = size.min;
        } else {
            count.min = pieces(size.min, old.max);
        }
        Some((size.scale(2.0 * TRAVERSAL), Some(count.multiply(new).add(kept))))
    }

    fn join(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let target = call.target?;
        let list = self.node_size(target);
        let mut size = match self.type_of(target) {
            Type::List(_) => list.multiply(self.element_size(target)),
            _ => Size::default(),
        };
        if let Some(&separator) = call.args.first() {
            let separators = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
            size = size.add(self.node_size(separator).multiply(separators));
        }
        Some((size.scale(TRAVERSAL), Some(size)))
    }

    fn network(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let address = Size { min: 4, max: 16 };
        let mut cost = address.add(address).scale(TRAVERSAL);
        if call.name == "containsCIDR" {
            cost = cost.add(address.scale(TRAVERSAL)).add(ONE);
        }
        if matches!(call.overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
            cost = cost.add(self.node_size(*call.args.first()?).scale(TRAVERSAL));
        }
        Some((cost, None))
    }

    /// Equality of library types.
    fn equality(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let (Type::Named(a), Type::Named(b)) = (self.type_of(call.args[0]), self.type_of(call.args[1])) else {
            return None;
        };
        if a != b {
            return None;
        }
        let cost = match *a {
            "kubernetes.NamedFormat" => CostEstimate { min: 1, max: 64 }.scale(TRAVERSAL),
            "kubernetes.URL" => {
                let max = self.size(call.args[1]).map_or(1, |size| size.max);
                CostEstimate { min: 1, max }.scale(TRAVERSAL)
            }
            _ => ONE,
        };
        Some((cost, None))
    }

    /// Standard functions whose cost follows from sizes.
    fn sized(&mut self, call: &Call<'_>) -> Option<Estimate> {
        let size = |estimator: &mut Self, at: usize| Some(estimator.node_size(*call.args.get(at)?));
        match call.overload {
            "string_format" => Some((self.node_size(call.target?).scale(TRAVERSAL), None)),
            "string_to_bytes" => {
                let size = size(self, 0)?;
                Some((size.scale(TRAVERSAL), Some(Size { min: size.min, max: size.max.wrapping_mul(4) })))
            }
            "bytes_to_string" => {
                let size = size(self, 0)?;
                Some((size.scale(TRAVERSAL), Some(Size { min: size.min / 4, max: size.max })))
            }
            "strings_quote" => {
                let size = size(self, 0)?;
                let result = Size { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                Some((size.scale(TRAVERSAL), Some(result)))
            }
            "starts_with_string" | "ends_with_string" => Some((size(self, 0)?.scale(TRAVERSAL), None)),
            "in_list" => Some((size(self, 1)?.scale(1.0), None)),
            "matches_string" => {
                let text = self.node_size(call.target?).add(Size::fixed(1)).scale(TRAVERSAL);
                Some((text.multiply(size(self, 0)?.scale(PATTERN)), None))
            }
            "contains_string" => {
                let text = self.node_size(call.target?).scale(TRAVERSAL);
                Some((text.multiply(size(self, 0)?.scale(TRAVERSAL)), None))
            }
            _ => None,
        }
    }

    /// Operators.
    fn standard(&mut self, call: &Call<'_>, costs: &[CostEstimate], sum: CostEstimate) -> Estimate {
        let args = call.args;
        match call.overload {
            "logical_or" | "logical_and" => {
                // The right operand may not be evaluated at all.
                (CostEstimate { min: costs[0].min, max: costs[0].add(costs[1]).max }, None)
            }
            "conditional" => {
                let size = self.node_size(args[1]).union(self.node_size(args[2]));
                let entries = union_entries(self.entries(args[1]), self.entries(args[2]));
                self.set_entries(call.id, entries);
                (costs[0].add(costs[1].union(costs[2])), Some(size))
            }
            "add_string" | "add_bytes" | "add_list" => {
                let size = self.node_size(args[0]).add(self.node_size(args[1]));
                let entries = union_entries(self.entries(args[0]), self.entries(args[1]));
                self.set_entries(call.id, entries);
                let cost = if call.overload == "add_list" { ONE } else { size.scale(TRAVERSAL) };
                (cost.add(sum), Some(size))
            }
            overload if is_comparison(overload) => {
                let most = self.node_size(args[0]).max.min(self.node_size(args[1]).max);
                let cost = CostEstimate { min: u64::from(most > 0), max: most }.scale(TRAVERSAL);
                (cost.add(sum), None)
            }
            _ => (ONE.add(sum), None),
        }
    }
}

fn is_comparison(overload: &str) -> bool {
    let ordered = ["less_", "greater_"].iter().any(|prefix| overload.starts_with(prefix));
    matches!(overload, "equals" | "not_equals")
        || (ordered && (overload.ends_with("_string") || overload.ends_with("_bytes")))
}
