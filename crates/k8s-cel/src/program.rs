//! Compiled programs: the form that is evaluated.

use std::collections::HashSet;
use std::sync::Arc;

use regex::Regex;

use crate::cost::CostEstimate;
use crate::decl::DeclType;
use crate::env::Variable;
use crate::error::EvalError;
use crate::function::Function;
use crate::message::{MessageType, MessageTypes, WellKnown};
use crate::runtime_cost::CostRule;
use crate::types::Type;
use crate::value::Value;

/// A compiled expression: immutable, shared between threads, evaluated any number of times.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: Node,
    /// Values of bound variables, evaluated at their first use.
    pub(crate) binds: Vec<Node>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) messages: Arc<MessageTypes>,
    /// How many comprehension variables exist at once at most.
    pub(crate) locals: usize,
    pub(crate) output: Type,
    pub(crate) used_variables: Vec<u32>,
    pub(crate) estimate: CostEstimate,
    /// Compiled for the language as specified, not for a release.
    pub(crate) language: bool,
}

impl Program {
    /// The static type of the result.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// The estimated cost: least and most that an evaluation can cost, by the declared sizes.
    pub fn estimated_cost(&self) -> CostEstimate {
        self.estimate
    }

    /// Whether the expression mentions a declared variable, e.g. `oldSelf`.
    pub fn uses(&self, variable: &str) -> bool {
        self.used_variables.iter().any(|&at| &*self.variables[at as usize].name == variable)
    }
}

#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    /// An operation on constants: its value, and what it costs at run time.
    Computed(Box<(Value<'static>, u64)>),
    /// What an unchecked program could not resolve.
    Fail(EvalError),
    Attribute(Box<Attribute>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    Equal(Box<(Node, Node)>),
    NotEqual(Box<(Node, Node)>),
    Order(Box<Order>),
    Conditional(Box<(Node, Node, Node)>),
    Call(Box<CallNode>),
    List(Box<ListNode>),
    Map(Box<[MapEntryNode]>),
    Object(Box<ObjectNode>),
    Fold(Box<Fold>),
    Bind(Box<(u32, Node)>),
    InSet(Box<InSet>),
    OptionalOr(Box<(Node, Node)>),
    OptionalOrValue(Box<(Node, Node)>),
}

/// A variable or another value, and the fields and indices selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// `has()`: the last qualifier is tested only.
    pub(crate) test_only: bool,
}

#[derive(Debug)]
pub(crate) enum Base {
    Variable(u32),
    Local(u32),
    Lazy(u32),
    Node(Node),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) kind: QualifierKind,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKind {
    Field(FieldQualifier),
    Const(Value<'static>),
    Dynamic(Node),
}

#[derive(Debug)]
pub(crate) struct FieldQualifier {
    /// As the expression writes it.
    pub(crate) name: Box<str>,
    /// Where the operand is of a declared object type: the property and its declaration.
    pub(crate) declared: Option<(Box<str>, Arc<DeclType>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderOperator {
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
}

#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) operator: OrderOperator,
    pub(crate) left: Node,
    pub(crate) right: Node,
    /// Text and bytes: the cost follows from the sizes.
    pub(crate) sized: bool,
}

#[derive(Debug)]
pub(crate) struct CallNode {
    pub(crate) function: Function,
    /// The only overload that static types allow, or empty.
    pub(crate) overload: &'static str,
    pub(crate) args: Vec<Node>,
    pub(crate) cost: CostRule,
    /// The compiled pattern of a constant regular expression.
    pub(crate) regex: Option<Regex>,
}

#[derive(Debug)]
pub(crate) struct ListNode {
    pub(crate) elements: Vec<Node>,
    pub(crate) optional: Vec<bool>,
}

#[derive(Debug)]
pub(crate) struct MapEntryNode {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct ObjectNode {
    pub(crate) kind: ObjectKind,
    pub(crate) fields: Vec<(Box<str>, Node, bool)>,
}

/// What an object literal constructs.
#[derive(Clone, Debug)]
pub(crate) enum ObjectKind {
    Declared(Arc<DeclType>),
    Message(Arc<MessageType>),
    WellKnown(WellKnown),
}

impl ObjectKind {
    /// Whether the object has the field if it is given this value. Messages do not keep fields that are set to nothing.
    pub(crate) fn keeps(&self, field: &str, value: &Value<'_>) -> bool {
        match self {
            ObjectKind::Message(message) => message.keeps(field, value),
            ObjectKind::Declared(_) | ObjectKind::WellKnown(_) => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldOperation {
    All,
    Exists,
    ExistsOne,
    Append,
    Insert,
    InsertEntries,
}

#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) operation: FoldOperation,
    pub(crate) range: Node,
    pub(crate) slot: u32,
    pub(crate) second_slot: Option<u32>,
    pub(crate) filter: Option<Node>,
    /// Predicate or value.
    pub(crate) body: Node,
    /// The one-element list around a constant value is a constant itself and so costs nothing.
    pub(crate) constant_body: bool,
}

/// Membership in a constant list of scalars.
#[derive(Debug)]
pub(crate) struct InSet {
    pub(crate) value: Node,
    pub(crate) set: ConstantSet,
}

#[derive(Debug, Default)]
pub(crate) struct ConstantSet {
    pub(crate) strings: HashSet<Box<str>>,
    pub(crate) integers: HashSet<i128>,
    pub(crate) doubles: Vec<f64>,
    pub(crate) bools: [bool; 2],
    pub(crate) null: bool,
}
