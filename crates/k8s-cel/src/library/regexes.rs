//! `matches`, `find`, `findAll`.

use std::borrow::Cow;

use regex::Regex;

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::re2;
use crate::value::{Text, Value};

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let (Some(Value::String(text)), Some(Value::String(pattern))) = (call.args.first(), call.args.get(1)) else {
        return Err(if call.function == Function::Matches {
            EvalError::no_such_overload()
        } else {
            call.no_overload()
        });
    };
    let regex = match &call.node.regex {
        Some(regex) => Cow::Borrowed(regex),
        None => {
            // Compiling costs far more than matching.
            context.burn(16 * (pattern.len() + 16))?;
            Cow::Owned(compile(pattern, call.function)?)
        }
    };
    match call.function {
        Function::Matches => Ok(Value::Bool(regex.is_match(text))),
        Function::Find => Ok(match regex.find(text) {
            Some(found) => slice(text, found.range()),
            None => Value::from(""),
        }),
        _ => {
            let limit =
                if call.args.len() > 2 { usize::try_from(call.int(2)?).unwrap_or(usize::MAX) } else { usize::MAX };
            context.burn(text.len())?;
            Ok(Value::list(find_all(&regex, text, limit)))
        }
    }
}

fn compile(pattern: &str, function: Function) -> Result<Regex, EvalError> {
    re2::compile(pattern).map_err(|error| {
        let prefix = if function == Function::Matches { "" } else { "Illegal regex: " };
        EvalError::new(format!("{prefix}{error}"))
    })
}

/// Go skips an empty match right after a match; the `regex` crate does so too.
fn find_all<'a>(regex: &Regex, text: &Text<'a>, limit: usize) -> Vec<Value<'a>> {
    regex.find_iter(text).take(limit).map(|found| slice(text, found.range())).collect()
}

/// A part of the text, borrowed where the text is.
fn slice<'a>(text: &Text<'a>, range: std::ops::Range<usize>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[range]),
        Text::Shared(text) => Value::from(text[range].to_owned()),
    }
}
