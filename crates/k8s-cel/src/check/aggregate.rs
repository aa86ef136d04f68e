//! Checking of list, map and object literals and of comprehensions.

use super::{Checker, Local, Reference};
use crate::ast::{Comprehension, ExprId, MapEntry, StructField};
use crate::decl::static_type;
use crate::types::Type;

/// Parts of a map's type. The deepest literal that parses has fewer.
const MAX_TYPE_PARTS: usize = 1_000;

impl<'s> Checker<'_, 's> {
    /// The type of an element; optional elements must be of an optional type.
    fn element_type(&mut self, id: ExprId, optional: bool) -> Type {
        let value = self.type_of(id).clone();
        if !optional {
            return value;
        }
        match value.unwrap_optional() {
            Some(inner) => inner.clone(),
            None => {
                if !value.is_dyn() {
                    self.mismatch(id, &Type::optional(value.clone()), &value);
                }
                value
            }
        }
    }

    pub(super) fn list(&mut self, id: ExprId, elements: &[ExprId], optional: &[bool]) {
        let mut joined = None;
        for (&element, &optional) in elements.iter().zip(optional) {
            self.expr(element);
            let value = self.element_type(element, optional);
            joined = Some(self.join(joined, value));
        }
        let element = joined.unwrap_or_else(|| self.new_variable());
        self.set(id, Type::list(element));
    }

    pub(super) fn map(&mut self, id: ExprId, entries: &[MapEntry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.expr(entry.key);
            let key = self.type_of(entry.key).clone();
            keys = Some(self.join(keys, key));
            self.expr(entry.value);
            let value = self.element_type(entry.value, entry.optional);
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.new_variable());
        let value = values.unwrap_or_else(|| self.new_variable());
        let result = self.substitution.apply(&Type::map(key, value), false);
        // Every `.map(x, {x: x})` doubles the size of the type.
        if result.is_larger_than(MAX_TYPE_PARTS) {
            self.report(id, format!("the type of the map has more than {MAX_TYPE_PARTS} parts"));
            return self.set(id, Type::Error);
        }
        self.set(id, result);
    }

    pub(super) fn structure(&mut self, id: ExprId, name: &str, fields: &[StructField<'s>]) {
        let Some((found, _)) = self.lookup(name) else {
            self.set(id, Type::Error);
            return self.report_undeclared(id, name);
        };
        let decl = match &found {
            Type::Type(Some(inner)) => match &**inner {
                Type::Object(decl) => Some(decl.clone()),
                other => {
                    self.report(id, format!("'{other}' is not a message type"));
                    None
                }
            },
            other => {
                self.report(id, format!("'{other}' is not a type"));
                None
            }
        };
        let result = decl.clone().map_or(Type::Error, Type::Object);
        self.set(id, result.clone());
        self.refer(id, Reference::Type(result));
        for field in fields {
            self.expr(field.value);
            let value = self.element_type(field.value, field.optional);
            let declared =
                decl.as_ref().and_then(|decl| self.env.field(decl, &field.name)).map(|f| static_type(&f.decl));
            if declared.is_none() && decl.is_some() {
                self.report_at(field.offset, format!("undefined field '{}'", field.name));
            }
            let declared = declared.unwrap_or(Type::Error);
            if !self.substitution.assignable(&declared, &value) {
                let name = &field.name;
                let message = format!("expected type of field '{name}' is '{declared}' but provided type is '{value}'");
                self.report_at(field.offset, message);
            }
        }
    }

    pub(super) fn comprehension(&mut self, id: ExprId, fold: &Comprehension<'s>) {
        self.expr(fold.range);
        self.expr(fold.init);
        let range = self.substitution.apply(self.type_of(fold.range), false);
        let accu = self.type_of(fold.init).clone();
        self.locals.push(Local { name: fold.accu.clone(), value: accu.clone() });
        let (first, second) = self.variable_types(fold, &range);
        self.locals.push(Local { name: fold.var.clone(), value: first });
        if let Some(name) = &fold.var2 {
            self.locals.push(Local { name: name.clone(), value: second });
        }
        self.expr(fold.condition);
        self.assert_type(fold.condition, &Type::Bool);
        self.expr(fold.step);
        self.assert_type(fold.step, &accu);
        self.locals.truncate(self.locals.len() - 1 - usize::from(fold.var2.is_some()));
        self.expr(fold.result);
        self.locals.pop();
        let result = self.substitution.apply(self.type_of(fold.result), false);
        self.set(id, result);
    }

    fn variable_types(&mut self, fold: &Comprehension<'s>, range: &Type) -> (Type, Type) {
        match range {
            Type::List(element) if fold.var2.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(kv) => kv.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.substitution.assignable(&Type::Dyn, range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let text = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.report(fold.range, format!("expression of type '{range}' {text}"));
                (Type::Error, Type::Error)
            }
        }
    }

    fn assert_type(&mut self, id: ExprId, expected: &Type) {
        let actual = self.type_of(id).clone();
        if !self.substitution.assignable(expected, &actual) {
            self.mismatch(id, expected, &actual);
        }
    }
}
