//! String functions; positions count code points.

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::value::{Text, Value, char_count};

/// `contains`, `startsWith`, `endsWith`.
pub(crate) fn search<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let (Some(Value::String(text)), Some(Value::String(part))) = (call.args.first(), call.args.get(1)) else {
        return Err(EvalError::no_such_overload());
    };
    Ok(Value::Bool(match call.function {
        Function::Contains => text.contains(&**part),
        Function::StartsWith => text.starts_with(&**part),
        _ => text.ends_with(&**part),
    }))
}

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    if call.function == Function::Join {
        return join(context, call);
    }
    let Some(Value::String(text)) = call.args.first() else { return Err(call.no_overload()) };
    context.burn(text.len() / 8)?;
    match call.function {
        Function::CharAt => char_at(call, text),
        Function::LowerAscii => Ok(Value::from(text.to_ascii_lowercase())),
        Function::UpperAscii => Ok(Value::from(text.to_ascii_uppercase())),
        Function::Reverse => Ok(Value::from(text.chars().rev().collect::<String>())),
        Function::Trim => Ok(part(text, trimmed(text))),
        Function::IndexOf | Function::LastIndexOf => index_of(context, call, text),
        Function::Replace => replace(context, call, text),
        Function::Split => split(context, call, text),
        _ => substring(call, text),
    }
}

/// `jsonpatch.escapeKey`: the text as one part of a path.
pub(crate) fn escape_key<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let Some(Value::String(text)) = call.args.first() else { return Err(call.no_overload()) };
    context.burn(text.len() / 8)?;
    Ok(Value::from(text.replace('~', "~0").replace('/', "~1")))
}

/// A part of the text, borrowed where the text is.
fn part<'a>(text: &Text<'a>, range: std::ops::Range<usize>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[range]),
        Text::Shared(text) => Value::from(text[range].to_owned()),
    }
}

fn trimmed(text: &str) -> std::ops::Range<usize> {
    // Go's white space; Rust's differs in no character of it.
    let start = text.len() - text.trim_start().len();
    start..(start + text.trim().len())
}

/// The byte offset of a position, which may be the end.
fn offset(text: &str, position: i64) -> Option<usize> {
    let position = usize::try_from(position).ok()?;
    if text.is_ascii() {
        return (position <= text.len()).then_some(position);
    }
    let end = (char_count(text) == position).then_some(text.len());
    text.char_indices().nth(position).map(|(at, _)| at).or(end)
}

fn out_of_range(position: i64) -> EvalError {
    EvalError::new(format!("index out of range: {position}"))
}

fn char_at<'a>(call: &Invocation<'_, 'a>, text: &Text<'a>) -> Evaluated<'a> {
    let position = call.int(1)?;
    let start = offset(text, position).ok_or_else(|| out_of_range(position))?;
    let length = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start..start + length))
}

fn substring<'a>(call: &Invocation<'_, 'a>, text: &Text<'a>) -> Evaluated<'a> {
    let start = call.int(1)?;
    if call.args.len() == 2 {
        let start = offset(text, start).ok_or_else(|| out_of_range(start))?;
        return Ok(part(text, start..text.len()));
    }
    let end = call.int(2)?;
    if start > end {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = offset(text, start).ok_or_else(|| out_of_range(start))?;
    let to = offset(text, end).ok_or_else(|| out_of_range(end))?;
    Ok(part(text, from..to))
}

fn index_of<'a>(context: &Context<'a>, call: &Invocation<'_, 'a>, text: &Text<'a>) -> Evaluated<'a> {
    let wanted = call.text(1)?;
    let last = call.function == Function::LastIndexOf;
    let position = match call.args.get(2) {
        Some(_) => Some(call.int(2)?),
        None => None,
    };
    if wanted.is_empty() {
        let end = if last { i64::try_from(char_count(text)).unwrap_or(i64::MAX) } else { 0 };
        return Ok(Value::Int(position.unwrap_or(end)));
    }
    // The specification refuses positions beyond the end, Kubernetes finds nothing there.
    let beyond = |position: i64| context.is_language() && position as u64 > char_count(text) as u64;
    if let Some(position) = position.filter(|position| *position < 0 || beyond(*position)) {
        return Err(out_of_range(position));
    }
    let found =
        if last { last_index(text, wanted, position) } else { first_index(text, wanted, position.unwrap_or(0)) };
    Ok(Value::Int(found.map_or(-1, |at| i64::try_from(char_count(&text[..at])).unwrap_or(i64::MAX))))
}

fn first_index(text: &str, wanted: &str, position: i64) -> Option<usize> {
    let start = offset(text, position)?;
    text[start..].find(wanted).map(|at| start + at)
}

/// The last match that begins at the position or before it.
fn last_index(text: &str, wanted: &str, position: Option<i64>) -> Option<usize> {
    let Some(position) = position else { return text.rfind(wanted) };
    let start = offset(text, position).filter(|start| *start < text.len())?;
    let end = (start + wanted.len()).min(text.len());
    // A match at the position ends here; within a code point no match ends.
    text[..text.floor_char_boundary(end)].rfind(wanted)
}

fn replace<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>, text: &Text<'a>) -> Evaluated<'a> {
    let (old, new) = (call.text(1)?, call.text(2)?);
    let limit = if call.args.len() > 3 { call.int(3)? } else { -1 };
    let most = if old.is_empty() { char_count(text) + 1 } else { text.len() / old.len() };
    let count = usize::try_from(limit).map_or(most, |limit| limit.min(most));
    context.burn((text.len() + count.saturating_mul(new.len())) / 8)?;
    Ok(Value::from(text.replacen(old, new, count)))
}

fn split<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>, text: &Text<'a>) -> Evaluated<'a> {
    let separator = call.text(1)?;
    let limit = if call.args.len() > 2 { call.int(2)? } else { -1 };
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    context.burn(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let base = text.as_ptr() as usize;
    let pieces: Vec<&str> =
        if separator.is_empty() { explode(text, limit) } else { text.splitn(limit, separator).collect() };
    let values = pieces.into_iter().map(|piece| {
        let start = piece.as_ptr() as usize - base;
        part(text, start..start + piece.len())
    });
    Ok(Value::list(values.collect()))
}

/// One piece per code point, the rest in the last one.
fn explode(text: &str, limit: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if pieces.len() + 1 >= limit {
            pieces.push(rest);
            break;
        }
        let (piece, tail) = rest.split_at(c.len_utf8());
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

fn join<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let list = call.list(0)?;
    let separator = if call.args.len() > 1 { call.text(1)? } else { "" };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        let item = item?;
        let Value::String(text) = &item else {
            if at == 0 {
                return Err(call.no_overload());
            }
            return Err(EvalError::new(format!("join: invalid input: {item}")));
        };
        context.burn(1 + (text.len() + separator.len()) / 8)?;
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    Ok(Value::from(out))
}

/// `strings.quote`.
pub(crate) fn quote<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let text = call.text(0)?;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0C' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0B' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(Value::from(out))
}
