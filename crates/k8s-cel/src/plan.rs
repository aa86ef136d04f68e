//! From the checked tree to a program: resolved slots, merged attribute chains, folded constants, compiled patterns.

mod constants;

use std::sync::Arc;

use regex::Regex;

use crate::ast::{Ast, Call, Comprehension, ExprId, ExprKind, FoldKind, Literal};
use crate::check::{Checked, Reference};
use crate::cost::{self, CostEstimate};
use crate::env::Environment;
use crate::error::EvalError;
use crate::function::Function;
use crate::operators as op;
use crate::program::{
    Attribute, Base, CallNode, ConstantSet, FieldQualifier, Fold, FoldOperation, InSet, ListNode, MapEntryNode, Node,
    ObjectNode, Order, OrderOperator, Program, Qualifier, QualifierKind,
};
use crate::runtime_cost::CostRule;
use crate::types::Type;
use crate::value::map::OwnedMap;
use crate::value::{Blob, Map, Text, Value};
use crate::{eval, library};

/// States of all constant patterns of a program, some 100 bytes each.
const MAX_PATTERN_STATES: u64 = 100_000;

/// Compiles a checked tree. Constants that cannot be converted are errors here already.
pub(crate) fn plan(ast: &Ast<'_>, checked: &Checked, env: &Environment) -> Result<Program, EvalError> {
    let unknown = CostEstimate { min: 0, max: u64::MAX };
    let estimate = if env.unchecked { unknown } else { cost::estimate(ast, checked, env) };
    let mut planner = Planner {
        ast,
        checked,
        env,
        depth: 0,
        locals: 0,
        binds: Vec::new(),
        bound: Vec::new(),
        used: Vec::new(),
        pattern_states: MAX_PATTERN_STATES,
    };
    let root = planner.node(ast.root)?;
    let (locals, binds, used_variables) = (planner.locals, planner.binds, planner.used);
    Ok(Program {
        root,
        binds,
        variables: env.variables.clone(),
        messages: Arc::clone(&env.messages),
        locals,
        output: checked.type_of(ast.root).clone(),
        used_variables,
        estimate,
        language: env.is_language(),
    })
}

struct Planner<'p, 's> {
    ast: &'p Ast<'s>,
    checked: &'p Checked,
    env: &'p Environment,
    /// Slots in use: the checker numbers them the same way.
    depth: usize,
    locals: usize,
    binds: Vec<Node>,
    /// Slots that stand for bound variables, with their index in `binds`.
    bound: Vec<(u32, u32)>,
    used: Vec<u32>,
    /// States that further constant patterns may have.
    pattern_states: u64,
}

