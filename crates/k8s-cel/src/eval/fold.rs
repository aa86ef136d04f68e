//! Loops. Each adds what cel-go's general loop would cost: references to the accumulator, its operators, conditions.

use std::sync::Arc;

use super::{Context, Evaluated};
use crate::error::EvalError;
use crate::program::{Fold, FoldOperation};
use crate::runtime_cost::LIST;
use crate::value::map::OwnedMap;
use crate::value::{Map, Value};

/// The range of a loop.
enum Range<'a> {
    List(crate::value::List<'a>),
    Keys(Vec<Value<'a>>, Map<'a>),
}

impl<'a> Range<'a> {
    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Keys(keys, _) => keys.len(),
        }
    }
}

impl<'a> Context<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = match self.eval(&fold.range)? {
            Value::List(list) => Range::List(list),
            Value::Map(map) => {
                self.burn(map.len())?;
                Range::Keys(map.keys(), map)
            }
            value => {
                let name = value.go_type();
                return Err(EvalError::new(match fold.second_slot {
                    None => format!("got '{name}', expected iterable type"),
                    Some(_) => format!("unsupported comprehension range type: {name}"),
                }));
            }
        };
        match fold.operation {
            FoldOperation::All => self.quantify(fold, &range, false),
            FoldOperation::Exists => self.quantify(fold, &range, true),
            FoldOperation::ExistsOne => self.exists_one(fold, &range),
            FoldOperation::Append => self.append(fold, &range),
            FoldOperation::Insert | FoldOperation::InsertEntries => self.insert(fold, &range),
        }
    }

    /// Sets the loop's variables to the element at an index.
    fn advance(&mut self, fold: &Fold, range: &Range<'a>, at: usize) -> Result<(), EvalError> {
        self.burn(1)?;
        let slot = fold.slot as usize;
        match (range, fold.second_slot) {
            (Range::List(list), None) => self.locals[slot] = list.get(at)?,
            (Range::List(list), Some(second)) => {
                self.locals[slot] = Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
                self.locals[second as usize] = list.get(at)?;
            }
            (Range::Keys(keys, _), None) => self.locals[slot] = keys[at].clone(),
            (Range::Keys(keys, map), Some(second)) => {
                self.locals[second as usize] = map.find(&keys[at])?.unwrap_or(Value::Null);
                self.locals[slot] = keys[at].clone();
            }
        }
        Ok(())
    }

    /// `all` (decided by false) and `exists` (decided by true).
    fn quantify(&mut self, fold: &'a Fold, range: &Range<'a>, decisive: bool) -> Evaluated<'a> {
        // The condition negates the accumulator for `exists`; the step refers to it once.
        let condition = if decisive { 3 } else { 2 };
        let mut failed: Option<EvalError> = None;
        let mut decided = false;
        for at in 0..range.len() {
            self.charge(condition)?;
            if decided {
                break;
            }
            self.charge(1)?;
            self.advance(fold, range, at)?;
            match self.eval(&fold.body) {
                Ok(Value::Bool(value)) => decided = value == decisive,
                Ok(_) => failed = failed.or_else(|| Some(EvalError::no_such_overload())),
                Err(error) if error.is_cost_limit() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.charge(1)?;
        match failed {
            _ if decided => Ok(Value::Bool(decisive)),
            Some(error) => Err(error),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn exists_one(&mut self, fold: &'a Fold, range: &Range<'a>) -> Evaluated<'a> {
        let mut count = 0u64;
        let mut failed = None;
        for at in 0..range.len() {
            self.advance(fold, range, at)?;
            match self.eval(&fold.body) {
                Ok(Value::Bool(true)) => {
                    self.charge(2)?;
                    count += 1;
                }
                Ok(Value::Bool(false)) => {}
                Ok(_) => failed = Some(EvalError::no_such_overload()),
                Err(error) if error.is_cost_limit() => return Err(error),
                Err(error) => failed = Some(error),
            }
        }
        self.charge(2)?;
        failed.map_or(Ok(Value::Bool(count == 1)), Err)
    }

    /// Whether the element passes the filter; an error of the filter becomes the loop's.
    fn passes(&mut self, fold: &'a Fold, failed: &mut Option<EvalError>) -> Result<bool, EvalError> {
        let Some(filter) = &fold.filter else { return Ok(true) };
        match self.eval(filter) {
            Ok(Value::Bool(value)) => Ok(value),
            Ok(_) => {
                *failed = Some(EvalError::no_such_overload());
                Ok(false)
            }
            Err(error) if error.is_cost_limit() => Err(error),
            Err(error) => {
                *failed = Some(error);
                Ok(false)
            }
        }
    }

    fn append(&mut self, fold: &'a Fold, range: &Range<'a>) -> Evaluated<'a> {
        let mut items = Vec::new();
        let mut failed = None;
        // The accumulator, the list around the element, and the concatenation.
        let step = 1 + if fold.constant_body { 0 } else { LIST } + 1;
        for at in 0..range.len() {
            self.advance(fold, range, at)?;
            if !self.passes(fold, &mut failed)? {
                continue;
            }
            let value = self.eval(&fold.body);
            self.charge_after(&value, step)?;
            match value {
                Ok(value) if failed.is_none() => items.push(value),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.charge(1)?;
        failed.map_or_else(|| Ok(Value::list(items)), Err)
    }

    fn insert(&mut self, fold: &'a Fold, range: &Range<'a>) -> Evaluated<'a> {
        let mut map = OwnedMap::default();
        let mut failed: Option<EvalError> = None;
        let entries = fold.operation == FoldOperation::InsertEntries;
        for at in 0..range.len() {
            self.advance(fold, range, at)?;
            if !self.passes(fold, &mut failed)? {
                continue;
            }
            self.charge(1)?;
            if failed.is_some() && !entries {
                continue;
            }
            // The key is a reference of its own.
            self.charge(u64::from(!entries))?;
            let value = self.eval(&fold.body);
            self.charge_after(&value, 1)?;
            let inserted = value.and_then(|value| match value {
                Value::Map(update) if entries => self.insert_all(&mut map, &update),
                value if entries => {
                    let message = format!("no such overload: cel.@mapInsert(map, {})", value.type_name());
                    Err(EvalError::new(message))
                }
                value => insert_new(&mut map, self.locals[fold.slot as usize].clone(), value),
            });
            if let Err(error) = inserted {
                if error.is_cost_limit() {
                    return Err(error);
                }
                failed = failed.or(Some(error));
            }
        }
        self.charge(1)?;
        failed.map_or_else(|| Ok(Value::Map(Map::Owned(Arc::new(map)))), Err)
    }

    fn insert_all(&mut self, map: &mut OwnedMap<'a>, update: &Map<'a>) -> Result<(), EvalError> {
        self.burn(update.len())?;
        for key in update.keys() {
            let value = update.find(&key)?.unwrap_or(Value::Null);
            insert_new(map, key, value)?;
        }
        Ok(())
    }
}

fn insert_new<'a>(map: &mut OwnedMap<'a>, key: Value<'a>, value: Value<'a>) -> Result<(), EvalError> {
    if map.get(&key).is_some() {
        return Err(EvalError::new(format!("insert failed: key {key} already exists")));
    }
    map.insert(key, value);
    Ok(())
}
