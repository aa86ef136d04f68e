//! Evaluation: a walk over the program's nodes with a budget.

mod attribute;
mod call;
mod fold;

use std::sync::Arc;

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::function::Function;
use crate::library::authorizer::Authorizer;
use crate::ops;
use crate::program::{
    ConstantSet, ListNode, MapEntryNode, Node, ObjectKind, ObjectNode, Order, OrderOperator, Program,
};
use crate::runtime_cost::{LIST, MAP, STRUCT, traverse};
use crate::time::zone::TimeZones;
use crate::value::map::OwnedMap;
use crate::value::{Blob, List, Map, Text, Value};

pub(crate) use call::{Invocation, convert_constant};

/// Cost that one evaluation may reach; the limit of Kubernetes' API.
pub const DEFAULT_COST_LIMIT: u64 = 1_000_000;
/// Work per unit of cost: operations whose cost does not follow from what they do (nested equality, `lists.range`) are
/// bounded by this. One unit is about one element or eight bytes.
const FUEL_PER_COST: u64 = 8;
const MIN_FUEL: u64 = 100_000;

/// An object whose fields are computed when an expression first needs them, e.g. the `variables` of a policy.
///
/// The implementation keeps what it computed, and accounts for its cost.
pub trait LazyFields: Sync {
    /// The value of a field by its name in expressions; nothing if there is no such field.
    fn field(&self, name: &str) -> Option<Result<Value<'_>, EvalError>>;
}

/// The value of a variable.
#[derive(Clone)]
pub enum Input<'a> {
    /// Part of a document, viewed as the variable is declared.
    Json(&'a Json),
    /// An object of a document, viewed as the variable is declared.
    Object(&'a serde_json::Map<String, Json>),
    /// A value that was made elsewhere.
    Value(Value<'a>),
    /// Fields that are computed at their first use. Expressions can select them, but not use the object as a whole.
    Lazy(&'a dyn LazyFields),
}

impl std::fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::Json(json) => f.debug_tuple("Json").field(json).finish(),
            Input::Object(map) => f.debug_tuple("Object").field(map).finish(),
            Input::Value(value) => f.debug_tuple("Value").field(value).finish(),
            Input::Lazy(_) => f.write_str("Lazy"),
        }
    }
}

/// What an evaluation needs besides the program.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    /// Variables by name. A variable that is used but absent is an error of the evaluation.
    pub variables: &'a [(&'a str, Input<'a>)],
    /// Evaluation stops when its cost exceeds this.
    pub cost_limit: u64,
    /// Answers the checks of the `authorizer` variable.
    pub authorizer: Option<&'a dyn Authorizer>,
    /// Named time zones; without it only UTC and written offsets are known.
    pub time_zones: Option<&'a dyn TimeZones>,
}

impl<'a> Evaluation<'a> {
    /// An evaluation with the default cost limit.
    pub fn new(variables: &'a [(&'a str, Input<'a>)]) -> Self {
        Self { variables, cost_limit: DEFAULT_COST_LIMIT, authorizer: None, time_zones: None }
    }
}

impl std::fmt::Debug for Evaluation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluation").field("variables", &self.variables).field("cost_limit", &self.cost_limit).finish()
    }
}

/// The result of an evaluation and what it cost, which is also known for errors.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The value or why there is none.
    pub result: Result<Value<'a>, EvalError>,
    /// Cost in Kubernetes' units.
    pub cost: u64,
}

impl Program {
    /// Evaluates the expression. The result borrows from the program and the variables.
    pub fn evaluate<'a>(&'a self, evaluation: &Evaluation<'a>) -> Outcome<'a> {
        let mut context = Context::new(self, evaluation);
        let result = context.eval(&self.root);
        Outcome { result, cost: context.cost }
    }
}

pub(crate) type Evaluated<'a> = Result<Value<'a>, EvalError>;

pub(crate) struct Context<'a> {
    program: &'a Program,
    variables: &'a [(&'a str, Input<'a>)],
    locals: Vec<Value<'a>>,
    lazies: Vec<Option<Evaluated<'a>>>,
    cost: u64,
    limit: u64,
    fuel: u64,
    pub(crate) authorizer: Option<&'a dyn Authorizer>,
    pub(crate) time_zones: Option<&'a dyn TimeZones>,
}