type Planned<T = Node> = Result<T, EvalError>;

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Planner<'_, '_> {
    fn node(&mut self, id: ExprId) -> Planned {
        match self.ast.kind(id) {
            ExprKind::Invalid => Err(EvalError::new("invalid expression")),
            ExprKind::Literal(literal) => Ok(Node::Const(constant(literal))),
            ExprKind::Ident(_) => Ok(self.name(id)),
            ExprKind::Select(select) => {
                if !matches!(self.checked.references[id as usize], Reference::None) {
                    return Ok(self.name(id));
                }
                let operand = self.node(select.operand)?;
                let field = self.field(select.operand, &select.field);
                let qualifier = Qualifier { kind: QualifierKind::Field(field), optional: false };
                Ok(qualify(operand, qualifier, select.test_only))
            }
            ExprKind::Call(call) => self.call(id, call),
            ExprKind::List { elements, optional } => {
                let elements = self.nodes(elements)?;
                Ok(fold_list(ListNode { elements, optional: optional.clone() }))
            }
            ExprKind::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for entry in entries {
                    let (key, value) = (self.node(entry.key)?, self.node(entry.value)?);
                    planned.push(MapEntryNode { key, value, optional: entry.optional });
                }
                Ok(if self.env.is_language() { Node::Map(planned.into_boxed_slice()) } else { fold_map(planned) })
            }
            ExprKind::Struct { fields, .. } => {
                let Reference::Construct(kind) = &self.checked.references[id as usize] else {
                    return Err(EvalError::new("unknown type"));
                };
                let kind = kind.clone();
                let mut planned = Vec::with_capacity(fields.len());
                for field in fields {
                    planned.push((Box::from(&*field.name), self.node(field.value)?, field.optional));
                }
                Ok(Node::Object(Box::new(ObjectNode { kind, fields: planned })))
            }
            ExprKind::Comprehension(fold) => self.comprehension(fold),
        }
    }

    fn nodes(&mut self, ids: &[ExprId]) -> Planned<Vec<Node>> {
        ids.iter().map(|&id| self.node(id)).collect()
    }

    fn name(&mut self, id: ExprId) -> Node {
        let base = match &self.checked.references[id as usize] {
            Reference::Type(value) => return Node::Const(Value::Type(value.clone())),
            Reference::Variable(at) => {
                if !self.used.contains(at) {
                    self.used.push(*at);
                }
                Base::Variable(*at)
            }
            Reference::Local(slot) => match self.bound.iter().rev().find(|(bound, _)| bound == slot) {
                Some((_, bind)) => Base::Lazy(*bind),
                None => Base::Local(*slot),
            },
            Reference::None | Reference::Call(_) | Reference::Construct(_) => Base::Local(u32::MAX),
        };
        Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), test_only: false }))
    }

    fn field(&self, operand: ExprId, name: &str) -> FieldQualifier {
        let operand_type = self.checked.type_of(operand);
        let declared = match operand_type.unwrap_optional().unwrap_or(operand_type) {
            Type::Object(decl) => self.env.field(decl, name),
            _ => None,
        };
        let declared = declared.map(|field| (Box::from(field.json_name.as_str()), Arc::clone(&field.decl)));
        FieldQualifier { name: Box::from(name), declared }
    }

    fn call(&mut self, id: ExprId, call: &Call<'_>) -> Planned {
        let Some(reference) = self.checked.call(id) else {
            return Ok(Node::Fail(EvalError::new(format!("no such overload: {}", call.function))));
        };
        let target = if reference.namespaced { None } else { call.target };
        if call.function == op::OPT_SELECT {
            let operand = self.node(call.args[0])?;
            let ExprKind::Literal(Literal::String(name)) = self.ast.kind(call.args[1]) else {
                return Err(EvalError::new("unsupported optional field selection"));
            };
            let kind = QualifierKind::Field(self.field(call.args[0], name));
            return Ok(qualify(operand, Qualifier { kind, optional: true }, false));
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = target {
            args.push(self.node(target)?);
        }
        for &arg in &call.args {
            args.push(self.node(arg)?);
        }
        let overloads = self.checked.overloads(reference);
        let overload = if overloads.len() == 1 { overloads[0].id } else { "" };
        let function = reference.declaration.function;
        let regex = self.constant_pattern(function, &args)?;
        let mut node = assemble(function, reference.declaration.name, overload, args)?;
        if let Node::Call(call) = &mut node {
            call.regex = regex;
        }
        Ok(constants::compute(node, self.env.is_language()))
    }

    /// Compiles a constant pattern. What is left of the budget decides whether this happens here or at every use, where
    /// it counts against the budget of the evaluation.
    fn constant_pattern(&mut self, function: Function, args: &[Node]) -> Planned<Option<Regex>> {
        let (Function::Matches | Function::Find | Function::FindAll, Some(Node::Const(Value::String(pattern)))) =
            (function, args.get(1))
        else {
            return Ok(None);
        };
        let refuse = |error: re2::PatternError| EvalError::new(error.to_string());
        let translated = re2::translate(pattern).map_err(refuse)?;
        let Some(left) = self.pattern_states.checked_sub(translated.states) else { return Ok(None) };
        self.pattern_states = left;
        re2::build(pattern, &translated).map(Some).map_err(refuse)
    }

    fn comprehension(&mut self, fold: &Comprehension<'_>) -> Planned {
        let range = self.node(fold.range)?;
        let base = self.depth;
        if fold.kind == FoldKind::Bind {
            let init = self.node(fold.init)?;
            let bind = number(self.binds.len());
            self.binds.push(init);
            self.bound.push((number(base), bind));
            self.depth = base + 1;
            let result = self.node(fold.result)?;
            self.depth = base;
            self.bound.pop();
            return Ok(Node::Bind(Box::new((bind, result))));
        }
        let slot = base + 1;
        self.depth = slot + 1 + usize::from(fold.var2.is_some());
        self.locals = self.locals.max(self.depth);
        let (operation, filter, body) = match fold.kind {
            FoldKind::All => (FoldOperation::All, None, self.predicate(fold, 1)),
            FoldKind::Exists => (FoldOperation::Exists, None, self.predicate(fold, 1)),
            FoldKind::ExistsOne => (FoldOperation::ExistsOne, None, self.predicate(fold, 0)),
            FoldKind::Append { filter, value } => (FoldOperation::Append, filter, Some(value)),
            FoldKind::Insert { filter, value } => (FoldOperation::Insert, filter, Some(value)),
            FoldKind::InsertEntries { filter, value } => (FoldOperation::InsertEntries, filter, Some(value)),
            FoldKind::Bind => (FoldOperation::All, None, None),
        };
        let body = body.ok_or_else(|| EvalError::new("malformed comprehension"))?;
        let filter = filter.map(|filter| self.node(filter)).transpose()?;
        let body = self.node(body)?;
        self.depth = base;
        let constant_body = matches!(body, Node::Const(_));
        let second_slot = fold.var2.as_ref().map(|_| number(slot + 1));
        let slot = number(slot);
        Ok(Node::Fold(Box::new(Fold { operation, range, slot, second_slot, filter, body, constant_body })))
    }

    /// The predicate is an argument of the step.
    fn predicate(&self, fold: &Comprehension<'_>, at: usize) -> Option<ExprId> {
        match self.ast.kind(fold.step) {
            ExprKind::Call(call) => call.args.get(at).copied(),
            _ => None,
        }
    }
}

