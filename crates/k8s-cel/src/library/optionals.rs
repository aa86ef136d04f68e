//! Functions of optional values.

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::value::Value;

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match (call.function, call.args.first()) {
        (Function::OptionalNone, _) => Ok(Value::Optional(None)),
        (Function::OptionalOf, Some(value)) => Ok(Value::some(value.clone())),
        (Function::OptionalOfNonZeroValue, Some(value)) => {
            Ok(if value.is_zero() { Value::Optional(None) } else { Value::some(value.clone()) })
        }
        (Function::OptionalValue, Some(Value::Optional(value))) => match value {
            Some(value) => Ok((**value).clone()),
            None => Err(EvalError::new("optional.none() dereference")),
        },
        (Function::HasValue, Some(Value::Optional(value))) => Ok(Value::Bool(value.is_some())),
        (Function::OptionalUnwrap | Function::UnwrapOpt, Some(Value::List(list))) => {
            context.burn(list.len())?;
            let mut items = Vec::new();
            for item in list.iter() {
                match item? {
                    Value::Optional(value) => items.extend(value.map(|value| (*value).clone())),
                    value => return Err(EvalError::new(format!("value {value} is not optional"))),
                }
            }
            Ok(Value::list(items))
        }
        _ => Err(call.no_overload()),
    }
}
