//! List functions.

use std::cmp::Ordering;

use crate::decl::ListKind;
use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::ops;
use crate::value::{List, Value};

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match call.function {
        Function::ListsRange => return range(context, call.int(0)?),
        Function::Includes => return includes(context, call),
        _ => {}
    }
    if call.function == Function::Flatten && !matches!(call.args[0], Value::List(_)) {
        return Err(cannot_flatten(call));
    }
    let list = call.list(0)?;
    context.burn(list.len())?;
    if !accepts(call.function, list)? {
        return Err(call.no_overload());
    }
    match call.function {
        Function::IsSorted => is_sorted(list),
        Function::Sum => sum(list, call),
        Function::ListMax => extreme(list, "max", Ordering::Less),
        Function::ListMin => extreme(list, "min", Ordering::Greater),
        Function::IndexOf => index_of(context, list, &call.args[1], false),
        Function::LastIndexOf => index_of(context, list, &call.args[1], true),
        Function::First => Ok(list.iter().next().transpose()?.map_or(Value::Optional(None), Value::some)),
        Function::Last => match list.len().checked_sub(1) {
            Some(last) => list.get(last).map(Value::some),
            None => Ok(Value::Optional(None)),
        },
        Function::Reverse => (0..list.len()).rev().map(|at| list.get(at)).collect::<Result<_, _>>().map(Value::list),
        Function::Slice => slice(list, call.int(1)?, call.int(2)?),
        Function::Flatten => {
            let depth = if call.args.len() > 1 { call.int(1)? } else { 1 };
            if depth < 0 {
                return Err(EvalError::new("level must be non-negative"));
            }
            let mut items = Vec::new();
            flatten(context, list, depth, &mut items)?;
            Ok(Value::list(items))
        }
        Function::Distinct => distinct(context, list),
        Function::Sort => sort(list, list),
        Function::SortByKeys => sort(list, call.list(1)?),
        _ => Err(call.no_overload()),
    }
}

fn range<'a>(context: &mut Context<'a>, count: i64) -> Evaluated<'a> {
    let count = count.max(0);
    context.burn(usize::try_from(count).unwrap_or(usize::MAX))?;
    Ok(Value::list((0..count).map(Value::Int).collect()))
}

fn includes<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let same = match &call.args[0] {
        Value::List(list) => context.list_contains(list, &call.args[1]),
        value => context.equal(value, &call.args[1]),
    };
    match same {
        Err(error) if error.is_cost_limit() => Err(error),
        same => Ok(Value::Bool(same.unwrap_or(false))),
    }
}

/// Whether the function has an overload for the list: the first element decides.
fn accepts(function: Function, list: &List<'_>) -> Result<bool, EvalError> {
    let Some(first) = list.iter().next().transpose()? else { return Ok(true) };
    let summable = matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_));
    Ok(match function {
        Function::Sum => summable,
        Function::IsSorted | Function::ListMax | Function::ListMin => {
            summable || matches!(first, Value::Bool(_) | Value::String(_) | Value::Bytes(_) | Value::Timestamp(_))
        }
        _ => true,
    })
}

fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, EvalError> {
    ops::compare(a, b).map_err(|error| error.unwrap_or_else(EvalError::no_such_overload))
}