fn constant(literal: &Literal<'_>) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(Arc::from(&**text))),
        Literal::Bytes(bytes) => Value::Bytes(Blob::Shared(Arc::from(&**bytes))),
    }
}

/// Selects from an operand, extending it if it is an attribute already.
fn qualify(operand: Node, qualifier: Qualifier, test_only: bool) -> Node {
    let mut attribute = match operand {
        Node::Attribute(attribute) if !attribute.test_only => attribute,
        operand => Box::new(Attribute { base: Base::Node(operand), qualifiers: Vec::new(), test_only: false }),
    };
    attribute.qualifiers.push(qualifier);
    attribute.test_only = test_only;
    Node::Attribute(attribute)
}

fn fold_list(list: ListNode) -> Node {
    let constant = list.elements.iter().all(|element| matches!(element, Node::Const(_)));
    if !constant || list.optional.contains(&true) {
        return Node::List(Box::new(list));
    }
    let values = list.elements.into_iter().filter_map(|element| match element {
        Node::Const(value) => Some(value),
        _ => None,
    });
    Node::Const(Value::list(values.collect()))
}

fn fold_map(entries: Vec<MapEntryNode>) -> Node {
    let is_const = |node: &Node| matches!(node, Node::Const(_));
    if !entries.iter().all(|entry| is_const(&entry.key) && is_const(&entry.value) && !entry.optional) {
        return Node::Map(entries.into_boxed_slice());
    }
    let mut map = OwnedMap::default();
    for entry in entries {
        if let (Node::Const(key), Node::Const(value)) = (entry.key, entry.value) {
            map.insert(key, value);
        }
    }
    Node::Const(Value::Map(Map::Owned(Arc::new(map))))
}

/// Picks the node for a call.
fn assemble(function: Function, name: &'static str, overload: &'static str, args: Vec<Node>) -> Planned {
    if args.len() == 2 {
        return assemble_binary(function, overload, args);
    }
    match (function, args.len()) {
        (Function::Conditional, 3) => {
            let mut args = args.into_iter();
            let (Some(a), Some(b), Some(c)) = (args.next(), args.next(), args.next()) else {
                return Err(EvalError::no_such_overload());
            };
            return Ok(Node::Conditional(Box::new((a, b, c))));
        }
        (Function::Not, 1) => {
            if let Some(arg) = args.into_iter().next() {
                return Ok(Node::Not(Box::new(arg)));
            }
            return Err(EvalError::no_such_overload());
        }
        (Function::FormatConstant, _) => {
            let format = library::format::by_name(name.trim_start_matches("format."));
            let format = format.ok_or_else(|| EvalError::new(format!("no such overload: {name}()")))?;
            return generic(function, overload, vec![Node::Const(Value::opaque(library::Opaque::Format(format)))]);
        }
        _ => {}
    }
    if is_conversion(function)
        && let [Node::Const(value)] = args.as_slice()
    {
        return eval::convert_constant(function, value.clone()).map(Node::Const);
    }
    generic(function, overload, args)
}

