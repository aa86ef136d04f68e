//! Operations on constants: computed once, charged at every evaluation as if they ran.

use std::sync::Arc;

use crate::cost::CostEstimate;
use crate::eval::Evaluation;
use crate::function::Function;
use crate::message::MessageTypes;
use crate::program::{Node, Program};
use crate::types::Type;
use crate::value::{Text, Value};

/// What costs more is computed at run time, where it counts against the budget.
const MAX_COST: u64 = 1_000;
/// Longer texts are made at run time: a long chain of concatenations would else copy its beginning again and again.
const MAX_TEXT: usize = 256;

/// The node's value where it is an operation on constants that has one; else the node.
pub(super) fn compute(node: Node, language: bool) -> Node {
    if !is_of_constants(&node) {
        return node;
    }
    let program = Program {
        root: node,
        binds: Vec::new(),
        variables: Vec::new(),
        messages: Arc::<MessageTypes>::default(),
        locals: 0,
        output: Type::Dyn,
        used_variables: Vec::new(),
        estimate: CostEstimate { min: 0, max: 0 },
        language,
    };
    let outcome = program.evaluate(&Evaluation { cost_limit: MAX_COST, ..Evaluation::new(&[]) });
    let value = match outcome.result {
        Ok(Value::Bool(value)) => Value::Bool(value),
        Ok(Value::Int(value)) => Value::Int(value),
        Ok(Value::Uint(value)) => Value::Uint(value),
        Ok(Value::Double(value)) => Value::Double(value),
        Ok(Value::String(text)) if text.len() <= MAX_TEXT => Value::String(Text::Shared(Arc::from(&*text))),
        _ => return program.root,
    };
    let cost = outcome.cost;
    Node::Computed(Box::new((value, cost)))
}

fn is_of_constants(node: &Node) -> bool {
    let constant = |node: &Node| matches!(node, Node::Const(_) | Node::Computed(_));
    match node {
        Node::Not(operand) => constant(operand),
        Node::And(pair) | Node::Or(pair) | Node::Equal(pair) | Node::NotEqual(pair) => {
            constant(&pair.0) && constant(&pair.1)
        }
        Node::Order(order) => constant(&order.left) && constant(&order.right),
        Node::Call(call) => is_cheap(call.function) && call.args.iter().all(constant),
        _ => false,
    }
}

fn is_cheap(function: Function) -> bool {
    matches!(
        function,
        Function::Add
            | Function::Subtract
            | Function::Multiply
            | Function::Divide
            | Function::Modulo
            | Function::Negate
            | Function::Size
            | Function::StartsWith
            | Function::EndsWith
            | Function::Contains
    )
}
