//! The syntax tree: expressions in one vector, referenced by index.

use std::borrow::Cow;

/// Index of an expression in [`Ast::exprs`].
pub(crate) type ExprId = u32;

/// A parsed expression. Names are slices of the source wherever possible.
#[derive(Debug, Default)]
pub(crate) struct Ast<'s> {
    pub(crate) exprs: Vec<Expr<'s>>,
    pub(crate) root: ExprId,
}

#[derive(Debug)]
pub(crate) struct Expr<'s> {
    pub(crate) kind: ExprKind<'s>,
    /// Byte offset of the token that errors about this expression point at.
    pub(crate) offset: usize,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind<'s> {
    /// What is left after an error.
    Invalid,
    Literal(Literal<'s>),
    Ident(Cow<'s, str>),
    Select(Select<'s>),
    Call(Call<'s>),
    List {
        elements: Vec<ExprId>,
        optional: Vec<bool>,
    },
    Map(Vec<MapEntry>),
    Struct {
        name: Cow<'s, str>,
        fields: Vec<StructField<'s>>,
    },
    Comprehension(Box<Comprehension<'s>>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal<'s> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Cow<'s, str>),
    Bytes(Cow<'s, [u8]>),
}

#[derive(Debug, Clone)]
pub(crate) struct Select<'s> {
    pub(crate) operand: ExprId,
    pub(crate) field: Cow<'s, str>,
    pub(crate) test_only: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Call<'s> {
    pub(crate) function: Cow<'s, str>,
    pub(crate) target: Option<ExprId>,
    pub(crate) args: Vec<ExprId>,
}

#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct StructField<'s> {
    pub(crate) name: Cow<'s, str>,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
    pub(crate) offset: usize,
}

/// Which macro a comprehension comes from: the evaluator has a loop for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// Appends `value` for elements that pass `filter`.
    Append {
        filter: Option<ExprId>,
        value: ExprId,
    },
    /// Inserts `value` under the first variable.
    Insert {
        filter: Option<ExprId>,
        value: ExprId,
    },
    /// Inserts the entries of `value`.
    InsertEntries {
        filter: Option<ExprId>,
        value: ExprId,
    },
    /// Evaluates `result` with the accumulator bound to `init`.
    Bind,
}

#[derive(Debug, Clone)]
pub(crate) struct Comprehension<'s> {
    pub(crate) kind: FoldKind,
    pub(crate) range: ExprId,
    pub(crate) var: Cow<'s, str>,
    /// The second variable of two-variable comprehensions.
    pub(crate) var2: Option<Cow<'s, str>>,
    pub(crate) accu: Cow<'s, str>,
    pub(crate) init: ExprId,
    pub(crate) condition: ExprId,
    pub(crate) step: ExprId,
    pub(crate) result: ExprId,
}

impl<'s> Ast<'s> {
    pub(crate) fn add(&mut self, offset: usize, kind: ExprKind<'s>) -> ExprId {
        let id = u32::try_from(self.exprs.len()).unwrap_or(u32::MAX);
        self.exprs.push(Expr { kind, offset });
        id
    }

    pub(crate) fn expr(&self, id: ExprId) -> &Expr<'s> {
        &self.exprs[id as usize]
    }

    pub(crate) fn kind(&self, id: ExprId) -> &ExprKind<'s> {
        &self.exprs[id as usize].kind
    }

    /// Copies an expression with all its parts under new ids.
    pub(crate) fn copy(&mut self, id: ExprId) -> ExprId {
        let offset = self.expr(id).offset;
        let mut kind = self.kind(id).clone();
        match &mut kind {
            ExprKind::Invalid | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select(select) => select.operand = self.copy(select.operand),
            ExprKind::Call(call) => {
                call.target = call.target.map(|target| self.copy(target));
                self.copy_all(&mut call.args);
            }
            ExprKind::List { elements, .. } => self.copy_all(elements),
            ExprKind::Map(entries) => {
                for entry in entries {
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for field in fields {
                    field.value = self.copy(field.value);
                }
            }
            ExprKind::Comprehension(fold) => {
                for part in [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result] {
                    *part = self.copy(*part);
                }
                fold.kind = self.copied_kind(fold);
            }
        }
        self.add(offset, kind)
    }

    /// Finds the parts that the kind names in the copied step.
    fn copied_kind(&self, fold: &Comprehension<'s>) -> FoldKind {
        let args = |id: ExprId| match self.kind(id) {
            ExprKind::Call(call) => call.args.clone(),
            _ => Vec::new(),
        };
        let parts = |filter: Option<ExprId>| {
            let step = if filter.is_some() { args(fold.step) } else { vec![fold.step, fold.step] };
            let last = args(step[1]).last().copied().unwrap_or(step[1]);
            (filter.map(|_| step[0]), last)
        };
        match fold.kind {
            FoldKind::Append { filter, .. } => {
                let (filter, list) = parts(filter);
                let value = match self.kind(list) {
                    ExprKind::List { elements, .. } if elements.len() == 1 => elements[0],
                    _ => list,
                };
                FoldKind::Append { filter, value }
            }
            FoldKind::Insert { filter, .. } => {
                let (filter, value) = parts(filter);
                FoldKind::Insert { filter, value }
            }
            FoldKind::InsertEntries { filter, .. } => {
                let (filter, value) = parts(filter);
                FoldKind::InsertEntries { filter, value }
            }
            kind => kind,
        }
    }

    fn copy_all(&mut self, ids: &mut [ExprId]) {
        for id in ids {
            *id = self.copy(*id);
        }
    }

    /// The dotted name of an identifier or a chain of selections on one, e.g. `a.b.c`.
    pub(crate) fn qualified_name(&self, id: ExprId) -> Option<String> {
        match self.kind(id) {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select(select) if !select.test_only => {
                let mut name = self.qualified_name(select.operand)?;
                name.push('.');
                name.push_str(&select.field);
                Some(name)
            }
            _ => None,
        }
    }
}