fn assemble_binary(function: Function, overload: &'static str, mut args: Vec<Node>) -> Planned {
    let order = match function {
        Function::Less => Some(OrderOperator::Less),
        Function::LessEquals => Some(OrderOperator::LessEquals),
        Function::Greater => Some(OrderOperator::Greater),
        Function::GreaterEquals => Some(OrderOperator::GreaterEquals),
        _ => None,
    };
    let special = order.is_some()
        || matches!(
            function,
            Function::And
                | Function::Or
                | Function::Equals
                | Function::NotEquals
                | Function::Index
                | Function::OptIndex
                | Function::OptionalOr
                | Function::OptionalOrValue
                | Function::In
        );
    if !special {
        return generic(function, overload, args);
    }
    let (Some(right), Some(left)) = (args.pop(), args.pop()) else {
        return Err(EvalError::no_such_overload());
    };
    if let Some(operator) = order {
        let sized = overload.ends_with("_string") || overload.ends_with("_bytes");
        return Ok(Node::Order(Box::new(Order { operator, left, right, sized })));
    }
    let pair = |left, right| Box::new((left, right));
    Ok(match function {
        Function::And => Node::And(pair(left, right)),
        Function::Or => Node::Or(pair(left, right)),
        Function::Equals => Node::Equal(pair(left, right)),
        Function::NotEquals => Node::NotEqual(pair(left, right)),
        Function::OptionalOr => Node::OptionalOr(pair(left, right)),
        Function::OptionalOrValue => Node::OptionalOrValue(pair(left, right)),
        Function::In => return member(overload, left, right),
        _ => {
            let kind = match right {
                Node::Const(value) => QualifierKind::Const(value),
                node => QualifierKind::Dynamic(node),
            };
            qualify(left, Qualifier { kind, optional: function == Function::OptIndex }, false)
        }
    })
}

/// `x in [constants]` becomes a set lookup.
fn member(overload: &'static str, value: Node, container: Node) -> Planned {
    if overload == "in_list"
        && let Node::Const(Value::List(list)) = &container
    {
        if list.len() == 0 {
            return Ok(Node::Const(Value::Bool(false)));
        }
        if let Some(set) = constant_set(list)? {
            return Ok(Node::InSet(Box::new(InSet { value, set })));
        }
    }
    generic(Function::In, overload, vec![value, container])
}

fn constant_set(list: &crate::value::List<'static>) -> Planned<Option<ConstantSet>> {
    let mut set = ConstantSet::default();
    for item in list.iter() {
        match item? {
            Value::String(text) => {
                set.strings.insert(Box::from(&*text));
            }
            Value::Int(value) => {
                set.integers.insert(i128::from(value));
                set.doubles.push(value as f64);
            }
            Value::Uint(value) => {
                set.integers.insert(i128::from(value));
                set.doubles.push(value as f64);
            }
            Value::Double(value) => {
                set.doubles.push(value);
                if value.fract() == 0.0 && value.abs() < 2f64.powi(64) {
                    set.integers.insert(value as i128);
                }
            }
            Value::Bool(value) => set.bools[usize::from(value)] = true,
            Value::Null => set.null = true,
            _ => return Ok(None),
        }
    }
    Ok(Some(set))
}

fn is_conversion(function: Function) -> bool {
    matches!(
        function,
        Function::ToBool
            | Function::ToBytes
            | Function::ToDouble
            | Function::ToDuration
            | Function::ToDyn
            | Function::ToInt
            | Function::ToString
            | Function::ToTimestamp
            | Function::TypeOf
            | Function::ToUint
    )
}

fn generic(function: Function, overload: &'static str, args: Vec<Node>) -> Planned {
    let cost = CostRule::of(function, overload);
    Ok(Node::Call(Box::new(CallNode { function, overload, args, cost, regex: None })))
}
