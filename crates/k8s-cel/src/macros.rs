//! Macros: calls that the parser rewrites into comprehensions and presence tests.

use std::borrow::Cow;

use crate::ast::{Call, Comprehension, ExprId, ExprKind, FoldKind, Literal, Select};
use crate::operators as op;
use crate::parser::Parser;

/// The accumulator of comprehensions; `@` keeps it out of reach of expressions.
pub(crate) const ACCUMULATOR: &str = "@result";
/// The name older releases used; no iteration variable may have it.
const OLD_ACCUMULATOR: &str = "__result__";

/// Macros beyond the standard ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MacroSet {
    /// `optMap`, `optFlatMap`.
    pub(crate) optional: bool,
    /// Comprehensions with two variables.
    pub(crate) two_variables: bool,
    /// `sortBy`.
    pub(crate) sort_by: bool,
    /// `cel.bind`, which no Kubernetes release has.
    pub(crate) bind: bool,
}

type Expansion<T = ExprId> = Result<T, (ExprId, Cow<'static, str>)>;

/// Expands `has(a.b)`.
pub(crate) fn expand_global(parser: &mut Parser<'_>, offset: usize, name: &str, args: &[ExprId]) -> Option<ExprId> {
    if name != "has" || args.len() != 1 {
        return None;
    }
    let kind = match parser.ast.kind(args[0]) {
        ExprKind::Select(select) => ExprKind::Select(Select { test_only: true, ..select.clone() }),
        ExprKind::Invalid => ExprKind::Invalid,
        _ => return Some(failed(parser, args[0], "invalid argument to has() macro")),
    };
    Some(parser.ast.add(offset, kind))
}

/// Expands macros called on a target; `None` if the call is of a function.
pub(crate) fn expand_member(
    parser: &mut Parser<'_>,
    set: MacroSet,
    offset: usize,
    name: &str,
    target: ExprId,
    args: &[ExprId],
) -> Option<ExprId> {
    let mut builder = Builder { parser, offset };
    let expansion = match (name, args.len()) {
        ("all", 2) => builder.quantifier(Quantifier::All, target, args),
        ("exists", 2) => builder.quantifier(Quantifier::Exists, target, args),
        ("exists_one", 2) => builder.quantifier(Quantifier::One, target, args),
        ("map", 2 | 3) => builder.map(target, args),
        ("filter", 2) => builder.filter(target, args),
        ("optMap", 2) if set.optional => builder.opt_map(target, args, true),
        ("optFlatMap", 2) if set.optional => builder.opt_map(target, args, false),
        ("all", 3) if set.two_variables => builder.quantifier(Quantifier::All, target, args),
        ("exists", 3) if set.two_variables => builder.quantifier(Quantifier::Exists, target, args),
        ("existsOne" | "exists_one", 3) if set.two_variables => builder.quantifier(Quantifier::One, target, args),
        ("transformList", 3 | 4) if set.two_variables => builder.transform(Transform::List, target, args),
        ("transformMap", 3 | 4) if set.two_variables => builder.transform(Transform::Map, target, args),
        ("transformMapEntry", 3 | 4) if set.two_variables => builder.transform(Transform::Entry, target, args),
        ("sortBy", 2) if set.sort_by => builder.sort_by(target, args),
        ("bind", 3) if set.bind && builder.is_cel(target) => builder.bind(args),
        _ => return None,
    };
    Some(match expansion {
        Ok(id) => id,
        Err((at, message)) => failed(builder.parser, at, message),
    })
}

fn failed(parser: &mut Parser<'_>, at: ExprId, message: impl Into<Cow<'static, str>>) -> ExprId {
    let expr = parser.ast.expr(at);
    let (offset, known) = (expr.offset, matches!(expr.kind, ExprKind::Invalid));
    if !known {
        parser.report(offset, message.into());
    }
    parser.ast.add(offset, ExprKind::Invalid)
}

/// Every `optMap` contains its target twice; beyond this size of the tree there is no further one.
const MAX_EXPRS: usize = 200_000;

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    One,
}

#[derive(Clone, Copy)]
enum Transform {
    List,
    Map,
    Entry,
}

/// Adds the nodes of an expansion; all point at the macro call.
struct Builder<'p, 's> {
    parser: &'p mut Parser<'s>,
    offset: usize,
}

/// The loop of a comprehension over the accumulator.
struct Loop {
    kind: FoldKind,
    init: ExprId,
    condition: ExprId,
    step: ExprId,
    result: ExprId,
}

