//! Checking of list, map and object literals and of comprehensions.

use super::{Checker, JSON_PATCH, Local, Reference};
use crate::ast::{Comprehension, ExprId, MapEntry, StructField};
use crate::decl::static_type;
use crate::message::WellKnown;
use crate::program::ObjectKind;
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
        self.set(id, Type::Error);
        let Some(named) = self.construction(name) else { return self.report_undeclared(id, name) };
        let kind = match named {
            Ok((kind, result)) => {
                self.set(id, result);
                self.refer(id, Reference::Construct(kind.clone()));
                Some(kind)
            }
            Err(message) => {
                self.report(id, message);
                None
            }
        };
        for field in fields {
            self.expr(field.value);
            let value = self.element_type(field.value, field.optional);
            let declared = kind.as_ref().and_then(|kind| self.field_of(kind, &field.name));
            match &kind {
                Some(ObjectKind::Declared(decl)) if declared.is_none() && decl.type_name() == JSON_PATCH => {
                    // Kubernetes' type has every field, but no type for those that it does not know.
                    let name = &field.name;
                    let message = format!("expected type of field '{name}' is '' but provided type is '{value}'");
                    self.report_at(field.offset, message);
                }
                Some(_) if declared.is_none() => {
                    self.report_at(field.offset, format!("undefined field '{}'", field.name));
                }
                Some(_) | None => {}
            }
            let declared = declared.unwrap_or(Type::Error);
            if !self.substitution.assignable(&declared, &value) {
                let name = &field.name;
                let message = format!("expected type of field '{name}' is '{declared}' but provided type is '{value}'");
                self.report_at(field.offset, message);
            }
        }
    }

    /// What an object literal of this name constructs, and its type, or why it cannot; nothing for unknown names.
    fn construction(&self, name: &str) -> Option<Result<(ObjectKind, Type), String>> {
        if self.env.is_language()
            && let Some(well_known) = self.env.resolve(name, WellKnown::by_name)
        {
            return Some(Ok((ObjectKind::WellKnown(well_known), well_known.result())));
        }
        let (found, _) = self.lookup(name)?;
        let Type::Type(Some(inner)) = &found else { return Some(Err(format!("'{found}' is not a type"))) };
        let kind = match &**inner {
            Type::Object(decl) => Some(ObjectKind::Declared(decl.clone())),
            Type::Message(name) => self.env.messages.get(name).cloned().map(ObjectKind::Message),
            _ => None,
        };
        let kind = kind.ok_or_else(|| format!("'{inner}' is not a message type"));
        Some(kind.map(|kind| (kind, (**inner).clone())))
    }

    fn field_of(&self, kind: &ObjectKind, name: &str) -> Option<Type> {
        match kind {
            ObjectKind::Declared(decl) if decl.is_open() => Some(Type::Dyn),
            ObjectKind::Declared(decl) => self.env.field(decl, name).map(|field| static_type(&field.decl)),
            ObjectKind::Message(message) => message.fields.get(name).cloned(),
            ObjectKind::WellKnown(well_known) => well_known.field(name),
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
