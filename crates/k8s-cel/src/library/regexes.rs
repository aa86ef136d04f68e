//! `matches`, `find`, `findAll`.

use std::borrow::Cow;

use regex::Regex;

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::value::{Text, Value};
use re2::PatternError;

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let (Some(Value::String(text)), Some(Value::String(pattern))) = (call.args.first(), call.args.get(1)) else {
        let is_text = matches!(call.args.first(), Some(Value::String(_)));
        return Err(if call.function == Function::Matches || !is_text {
            EvalError::no_such_overload()
        } else {
            call.no_overload()
        });
    };
    let regex = match &call.node.regex {
        Some(regex) => Cow::Borrowed(regex),
        None => {
            let illegal = |error: PatternError| {
                let prefix = if call.function == Function::Matches { "" } else { "Illegal regex: " };
                EvalError::new(format!("{prefix}{error}"))
            };
            context.burn(pattern.len())?;
            let translated = re2::translate(pattern).map_err(illegal)?;
            // Compiling costs far more than matching.
            let states = usize::try_from(translated.states).unwrap_or(usize::MAX);
            context.burn(states.saturating_add(16).saturating_mul(16))?;
            Cow::Owned(re2::build(pattern, &translated).map_err(illegal)?)
        }
    };
    match call.function {
        Function::Matches => Ok(Value::Bool(regex.is_match(text))),
        Function::Find => Ok(match regex.find(text) {
            Some(found) => slice(text, found.range()),
            None => Value::from(""),
        }),
        _ => {
            let limit = if call.args.len() > 2 {
                usize::try_from(call.int(2).map_err(|_| EvalError::no_such_overload())?).unwrap_or(usize::MAX)
            } else {
                usize::MAX
            };
            find_all(context, &regex, text, limit)
        }
    }
}

/// Go skips an empty match right after a match; the `regex` crate does so too. Each search may look at the rest of the
/// text.
fn find_all<'a>(context: &mut Context<'a>, regex: &Regex, text: &Text<'a>, limit: usize) -> Evaluated<'a> {
    context.burn(text.len() / 8)?;
    let mut items = Vec::new();
    for found in regex.find_iter(text).take(limit) {
        context.burn(1 + (text.len() - found.start()) / 256)?;
        items.push(slice(text, found.range()));
    }
    Ok(Value::list(items))
}

/// A part of the text, borrowed where the text is.
fn slice<'a>(text: &Text<'a>, range: std::ops::Range<usize>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[range]),
        Text::Shared(text) => Value::from(text[range].to_owned()),
    }
}