impl<'s> Builder<'_, 's> {
    fn add(&mut self, kind: ExprKind<'s>) -> ExprId {
        self.parser.ast.add(self.offset, kind)
    }

    fn literal(&mut self, literal: Literal<'s>) -> ExprId {
        self.add(ExprKind::Literal(literal))
    }

    fn ident(&mut self, name: Cow<'s, str>) -> ExprId {
        self.add(ExprKind::Ident(name))
    }

    fn accumulator(&mut self) -> ExprId {
        self.ident(Cow::Borrowed(ACCUMULATOR))
    }

    fn call(&mut self, function: &'static str, args: Vec<ExprId>) -> ExprId {
        self.add(ExprKind::Call(Call { function: Cow::Borrowed(function), target: None, args }))
    }

    fn member(&mut self, function: &'static str, target: ExprId, args: Vec<ExprId>) -> ExprId {
        self.add(ExprKind::Call(Call { function: Cow::Borrowed(function), target: Some(target), args }))
    }

    fn list(&mut self, elements: Vec<ExprId>) -> ExprId {
        let optional = vec![false; elements.len()];
        self.add(ExprKind::List { elements, optional })
    }

    fn name_of(&self, id: ExprId) -> Option<Cow<'s, str>> {
        match self.parser.ast.kind(id) {
            ExprKind::Ident(name) => Some(name.clone()),
            _ => None,
        }
    }

    fn is_cel(&self, target: ExprId) -> bool {
        self.name_of(target).is_some_and(|name| name == "cel")
    }

    fn variable(&self, id: ExprId, message: &'static str) -> Expansion<Cow<'s, str>> {
        let name = self.name_of(id).ok_or((id, Cow::Borrowed(message)))?;
        if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
            return Err((id, Cow::Borrowed("iteration variable overwrites accumulator variable")));
        }
        Ok(name)
    }

    /// The variables among the leading arguments: one, or two where `count` is 2.
    fn variables(&self, args: &[ExprId], count: usize) -> Expansion<(Cow<'s, str>, Option<Cow<'s, str>>)> {
        const MESSAGE: &str = "argument must be a simple name";
        if count == 1 {
            return Ok((self.variable(args[0], MESSAGE)?, None));
        }
        let names = args[..2].iter().map(|&arg| self.name_of(arg).ok_or((arg, Cow::Borrowed(MESSAGE))));
        let names: Vec<_> = names.collect::<Result<_, _>>()?;
        if names[0] == names[1] {
            return Err((args[1], Cow::Owned(format!("duplicate variable name: {}", names[0]))));
        }
        Ok((self.variable(args[0], MESSAGE)?, Some(self.variable(args[1], MESSAGE)?)))
    }

    fn fold(&mut self, range: ExprId, var: Cow<'s, str>, var2: Option<Cow<'s, str>>, body: &Loop) -> ExprId {
        let &Loop { kind, init, condition, step, result } = body;
        let accu = Cow::Borrowed(ACCUMULATOR);
        self.add(ExprKind::Comprehension(Box::new(Comprehension {
            kind,
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        })))
    }

    fn quantifier(&mut self, kind: Quantifier, target: ExprId, args: &[ExprId]) -> Expansion {
        let (var, var2) = self.variables(args, args.len() - 1)?;
        let predicate = args[args.len() - 1];
        let body = match kind {
            Quantifier::All => {
                let init = self.literal(Literal::Bool(true));
                let accu = self.accumulator();
                let condition = self.call(op::NOT_STRICTLY_FALSE, vec![accu]);
                let accu = self.accumulator();
                let step = self.call(op::AND, vec![accu, predicate]);
                Loop { kind: FoldKind::All, init, condition, step, result: self.accumulator() }
            }
            Quantifier::Exists => {
                let init = self.literal(Literal::Bool(false));
                let accu = self.accumulator();
                let not = self.call(op::NOT, vec![accu]);
                let condition = self.call(op::NOT_STRICTLY_FALSE, vec![not]);
                let accu = self.accumulator();
                let step = self.call(op::OR, vec![accu, predicate]);
                Loop { kind: FoldKind::Exists, init, condition, step, result: self.accumulator() }
            }
            Quantifier::One => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let (accu, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let next = self.call(op::ADD, vec![accu, one]);
                let accu = self.accumulator();
                let step = self.call(op::CONDITIONAL, vec![predicate, next, accu]);
                let (accu, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let result = self.call(op::EQUALS, vec![accu, one]);
                Loop { kind: FoldKind::ExistsOne, init, condition, step, result }
            }
        };
        Ok(self.fold(target, var, var2, &body))
    }

    /// `accumulator + [element]`, under `filter` if there is one.
    fn appending(&mut self, filter: Option<ExprId>, value: ExprId) -> Loop {
        let init = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let (accu, element) = (self.accumulator(), self.list(vec![value]));
        let append = self.call(op::ADD, vec![accu, element]);
        let step = self.filtered(filter, append);
        Loop { kind: FoldKind::Append { filter, value }, init, condition, step, result: self.accumulator() }
    }

    fn filtered(&mut self, filter: Option<ExprId>, step: ExprId) -> ExprId {
        match filter {
            Some(filter) => {
                let accu = self.accumulator();
                self.call(op::CONDITIONAL, vec![filter, step, accu])
            }
            None => step,
        }
    }

    fn map(&mut self, target: ExprId, args: &[ExprId]) -> Expansion {
        let var = self.variable(args[0], "argument is not an identifier")?;
        let filter = (args.len() == 3).then(|| args[1]);
        let body = self.appending(filter, args[args.len() - 1]);
        Ok(self.fold(target, var, None, &body))
    }

    fn filter(&mut self, target: ExprId, args: &[ExprId]) -> Expansion {
        let var = self.variable(args[0], "argument is not an identifier")?;
        let body = self.appending(Some(args[1]), args[0]);
        Ok(self.fold(target, var, None, &body))
    }

    fn transform(&mut self, kind: Transform, target: ExprId, args: &[ExprId]) -> Expansion {
        let (var, var2) = self.variables(args, 2)?;
        let filter = (args.len() == 4).then(|| args[2]);
        let value = args[args.len() - 1];
        if matches!(kind, Transform::List) {
            let body = self.appending(filter, value);
            return Ok(self.fold(target, var, var2, &body));
        }
        let init = self.add(ExprKind::Map(Vec::new()));
        let condition = self.literal(Literal::Bool(true));
        let mut insert = vec![self.accumulator()];
        if matches!(kind, Transform::Map) {
            insert.push(self.ident(var.clone()));
        }
        insert.push(value);
        let step = self.call(op::MAP_INSERT, insert);
        let step = self.filtered(filter, step);
        let kind = match kind {
            Transform::Map => FoldKind::Insert { filter, value },
            _ => FoldKind::InsertEntries { filter, value },
        };
        let body = Loop { kind, init, condition, step, result: self.accumulator() };
        Ok(self.fold(target, var, var2, &body))
    }

    /// A comprehension over nothing whose accumulator is the bound variable.
    fn binding(&mut self, var: Cow<'s, str>, init: ExprId, result: ExprId) -> ExprId {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(var.clone());
        let unused = Cow::Borrowed("#unused");
        let kind = FoldKind::Bind;
        let fold = Comprehension { kind, range, var: unused, var2: None, accu: var, init, condition, step, result };
        self.add(ExprKind::Comprehension(Box::new(fold)))
    }

    fn bind(&mut self, args: &[ExprId]) -> Expansion {
        const MESSAGE: &str = "cel.bind() variable names must be simple identifiers";
        let var = self.name_of(args[0]).ok_or((args[0], Cow::Borrowed(MESSAGE)))?;
        Ok(self.binding(var, args[1], args[2]))
    }

    fn opt_map(&mut self, target: ExprId, args: &[ExprId], wrap: bool) -> Expansion {
        let function = if wrap { "optMap" } else { "optFlatMap" };
        let message = || Cow::Owned(format!("{function}() variable name must be a simple identifier"));
        let var = self.name_of(args[0]).ok_or_else(|| (args[0], message()))?;
        let has_value = self.member("hasValue", target, Vec::new());
        if self.parser.ast.exprs.len() > MAX_EXPRS {
            return Err((args[0], Cow::Owned(format!("{function}() is nested too deeply"))));
        }
        let copy = self.parser.ast.copy(target);
        let value = self.member("value", copy, Vec::new());
        let mut mapped = self.binding(var, value, args[1]);
        if wrap {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call(op::CONDITIONAL, vec![has_value, mapped, none]))
    }

    /// Binds the list, maps it to its keys, and sorts by them.
    fn sort_by(&mut self, target: ExprId, args: &[ExprId]) -> Expansion {
        const INPUT: &str = "@__sortBy_input__";
        let allowed = matches!(
            self.parser.ast.kind(target),
            ExprKind::List { .. }
                | ExprKind::Select(_)
                | ExprKind::Ident(_)
                | ExprKind::Comprehension(_)
                | ExprKind::Call(_)
        );
        if !allowed {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target, Cow::Borrowed(message)));
        }
        let input = self.ident(Cow::Borrowed(INPUT));
        let keys = self.map(input, args)?;
        let input = self.ident(Cow::Borrowed(INPUT));
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.binding(Cow::Borrowed(INPUT), target, sorted))
    }
}
