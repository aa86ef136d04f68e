//! The type checker: resolves names and overloads, infers types.

mod aggregate;

use std::borrow::Cow;
use std::sync::Arc;

use crate::ast::{Ast, Call, ExprId, ExprKind, Literal, Select};
use crate::decl::{DeclType, Field, static_type};
use crate::env::Environment;
use crate::functions::{Declaration, Overload, simple_type};
use crate::operators as op;
use crate::program::ObjectKind;
use crate::source::{Issue, add_issue};
use crate::types::{Substitution, Type, most_general};

/// What a name or call stands for.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    None,
    /// Index into the environment's variables.
    Variable(u32),
    /// Slot of a comprehension's variable.
    Local(u32),
    /// A type used as a value.
    Type(Type),
    /// An object literal.
    Construct(ObjectKind),
    /// A function; its possible overloads are a range of [`Checked::overloads`].
    Call(CallReference),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallReference {
    pub(crate) declaration: &'static Declaration,
    /// The target is part of the function's name, e.g. `sets` of `sets.contains(a, b)`.
    pub(crate) namespaced: bool,
    first: u32,
    count: u32,
}

/// The result of checking: types and references by expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Reference>,
    overloads: Vec<&'static Overload>,
}

impl Checked {
    pub(crate) fn type_of(&self, id: ExprId) -> &Type {
        &self.types[id as usize]
    }

    pub(crate) fn overloads(&self, call: CallReference) -> &[&'static Overload] {
        &self.overloads[call.first as usize..(call.first + call.count) as usize]
    }

    pub(crate) fn call(&self, id: ExprId) -> Option<CallReference> {
        match &self.references[id as usize] {
            Reference::Call(call) => Some(*call),
            _ => None,
        }
    }
}

struct Local<'s> {
    name: Cow<'s, str>,
    value: Type,
}

struct Checker<'a, 's> {
    ast: &'a Ast<'s>,
    env: &'a Environment,
    source: &'s str,
    checked: Checked,
    substitution: Substitution,
    locals: Vec<Local<'s>>,
    issues: Vec<Issue>,
}

/// Checks a tree that parsed without issues.
pub(crate) fn check<'s>(ast: &Ast<'s>, source: &'s str, env: &Environment) -> Result<Checked, Vec<Issue>> {
    let count = ast.exprs.len();
    let checked =
        Checked { types: vec![Type::Error; count], references: vec![Reference::None; count], overloads: Vec::new() };
    let substitution = Substitution::default();
    let mut checker = Checker { ast, env, source, checked, substitution, locals: Vec::new(), issues: Vec::new() };
    checker.expr(ast.root);
    for at in 0..count {
        checker.checked.types[at] = checker.substitution.apply(&checker.checked.types[at], true);
    }
    if checker.issues.is_empty() { Ok(checker.checked) } else { Err(checker.issues) }
}

