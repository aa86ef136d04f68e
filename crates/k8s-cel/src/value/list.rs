//! Lists: views on JSON arrays, lists that an expression made, and concatenations.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Value, view};
use crate::decl::{DeclKind, DeclType, ListKind};
use crate::error::EvalError;

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// An array of the document with its declared type.
    Json(&'a Vec<Json>, &'a DeclType),
    /// Elements that an expression made.
    Owned(Arc<OwnedList<'a>>),
    /// Two lists, one after the other; concatenation does not copy.
    Concat(Arc<Concat<'a>>),
}

/// Elements, and the declared list they are compared as.
#[derive(Clone, Debug)]
pub struct OwnedList<'a> {
    items: Vec<Value<'a>>,
    decl: Option<&'a DeclType>,
}

/// Two lists and their common length.
#[derive(Debug)]
pub struct Concat<'a> {
    first: List<'a>,
    second: List<'a>,
    length: usize,
    depth: usize,
}

/// Concatenations nested deeper than this are copied into one list, so that access does not recurse without bound.
const MAX_CONCAT_DEPTH: usize = 32;

impl<'a> From<Vec<Value<'a>>> for List<'a> {
    fn from(items: Vec<Value<'a>>) -> Self {
        List::owned(items)
    }
}

impl<'a> List<'a> {
    pub(crate) fn owned(items: Vec<Value<'a>>) -> Self {
        List::Owned(Arc::new(OwnedList { items, decl: None }))
    }

    pub(crate) fn declared(items: Vec<Value<'a>>, decl: Option<&'a DeclType>) -> Self {
        List::Owned(Arc::new(OwnedList { items, decl }))
    }

    /// The number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Owned(list) => list.items.len(),
            List::Concat(concat) => concat.length,
        }
    }

    /// The element at an index that must be below [`List::len`].
    pub fn get(&self, at: usize) -> Result<Value<'a>, EvalError> {
        match self {
            List::Json(items, decl) => match items.get(at) {
                Some(item) => view(item, element_decl(decl)),
                None => Err(EvalError::index_out_of_bounds(at)),
            },
            List::Owned(list) => list.items.get(at).cloned().ok_or_else(|| EvalError::index_out_of_bounds(at)),
            List::Concat(concat) => match at.checked_sub(concat.first.len()) {
                None => concat.first.get(at),
                Some(rest) => concat.second.get(rest),
            },
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    fn depth(&self) -> usize {
        match self {
            List::Concat(concat) => concat.depth,
            _ => 0,
        }
    }

    /// One list after the other. The caller accounts for [`List::len`] copies when the depth is exceeded.
    pub(crate) fn concat(first: List<'a>, second: List<'a>) -> Result<List<'a>, EvalError> {
        if first.len() == 0 {
            return Ok(second);
        }
        if second.len() == 0 {
            return Ok(first);
        }
        let length = first.len().checked_add(second.len()).ok_or_else(EvalError::cost_limit)?;
        let depth = 1 + first.depth().max(second.depth());
        if depth > MAX_CONCAT_DEPTH {
            if length > 1 << 20 {
                return Err(EvalError::cost_limit());
            }
            let mut items = Vec::with_capacity(length);
            for list in [&first, &second] {
                for item in list.iter() {
                    items.push(item?);
                }
            }
            return Ok(List::owned(items));
        }
        Ok(List::Concat(Arc::new(Concat { first, second, length, depth })))
    }

    /// The declaration if the list is a declared one.
    pub(crate) fn decl(&self) -> Option<&'a DeclType> {
        match self {
            List::Json(_, decl) => matches!(decl.kind, DeclKind::List { .. }).then_some(*decl),
            List::Owned(list) => list.decl,
            List::Concat(_) => None,
        }
    }

    /// How elements are told apart.
    pub(crate) fn order(&self) -> &'a ListKind {
        match self.decl().map(|decl| &decl.kind) {
            Some(DeclKind::List { order, .. }) => order,
            _ => &ListKind::Atomic,
        }
    }
}

pub(crate) fn element_decl(decl: &DeclType) -> &DeclType {
    decl.element().map_or(view::dynamic(), |element| element)
}