impl<'a> Context<'a> {
    fn new(program: &'a Program, evaluation: &Evaluation<'a>) -> Self {
        let limit = evaluation.cost_limit;
        Self {
            program,
            variables: evaluation.variables,
            locals: vec![Value::Null; program.locals],
            lazies: vec![None; program.binds.len()],
            cost: 0,
            limit,
            fuel: limit.saturating_mul(FUEL_PER_COST).max(MIN_FUEL),
            authorizer: evaluation.authorizer,
            time_zones: evaluation.time_zones,
        }
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::cost_limit()) } else { Ok(()) }
    }

    /// Accounts for work that has no cost of its own.
    pub(crate) fn burn(&mut self, work: usize) -> Result<(), EvalError> {
        match self.fuel.checked_sub(work as u64) {
            Some(rest) => {
                self.fuel = rest;
                Ok(())
            }
            None => Err(EvalError::cost_limit()),
        }
    }

    /// The program follows the language's specification where Kubernetes differs.
    pub(crate) fn is_language(&self) -> bool {
        self.program.language
    }

    /// Work that is left.
    pub(crate) fn fuel(&self) -> u64 {
        self.fuel
    }

    pub(crate) fn equal(&mut self, a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
        ops::equal(a, b, &mut self.fuel)
    }

    pub(crate) fn set_contains(&mut self, set: &List<'_>, wanted: &Value<'_>) -> Result<bool, EvalError> {
        ops::set_contains(set, wanted, &mut self.fuel)
    }

    pub(crate) fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Const(value) => Ok(constant(value)),
            Node::Computed(computed) => {
                self.charge(computed.1)?;
                Ok(constant(&computed.0))
            }
            Node::Fail(error) => Err(error.clone()),
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::And(pair) => self.logic(&pair.0, &pair.1, false),
            Node::Or(pair) => self.logic(&pair.0, &pair.1, true),
            Node::Not(operand) => self.not(operand),
            Node::Equal(pair) => self.equality(&pair.0, &pair.1, true),
            Node::NotEqual(pair) => self.equality(&pair.0, &pair.1, false),
            Node::Order(order) => self.order(order),
            Node::Conditional(parts) => self.conditional(&parts.0, &parts.1, &parts.2),
            Node::Call(call) => self.call(call),
            Node::List(list) => self.list(list),
            Node::Map(entries) => self.map(entries),
            Node::Object(object) => self.object(object),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind(bind) => self.bind(bind.0, &bind.1),
            Node::InSet(set) => self.in_set(&set.value, &set.set),
            Node::OptionalOr(pair) => self.optional_or(&pair.0, &pair.1, false),
            Node::OptionalOrValue(pair) => self.optional_or(&pair.0, &pair.1, true),
        }
    }

    /// Operand of `?:` and index: the reference itself is free there, its qualifiers are not.
    fn eval_bare(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            _ => self.eval(node),
        }
    }

    /// `&&` and `||`: an operand that decides the result absorbs the other's error.
    fn logic(&mut self, left: &'a Node, right: &'a Node, decisive: bool) -> Evaluated<'a> {
        let mut failed = None;
        for operand in [left, right] {
            match self.eval(operand) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(EvalError::no_such_overload())),
                Err(error) if error.is_cost_limit() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn not(&mut self, operand: &'a Node) -> Evaluated<'a> {
        let value = self.eval(operand);
        self.charge_after(&value, 1)?;
        match value? {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// Charges even if there is an error, unless the budget is gone.
    fn charge_after(&mut self, value: &Evaluated<'a>, cost: u64) -> Result<(), EvalError> {
        match value {
            Err(error) if error.is_cost_limit() => Err(error.clone()),
            _ => self.charge(cost),
        }
    }

    /// Evaluates both operands; an error counts as a scalar for the cost.
    fn operands(&mut self, left: &'a Node, right: &'a Node) -> Result<(Evaluated<'a>, Evaluated<'a>), EvalError> {
        let left = self.eval(left);
        if let Err(error) = &left
            && error.is_cost_limit()
        {
            return Err(error.clone());
        }
        let right = self.eval(right);
        if let Err(error) = &right
            && error.is_cost_limit()
        {
            return Err(error.clone());
        }
        Ok((left, right))
    }

    fn equality(&mut self, left: &'a Node, right: &'a Node, equal: bool) -> Evaluated<'a> {
        let (left, right) = self.operands(left, right)?;
        let cost = match (&left, &right) {
            (Ok(Value::Int(_)), Ok(Value::Int(_))) | (Err(_), Err(_)) => 1,
            (Err(_), Ok(value)) | (Ok(value), Err(_)) => value.cost_size().min(1),
            (Ok(Value::Opaque(_)), Ok(_)) if equal => 1,
            (Ok(left), Ok(right)) => traverse(left.cost_size().min(right.cost_size())),
        };
        self.charge(cost)?;
        let (left, right) = (left?, right?);
        match self.equal(&left, &right) {
            Ok(same) => Ok(Value::Bool(same == equal)),
            // Not equal is whatever is not known to be equal.
            Err(error) if equal || error.is_cost_limit() => Err(error),
            Err(_) => Ok(Value::Bool(true)),
        }
    }

    fn order(&mut self, order: &'a Order) -> Evaluated<'a> {
        let (left, right) = self.operands(&order.left, &order.right)?;
        let cost = match (&left, &right) {
            (Ok(left), Ok(right)) if order.sized => traverse(left.cost_size().min(right.cost_size())),
            (Err(_), Ok(value)) | (Ok(value), Err(_)) if order.sized => value.cost_size().min(1),
            _ => 1,
        };
        self.charge(cost)?;
        let (left, right) = (left?, right?);
        let ordering = match ops::compare(&left, &right) {
            Ok(ordering) => ordering,
            Err(None) => return Err(EvalError::new(format!("no such overload: {}", operator_name(order.operator)))),
            Err(Some(error)) => return Err(error),
        };
        Ok(Value::Bool(match order.operator {
            OrderOperator::Less => ordering.is_lt(),
            OrderOperator::LessEquals => ordering.is_le(),
            OrderOperator::Greater => ordering.is_gt(),
            OrderOperator::GreaterEquals => ordering.is_ge(),
        }))
    }

    fn conditional(&mut self, condition: &'a Node, then: &'a Node, otherwise: &'a Node) -> Evaluated<'a> {
        let result = match self.eval(condition)? {
            Value::Bool(true) => self.eval_bare(then),
            Value::Bool(false) => self.eval_bare(otherwise),
            _ => Err(EvalError::no_such_overload()),
        };
        result.map(Value::flatten_optional)
    }

    fn list(&mut self, list: &'a ListNode) -> Evaluated<'a> {
        let mut items = Vec::with_capacity(list.elements.len());
        let mut failed = None;
        for (element, optional) in list.elements.iter().zip(&list.optional) {
            match self.eval(element) {
                Ok(Value::Optional(value)) if *optional => items.extend(value.map(|value| (*value).clone())),
                Ok(value) if *optional => {
                    let message = format!("cannot initialize optional list element from non-optional value {value}");
                    failed = Some(EvalError::new(message));
                    break;
                }
                Ok(value) => items.push(value),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.constructed(failed, LIST)?;
        self.burn(items.len())?;
        Ok(Value::list(items))
    }

    /// Charges for a constructor, also when an element failed.
    fn constructed(&mut self, failed: Option<EvalError>, cost: u64) -> Result<(), EvalError> {
        match failed {
            Some(error) if error.is_cost_limit() => Err(error),
            Some(error) => self.charge(cost).and(Err(error)),
            None => self.charge(cost),
        }
    }

    fn map(&mut self, entries: &'a [MapEntryNode]) -> Evaluated<'a> {
        let mut map = OwnedMap::default();
        let mut failed = None;
        for entry in entries {
            if let Err(error) = self.map_entry(&mut map, entry) {
                failed = Some(error);
                break;
            }
        }
        self.constructed(failed, MAP)?;
        self.burn(entries.len())?;
        Ok(Value::Map(Map::Owned(Arc::new(map))))
    }

    fn map_entry(&mut self, map: &mut OwnedMap<'a>, entry: &'a MapEntryNode) -> Result<(), EvalError> {
        let key = self.eval(&entry.key)?;
        let value = self.eval(&entry.value)?;
        if self.is_language() {
            refuse_key(map, &key)?;
        }
        match optional_entry(&key, value, entry.optional)? {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        }
        Ok(())
    }

    fn object(&mut self, object: &'a ObjectNode) -> Evaluated<'a> {
        let mut map = match &object.kind {
            ObjectKind::Declared(decl) => OwnedMap::for_object(Arc::clone(decl)),
            ObjectKind::Message(message) => OwnedMap::for_message(Arc::clone(message)),
            ObjectKind::WellKnown(_) => OwnedMap::default(),
        };
        let mut failed = None;
        for (name, node, optional) in &object.fields {
            let value = self.eval(node).and_then(|value| optional_entry(&Value::from(&**name), value, *optional));
            match value {
                Ok(Some(value)) if object.kind.keeps(name, &value) => map.insert(Value::from(&**name), value),
                Ok(_) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.constructed(failed, STRUCT)?;
        if let ObjectKind::WellKnown(well_known) = object.kind {
            return well_known.build(&map);
        }
        Ok(Value::Map(Map::Owned(Arc::new(map))))
    }

    fn bind(&mut self, bind: u32, body: &'a Node) -> Evaluated<'a> {
        self.lazies[bind as usize] = None;
        self.eval(body)
    }

    fn lazy(&mut self, bind: u32) -> Evaluated<'a> {
        let at = bind as usize;
        if self.lazies[at].is_none() {
            let program = self.program;
            let value = self.eval(&program.binds[at]);
            if let Err(error) = &value
                && error.is_cost_limit()
            {
                return value;
            }
            self.lazies[at] = Some(value);
        }
        self.lazies[at].clone().unwrap_or(Ok(Value::Null))
    }

    fn in_set(&mut self, value: &'a Node, set: &'a ConstantSet) -> Evaluated<'a> {
        let value = self.eval(value)?;
        Ok(Value::Bool(set.contains(&value)))
    }

    fn optional_or(&mut self, left: &'a Node, right: &'a Node, unwrap: bool) -> Evaluated<'a> {
        match self.eval(left)? {
            Value::Optional(None) => self.eval(right),
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            value => Ok(value),
        }
    }
}

/// The specification, unlike Kubernetes, has no keys of other types and no repeated keys.
fn refuse_key(map: &OwnedMap<'_>, key: &Value<'_>) -> Result<(), EvalError> {
    if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_)) {
        return Err(EvalError::new(format!("unsupported key type '{}'", key.type_name())));
    }
    if map.get(key).is_some() {
        return Err(EvalError::new(format!("repeated key: {key}")));
    }
    Ok(())
}

/// A constant of the program, text and bytes borrowed.
fn constant<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(text) => Value::String(Text::Borrowed(text)),
        Value::Bytes(bytes) => Value::Bytes(Blob::Borrowed(bytes)),
        _ => value.clone(),
    }
}

fn optional_entry<'a>(key: &Value<'_>, value: Value<'a>, optional: bool) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Value::Optional(value) => Ok(value.map(|value| (*value).clone())),
        value => {
            let message = format!("cannot initialize optional entry '{key}' from non-optional value {value}");
            Err(EvalError::new(message))
        }
    }
}

fn operator_name(operator: OrderOperator) -> &'static str {
    match operator {
        OrderOperator::Less => Function::Less.name(),
        OrderOperator::LessEquals => Function::LessEquals.name(),
        OrderOperator::Greater => Function::Greater.name(),
        OrderOperator::GreaterEquals => Function::GreaterEquals.name(),
    }
}

impl ConstantSet {
    fn contains(&self, value: &Value<'_>) -> bool {
        match value {
            Value::String(text) => self.strings.contains(&**text),
            Value::Int(value) => self.integers.contains(&i128::from(*value)),
            Value::Uint(value) => self.integers.contains(&i128::from(*value)),
            Value::Double(value) => self.doubles.contains(value),
            Value::Bool(value) => self.bools[usize::from(*value)],
            Value::Null => self.null,
            _ => false,
        }
    }
}
