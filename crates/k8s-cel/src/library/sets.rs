//! `sets.contains`, `sets.equivalent`, `sets.intersects`.

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::value::{List, Value};

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let (a, b) = (call.list(0)?, call.list(1)?);
    Ok(Value::Bool(match call.function {
        Function::SetsContains => contains(context, a, b)?,
        Function::SetsEquivalent => contains(context, a, b)? && contains(context, b, a)?,
        _ => intersects(context, a, b)?,
    }))
}

fn contains<'a>(context: &mut Context<'a>, list: &List<'a>, sub: &List<'a>) -> Result<bool, EvalError> {
    for item in sub.iter() {
        if !context.list_contains(list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(context: &mut Context<'a>, a: &List<'a>, b: &List<'a>) -> Result<bool, EvalError> {
    for item in a.iter() {
        match context.list_contains(b, &item?) {
            Ok(true) => return Ok(true),
            Err(error) if error.is_cost_limit() => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}
