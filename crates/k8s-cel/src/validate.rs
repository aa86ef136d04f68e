//! Checks of literals after type checking: durations, timestamps, regular expressions, and mixed aggregates.

use crate::ast::{Ast, Call, ExprId, ExprKind, Literal};
use crate::check::Checked;
use crate::error::EvalError;
use crate::library::text_format::{Clause, interpolate};
use crate::source::{Issue, add_issue};
use crate::time::{Timestamp, parse_duration, parse_rfc3339};
use crate::types::Type;
use crate::value::type_name;

/// Returns a problem for every literal that can never be valid.
///
/// The language as specified, unlike Kubernetes, allows lists of different types and more arguments of `format`.
pub(crate) fn validate(ast: &Ast<'_>, checked: &Checked, source: &str, language: bool) -> Vec<Issue> {
    let mut validator = Validator { ast, checked, source, language, issues: Vec::new() };
    let exempt = if language { Vec::new() } else { within_format(ast) };
    for (at, expr) in ast.exprs.iter().enumerate() {
        let mixed_literals = language || exempt.get(at).copied().unwrap_or(false);
        match &expr.kind {
            ExprKind::Call(call) => {
                validator.call(&call.function, &call.args);
                if call.function == "format" {
                    validator.format(call, u32::try_from(at).unwrap_or(u32::MAX));
                }
            }
            ExprKind::List { elements, optional } if !mixed_literals => validator.list(elements, optional),
            ExprKind::Map(entries) if !mixed_literals => {
                for (at, entry) in entries.iter().enumerate().skip(1) {
                    let first = &entries[0];
                    validator.same_type(first.key, entry.key, false, false);
                    validator.same_type(first.value, entries[at].value, first.optional, entry.optional);
                }
            }
            _ => {}
        }
    }
    validator.issues
}

/// Marks what stands inside a call of `format`, whose argument lists elements of any types.
fn within_format(ast: &Ast<'_>) -> Vec<bool> {
    let mut marked = Vec::new();
    for expr in &ast.exprs {
        if let ExprKind::Call(call) = &expr.kind
            && call.function == "format"
        {
            marked.resize(ast.exprs.len(), false);
            for &id in call.target.iter().chain(&call.args) {
                mark(ast, id, &mut marked);
            }
        }
    }
    marked
}

fn mark(ast: &Ast<'_>, id: ExprId, marked: &mut [bool]) {
    if std::mem::replace(&mut marked[id as usize], true) {
        return;
    }
    match ast.kind(id) {
        ExprKind::Invalid | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        ExprKind::Select(select) => mark(ast, select.operand, marked),
        ExprKind::Call(call) => call.target.iter().chain(&call.args).for_each(|&id| mark(ast, id, marked)),
        ExprKind::List { elements, .. } => elements.iter().for_each(|&id| mark(ast, id, marked)),
        ExprKind::Map(entries) => entries.iter().for_each(|entry| {
            mark(ast, entry.key, marked);
            mark(ast, entry.value, marked);
        }),
        ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| mark(ast, field.value, marked)),
        ExprKind::Comprehension(fold) => {
            for part in [fold.range, fold.init, fold.condition, fold.step, fold.result] {
                mark(ast, part, marked);
            }
        }
    }
}

struct Validator<'a, 's> {
    ast: &'a Ast<'s>,
    checked: &'a Checked,
    source: &'a str,
    language: bool,
    issues: Vec<Issue>,
}

impl Validator<'_, '_> {
    fn report(&mut self, id: ExprId, message: String) {
        add_issue(&mut self.issues, self.source, self.ast.expr(id).offset, message);
    }