/// Refuses values of types without an order, such as null.
fn comparable(value: Value<'_>) -> Evaluated<'_> {
    match value {
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => Ok(value),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_sorted<'a>(list: &List<'a>) -> Evaluated<'a> {
    let mut previous: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = comparable(item?)?;
        if let Some(previous) = &previous
            && order(previous, &item).is_ok_and(Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(list: &List<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let mut total = match call.overload {
        "list_uint_sum_uint" => Some(Value::Uint(0)),
        "list_double_sum_double" => Some(Value::Double(0.0)),
        "list_duration_sum_duration" => Some(Value::Duration(0)),
        "list_int_sum_int" => Some(Value::Int(0)),
        _ => None,
    };
    for item in list.iter() {
        let item = item?;
        total = Some(match total {
            Some(total) => ops::add(&total, &item)?,
            None => item,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

/// The element that no other is before; `replace` is the order of the best so far to a better one.
fn extreme<'a>(list: &List<'a>, name: &str, replace: Ordering) -> Evaluated<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = comparable(item?)?;
        match &best {
            // What cannot be compared is no better.
            Some(value) if !order(value, &item).is_ok_and(|order| order == replace) => {}
            _ => best = Some(item),
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn index_of<'a>(context: &mut Context<'a>, list: &List<'a>, wanted: &Value<'a>, last: bool) -> Evaluated<'a> {
    let count = list.len();
    for step in 0..count {
        let at = if last { count - 1 - step } else { step };
        let item = list.get(at)?;
        match context.equal(&item, wanted) {
            Ok(true) => return Ok(Value::Int(i64::try_from(at).unwrap_or(i64::MAX))),
            Err(error) if error.is_cost_limit() => return Err(error),
            _ => {}
        }
    }
    Ok(Value::Int(-1))
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Evaluated<'a> {
    let count = list.len();
    let problem = match (usize::try_from(start), usize::try_from(end)) {
        (Ok(from), Ok(to)) if from <= to && to <= count => {
            return (from..to).map(|at| list.get(at)).collect::<Result<_, _>>().map(Value::list);
        }
        (Err(_), _) | (_, Err(_)) => "negative indexes not supported".to_owned(),
        _ if start > end => "start index must be less than or equal to end index".to_owned(),
        _ => format!("list is length {count}"),
    };
    Err(EvalError::new(format!("cannot slice({start}, {end}), {problem}")))
}

fn cannot_flatten(call: &Invocation<'_, '_>) -> EvalError {
    let mut types = call.args.iter().map(|value| match value {
        Value::Map(_) => "map(dyn, dyn)".to_owned(),
        _ => value.type_name(),
    });
    let operand = types.next().unwrap_or_default();
    EvalError::new(format!("no such overload: {operand}.flatten({})", types.collect::<Vec<_>>().join(", ")))
}

fn flatten<'a>(
    context: &mut Context<'a>,
    list: &List<'a>,
    depth: i64,
    out: &mut Vec<Value<'a>>,
) -> Result<(), EvalError> {
    for item in list.iter() {
        context.burn(1)?;
        match item? {
            Value::List(inner) if depth > 0 => flatten(context, &inner, depth - 1, out)?,
            value => out.push(value),
        }
    }
    Ok(())
}

fn distinct<'a>(context: &mut Context<'a>, list: &List<'a>) -> Evaluated<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        let mut seen = false;
        for known in &unique {
            if context.equal(&item, known)? {
                seen = true;
                break;
            }
        }
        if !seen {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn sort<'a>(list: &List<'a>, keys: &List<'a>) -> Evaluated<'a> {
    if list.len() != keys.len() {
        let text = "expected a list of the same size as the associated keys list, but got";
        let (a, b) = (list.len(), keys.len());
        return Err(EvalError::new(format!("@sortByAssociatedKeys() {text} {a} and {b} elements respectively")));
    }
    let keys: Vec<Value<'a>> = keys.iter().collect::<Result<_, _>>()?;
    let Some(first) = keys.first() else { return Ok(Value::list(Vec::new())) };
    if ops::compare(first, first).is_err_and(|error| error.is_none()) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    let kind = first.type_name();
    if keys.iter().any(|key| key.type_name() != kind) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut indices: Vec<usize> = (0..keys.len()).collect();
    indices.sort_by(|&a, &b| ops::compare(&keys[a], &keys[b]).unwrap_or(Ordering::Equal));
    indices.into_iter().map(|at| list.get(at)).collect::<Result<_, _>>().map(Value::list)
}

/// `a + b`: sets are united, keyed lists merged, others concatenated.
pub(crate) fn add<'a>(context: &mut Context<'a>, a: &List<'a>, b: &List<'a>) -> Evaluated<'a> {
    let keys = match a.order() {
        ListKind::Atomic => return List::concat(a.clone(), b.clone()).map(Value::List),
        ListKind::Set => None,
        ListKind::Map(keys) => Some(keys),
    };
    let mut items: Vec<Value<'a>> = a.iter().collect::<Result<_, _>>()?;
    for item in b.iter() {
        let item = item?;
        match keys {
            None => {
                let added = List::owned(items[a.len()..].to_vec());
                if !context.set_contains(a, &item)? && !context.set_contains(&added, &item)? {
                    items.push(item);
                }
            }
            Some(keys) => {
                let key = ops::element_key(&item, keys)?;
                context.burn(items.len())?;
                let mut at = None;
                for (index, known) in items.iter().enumerate() {
                    if ops::element_key(known, keys)? == key {
                        at = Some(index);
                    }
                }
                match at {
                    Some(at) => items[at] = item,
                    None => items.push(item),
                }
            }
        }
    }
    Ok(Value::List(List::declared(items, a.decl())))
}