impl<'s> Checker<'_, 's> {
    fn report(&mut self, id: ExprId, message: String) {
        self.report_at(self.ast.expr(id).offset, message);
    }

    fn report_at(&mut self, offset: usize, message: String) {
        if self.env.unchecked {
            return;
        }
        add_issue(&mut self.issues, self.source, offset, message);
    }

    fn set(&mut self, id: ExprId, value: Type) {
        self.checked.types[id as usize] = value;
    }

    fn refer(&mut self, id: ExprId, reference: Reference) {
        self.checked.references[id as usize] = reference;
    }

    fn type_of(&self, id: ExprId) -> &Type {
        &self.checked.types[id as usize]
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }

    fn new_variable(&mut self) -> Type {
        Type::Variable(self.substitution.new_variables(1))
    }

    fn expr(&mut self, id: ExprId) {
        match self.ast.kind(id) {
            ExprKind::Invalid => {}
            ExprKind::Literal(literal) => self.set(id, literal_type(literal)),
            ExprKind::Ident(name) => self.ident(id, name),
            ExprKind::Select(select) => self.select(id, select),
            ExprKind::Call(call) => self.call(id, call),
            ExprKind::List { elements, optional } => self.list(id, elements, optional),
            ExprKind::Map(entries) => self.map(id, entries),
            ExprKind::Struct { name, fields } => self.structure(id, name, fields),
            ExprKind::Comprehension(fold) => self.comprehension(id, fold),
        }
    }

    /// Resolves a name to a local variable, a declared variable or a type.
    fn lookup(&self, name: &str) -> Option<(Type, Reference)> {
        // The releases' checker finds local variables by absolute names too.
        let local = if self.env.is_language() { name } else { name.strip_prefix('.').unwrap_or(name) };
        if let Some(slot) = self.locals.iter().rposition(|known| known.name == local) {
            let slot_number = u32::try_from(slot).unwrap_or(u32::MAX);
            return Some((self.locals[slot].value.clone(), Reference::Local(slot_number)));
        }
        self.env.resolve(name, |name| self.lookup_absolute(name))
    }

    fn lookup_absolute(&self, name: &str) -> Option<(Type, Reference)> {
        if let Some(at) = self.env.variables.iter().position(|variable| &*variable.name == name) {
            let variable = Reference::Variable(u32::try_from(at).unwrap_or(u32::MAX));
            return Some((self.env.variables[at].value_type.clone(), variable));
        }
        let named = self.named_type(name)?;
        Some((Type::Type(Some(Arc::new(named.clone()))), Reference::Type(named)))
    }

    fn report_undeclared(&mut self, id: ExprId, name: &str) {
        let container = &self.env.container;
        self.report(id, format!("undeclared reference to '{name}' (in container '{container}')"));
    }

    fn named_type(&self, name: &str) -> Option<Type> {
        const SIMPLE: [&str; 10] = [
            "bool",
            "bytes",
            "double",
            "google.protobuf.Duration",
            "int",
            "null_type",
            "string",
            "google.protobuf.Timestamp",
            "uint",
            "dyn",
        ];
        if let Some(known) = SIMPLE[..9].iter().find(|&&known| known == name) {
            return Some(simple_type(known));
        }
        if let Some(decl) = self.env.types.iter().find(|decl| decl.type_name() == name) {
            return Some(Type::Object(Arc::clone(decl)));
        }
        if self.env.patch_types
            && let Some(decl) = patch_type(name)
        {
            return Some(Type::Object(decl));
        }
        if let Some(message) = self.env.messages.get(name) {
            return Some(Type::Message(Arc::clone(&message.name)));
        }
        match name {
            "list" => Some(Type::list(Type::Dyn)),
            "map" => Some(Type::map(Type::Dyn, Type::Dyn)),
            "type" => Some(Type::Type(None)),
            "optional_type" => Some(Type::optional(Type::Dyn)),
            _ => LIBRARY_TYPES.iter().find(|&&known| known == name).map(|known| Type::Named(known)),
        }
    }

    fn ident(&mut self, id: ExprId, name: &str) {
        match self.lookup(name) {
            Some((value, reference)) => {
                self.set(id, value);
                self.refer(id, reference);
            }
            None => {
                self.report_undeclared(id, name);
                self.set(id, Type::Error);
            }
        }
    }

    fn select(&mut self, id: ExprId, select: &Select<'s>) {
        // `a.b.c` may be one declared name.
        if !select.test_only
            && self.may_be_qualified(id)
            && let Some(name) = self.ast.qualified_name(id)
            && let Some((value, reference)) = self.lookup(&name)
        {
            self.set(id, value);
            self.refer(id, reference);
            return;
        }
        let result = self.field(id, select.operand, &select.field, false);
        let result = if select.test_only { Type::Bool } else { result };
        let result = self.substitution.apply(&result, false);
        self.set(id, result);
    }

    /// False if a chain of selections starts at a variable that no dotted name starts with: the usual case, decided
    /// without building the name.
    fn may_be_qualified(&self, id: ExprId) -> bool {
        let mut at = id;
        loop {
            match self.ast.kind(at) {
                ExprKind::Select(select) => at = select.operand,
                ExprKind::Ident(name) => {
                    if self.env.is_language() && self.locals.iter().any(|local| local.name == *name) {
                        return false;
                    }
                    let starts = |known: &str| known.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('.'));
                    return !self.env.container.is_empty()
                        || starts("google.protobuf")
                        || self.env.variables.iter().any(|variable| starts(&variable.name))
                        || self.env.types.iter().any(|decl| starts(decl.type_name()))
                        || self.env.messages.starts_with(starts)
                        || LIBRARY_TYPES.iter().any(|known| starts(known));
                }
                _ => return false,
            }
        }
    }

    fn field(&mut self, id: ExprId, operand: ExprId, field: &str, optional: bool) -> Type {
        self.expr(operand);
        let operand_type = self.substitution.apply(self.type_of(operand), false);
        let (target, was_optional) = match operand_type.unwrap_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand_type, false),
        };
        let result = match &target {
            Type::Map(kv) => kv.1.clone(),
            Type::Object(decl) if decl.is_open() => Type::Dyn,
            Type::Object(decl) => match self.env.field(decl, field) {
                Some(field) => static_type(&field.decl),
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Message(name) => match self.env.messages.get(name).and_then(|message| message.fields.get(field)) {
                Some(declared) => declared.clone(),
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Named(name) if !LIBRARY_TYPES.contains(name) => {
                self.report(id, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Variable(_) => {
                self.substitution.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            _ => {
                self.report(id, format!("type '{target}' does not support field selection"));
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(result) } else { result }
    }

    fn optional_field(&mut self, id: ExprId, call: &Call<'s>) {
        let ExprKind::Literal(Literal::String(field)) = self.ast.kind(call.args[1]) else { return };
        let field = field.clone();
        let result = self.field(id, call.args[0], &field, true);
        let result = self.substitution.apply(&result, false);
        self.set(id, result);
        self.set(call.args[1], Type::String);
        if let Some(declaration) = self.env.function(op::OPT_SELECT) {
            self.refer_call(id, declaration, false, &[&declaration.overloads[0]]);
        }
    }

    fn refer_call(
        &mut self,
        id: ExprId,
        declaration: &'static Declaration,
        namespaced: bool,
        found: &[&'static Overload],
    ) {
        let first = u32::try_from(self.checked.overloads.len()).unwrap_or(u32::MAX);
        self.checked.overloads.extend_from_slice(found);
        let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
        self.refer(id, Reference::Call(CallReference { declaration, namespaced, first, count }));
    }

    fn call(&mut self, id: ExprId, call: &Call<'s>) {
        if call.function == op::OPT_SELECT {
            return self.optional_field(id, call);
        }
        for &arg in &call.args {
            self.expr(arg);
        }
        let env = self.env;
        if let Some(target) = call.target {
            // Either `a.b.c(...)` is a function with a dotted name, or `c` is a function of `a.b`.
            if let Some(prefix) = self.ast.qualified_name(target)
                && let Some(declaration) =
                    env.resolve(&format!("{prefix}.{}", call.function), |name| env.function(name))
            {
                return self.resolve(id, declaration, None, &call.args, true);
            }
            self.expr(target);
        }
        let found = match call.target {
            Some(_) => env.function(&call.function),
            None => env.resolve(&call.function, |name| env.function(name)),
        };
        match found {
            Some(declaration) => self.resolve(id, declaration, call.target, &call.args, false),
            None => {
                self.set(id, Type::Error);
                self.report_undeclared(id, &call.function);
            }
        }
    }

    fn resolve(
        &mut self,
        id: ExprId,
        declaration: &'static Declaration,
        target: Option<ExprId>,
        args: &[ExprId],
        namespaced: bool,
    ) {
        if declaration.name == op::AND || declaration.name == op::OR {
            return self.resolve_logic(id, declaration, args);
        }
        let arg_types: Vec<Type> = target.iter().chain(args).map(|&arg| self.type_of(arg).clone()).collect();
        let mut found: Vec<&'static Overload> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &declaration.overloads {
            if overload.member != target.is_some() || !self.env.has(overload) {
                continue;
            }
            let first = self.substitution.new_variables(overload.variables);
            let matches = if overload.variables == 0 {
                self.substitution.all_assignable(&arg_types, &overload.params)
            } else {
                let params: Vec<Type> = overload.params.iter().map(|param| param.instantiate(first)).collect();
                self.substitution.all_assignable(&arg_types, &params)
            };
            if !matches {
                continue;
            }
            found.push(overload);
            let this = self.substitution.apply(&overload.result.instantiate(first), false);
            result = Some(match result {
                None => this,
                Some(before) if before.is_dyn() || this.is_exactly(&before) => before,
                Some(_) => Type::Dyn,
            });
        }
        if result.is_none() && self.env.unchecked {
            // Evaluation looks at the values.
            found.extend(declaration.overloads.iter().filter(|overload| overload.params.len() == arg_types.len()));
            self.set(id, Type::Dyn);
            if found.is_empty() {
                return;
            }
            result = Some(Type::Dyn);
        }
        let Some(result) = result else {
            let shown: Vec<String> = arg_types.iter().map(|t| self.substitution.apply(t, true).to_string()).collect();
            let signature = match target {
                Some(_) => format!("{}.({})", shown[0], shown[1..].join(", ")),
                None => format!("({})", shown.join(", ")),
            };
            self.set(id, Type::Error);
            let name = declaration.name;
            return self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
        };
        self.set(id, result);
        self.refer_call(id, declaration, namespaced, &found);
    }

    /// `&&` and `||` name the operand that is no bool.
    fn resolve_logic(&mut self, id: ExprId, declaration: &'static Declaration, args: &[ExprId]) {
        let mut valid = true;
        for &arg in args {
            let actual = self.type_of(arg).clone();
            if !self.substitution.assignable(&actual, &Type::Bool) {
                self.mismatch(arg, &Type::Bool, &actual);
                valid = false;
            }
        }
        if valid || self.env.unchecked {
            self.set(id, Type::Bool);
            self.refer_call(id, declaration, false, &[&declaration.overloads[0]]);
        } else {
            self.set(id, Type::Error);
        }
    }

    /// The common type of the elements of a literal.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.substitution.assignable(&previous, &current) {
            if self.env.is_language() && matches!(current, Type::Null) {
                return previous;
            }
            return most_general(&previous, &current).clone();
        }
        // Whether elements may differ is decided by `validate`.
        Type::Dyn
    }
}

/// The name of the type of one operation of a JSON patch.
const JSON_PATCH: &str = "JSONPatch";

/// A type that expressions of mutations construct, by its name.
fn patch_type(name: &str) -> Option<Arc<DeclType>> {
    if name == "Object" || name.starts_with("Object.") {
        return Some(Arc::new(DeclType::open_object(name)));
    }
    (name == JSON_PATCH).then(|| {
        let texts = ["op", "path", "from"].map(|name| Field::new(name, DeclType::string(None)));
        let value = Field::new("value", DeclType::dynamic());
        Arc::new(DeclType::named_object(name, texts.into_iter().chain([value])))
    })
}

/// Types of Kubernetes' libraries that expressions can name; the others have values only.
const LIBRARY_TYPES: [&str; 2] = ["net.IP", "net.CIDR"];

fn literal_type(literal: &Literal<'_>) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