    fn call(&mut self, function: &str, args: &[ExprId]) {
        let Some(&argument) = args.first() else { return };
        let ExprKind::Literal(literal) = self.ast.kind(argument) else { return };
        let valid = match (function, literal) {
            ("duration", Literal::String(text)) => parse_duration(text).is_some(),
            ("duration", Literal::Int(_)) | ("duration" | "timestamp", Literal::Null) => false,
            ("timestamp", Literal::String(text)) => parse_rfc3339(text).is_some(),
            ("timestamp", Literal::Int(seconds)) => Timestamp::new(*seconds, 0).is_some(),
            ("matches", Literal::String(text)) => re2::translate(text).is_ok(),
            _ => true,
        };
        if !valid {
            self.report(argument, format!("invalid {function} argument"));
        }
    }

    /// Checks a constant format against the static types of its arguments.
    fn format(&mut self, call: &Call<'_>, id: ExprId) {
        let (Some(target), [arguments]) = (call.target, call.args.as_slice()) else { return };
        let ExprKind::Literal(Literal::String(format)) = self.ast.kind(target) else { return };
        let ExprKind::List { elements, .. } = self.ast.kind(*arguments) else { return };
        let mut blamed = None;
        let parsed =
            interpolate(format, elements.len(), |clause, at, _| match self.unprintable(clause, elements[at]) {
                None => Ok(()),
                Some(bad) => {
                    blamed = Some(bad);
                    let given = type_name(self.checked.type_of(bad));
                    Err(EvalError::new(format!("error during formatting: {}", clause.wrong_type(&given))))
                }
            });
        match parsed {
            Err(error) => self.report(blamed.unwrap_or(id), error.to_string()),
            Ok((_, used)) if elements.len() > used => {
                let given = elements.len();
                let message = format!("too many arguments supplied to string.format (expected {used}, got {given})");
                self.report(id, message);
            }
            Ok(_) => {}
        }
    }

    /// The expression that the clause cannot print.
    fn unprintable(&self, clause: Clause, id: ExprId) -> Option<ExprId> {
        let value = self.checked.type_of(id);
        let valid = match clause {
            _ if value.is_dyn() => true,
            Clause::Text => !matches!(value, Type::Optional(_) | Type::Object(_) | Type::Message(_) | Type::Named(_)),
            Clause::Decimal if self.language && matches!(value, Type::Double) => true,
            Clause::Fixed(_) | Clause::Scientific(_) if self.language && matches!(value, Type::Int | Type::Uint) => {
                true
            }
            Clause::Decimal | Clause::Octal => matches!(value, Type::Int | Type::Uint),
            Clause::Fixed(_) | Clause::Scientific(_) => matches!(value, Type::Double | Type::String),
            Clause::Binary => matches!(value, Type::Int | Type::Uint | Type::Bool),
            Clause::Hex { .. } => matches!(value, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        if !valid {
            return Some(id);
        }
        match (clause, self.ast.kind(id)) {
            (Clause::Text, ExprKind::List { elements, .. }) => {
                elements.iter().find_map(|&element| self.unprintable(clause, element))
            }
            (Clause::Text, ExprKind::Map(entries)) => entries.iter().find_map(|entry| {
                self.unprintable(clause, entry.key).or_else(|| self.unprintable(clause, entry.value))
            }),
            _ => None,
        }
    }

    fn list(&mut self, elements: &[ExprId], optional: &[bool]) {
        for (&element, &is_optional) in elements.iter().zip(optional).skip(1) {
            if !self.same_type(elements[0], element, optional[0], is_optional) {
                return;
            }
        }
    }

    fn same_type(&mut self, first: ExprId, other: ExprId, first_optional: bool, other_optional: bool) -> bool {
        let unwrap = |id, optional: bool| {
            let value: &Type = self.checked.type_of(id);
            if optional { value.unwrap_optional().unwrap_or(value) } else { value }
        };
        let (expected, actual) = (unwrap(first, first_optional), unwrap(other, other_optional));
        if expected.is_exactly(actual) {
            return true;
        }
        let message = format!("expected type '{expected}' but found '{actual}'");
        self.report(other, message);
        false
    }
}
