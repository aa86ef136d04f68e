//! Environments: what a server of a release lets expressions use.

use std::sync::Arc;

use crate::ast::Ast;
use crate::check::{Checked, check};
use crate::decl::{DeclKind, DeclType, FieldDecl, name_objects, static_type};
use crate::function::Function;
use crate::functions::{Declaration, Overload, declarations};
use crate::macros::MacroSet;
use crate::message::{MessageType, MessageTypes};
use crate::parser::{Syntax, is_reserved, parse};
use crate::plan::plan;
use crate::program::Program;
use crate::source::CompileError;
use crate::types::Type;
use crate::validate::validate;

/// A Kubernetes release, by its minor version: `Release(36)` is 1.36. Releases before 1.31 are treated as 1.31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u8);

/// Stands for "all that this crate knows", releases or not.
const NO_RELEASE: u8 = 99;

/// The variables, types and functions that an expression can use.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(crate) variables: Vec<Variable>,
    /// Object types that expressions can name.
    pub(crate) types: Vec<Arc<DeclType>>,
    pub(crate) messages: Arc<MessageTypes>,
    /// Minor of the newest release whose functions may be used.
    compatibility: u8,
    /// Minor of the server's own release.
    server: u8,
    /// Type errors are left to evaluation.
    pub(crate) unchecked: bool,
    /// Expressions can construct `Object` and `JSONPatch`.
    pub(crate) patch_types: bool,
    /// The namespace that names are resolved in; empty in Kubernetes.
    pub(crate) container: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) decl: Arc<DeclType>,
    pub(crate) value_type: Type,
}

impl Environment {
    /// For expressions that a client writes: only what the release before knows too, so that a rollback can read them.
    pub fn for_new_expressions(release: Release) -> Self {
        let server = release.0.max(31);
        Self::with_versions(server - 1, server)
    }

    /// For expressions that are stored already, and for evaluation: everything the release knows.
    pub fn for_stored_expressions(release: Release) -> Self {
        let server = release.0.max(31);
        Self::with_versions(server, server)
    }

    /// The language as its specification has it, without Kubernetes' restrictions: mixed literals, `cel.bind`, the newer `format`.
    pub fn language() -> Self {
        Self::with_versions(NO_RELEASE, NO_RELEASE)
    }

    fn with_versions(compatibility: u8, server: u8) -> Self {
        Self {
            variables: Vec::new(),
            types: Vec::new(),
            messages: Arc::default(),
            compatibility,
            server,
            unchecked: false,
            patch_types: false,
            container: String::new(),
        }
    }

    /// Compiles without type errors: unknown names and wrong types are errors of evaluation, where it meets them.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// Resolves names in a namespace: in `a.b`, the name `x` means `a.b.x`, else `a.x`, else `x`.
    #[must_use]
    pub fn container(mut self, container: &str) -> Self {
        container.clone_into(&mut self.container);
        self
    }

    /// Calls `resolve` with the names that `name` can stand for, until one is known.
    pub(crate) fn resolve<T>(&self, name: &str, mut resolve: impl FnMut(&str) -> Option<T>) -> Option<T> {
        if let Some(absolute) = name.strip_prefix('.') {
            return resolve(absolute);
        }
        let mut container = self.container.as_str();
        while !container.is_empty() {
            if let Some(found) = resolve(&format!("{container}.{name}")) {
                return Some(found);
            }
            container = container.rsplit_once('.').map_or("", |(parent, _)| parent);
        }
        resolve(name)
    }

    /// Declares a variable. Unnamed object types are named after it.
    #[must_use]
    pub fn variable(self, name: &str, mut decl: DeclType) -> Self {
        name_objects(&mut decl, &format!("{name}Type"));
        self.shared_variable(name, Arc::new(decl))
    }

    /// Declares a variable of a type that other variables and environments share. Its object types must be
    /// [named](DeclType::named).
    #[must_use]
    pub fn shared_variable(mut self, name: &str, decl: Arc<DeclType>) -> Self {
        let value_type = static_type(&decl);
        self.variables.retain(|variable| &*variable.name != name);
        self.variables.push(Variable { name: Arc::from(name), decl, value_type });
        self
    }

    /// Declares a variable of an exact static type that no declaration expresses, e.g. `map(int, string)`.
    #[must_use]
    pub fn typed_variable(mut self, name: &str, value_type: Type) -> Self {
        let decl = Arc::new(DeclType::dynamic());
        self.variables.push(Variable { name: Arc::from(name), decl, value_type });
        self
    }

    /// Declares an object type that expressions can construct by its name.
    #[must_use]
    pub fn object_type(mut self, decl: DeclType) -> Self {
        self.types.push(Arc::new(decl));
        self
    }

    /// Declares what expressions of mutations construct: `Object` and `Object.<field>…`, which have every field, and
    /// `JSONPatch`; and the function `jsonpatch.escapeKey`.
    #[must_use]
    pub fn patch_types(mut self) -> Self {
        self.patch_types = true;
        self
    }

    /// Declares a protobuf message type. No Kubernetes release has any; [`Environment::language`] can.
    #[must_use]
    pub fn message_type(mut self, message: Arc<MessageType>) -> Self {
        Arc::make_mut(&mut self.messages).add(message);
        self
    }

    pub(crate) fn is_language(&self) -> bool {
        self.compatibility == NO_RELEASE
    }

    pub(crate) fn function(&self, name: &str) -> Option<&'static Declaration> {
        let declaration = declarations().get(name)?;
        if declaration.function == Function::EscapeKey && !self.patch_types {
            return None;
        }
        declaration.overloads.iter().any(|overload| self.has(overload)).then_some(declaration)
    }

    pub(crate) fn has(&self, overload: &Overload) -> bool {
        overload.since <= self.compatibility && overload.release <= self.server
    }

    /// The field of an object by its name in expressions. Reserved words need no escaping since 1.31.
    pub(crate) fn field<'d>(&self, decl: &'d DeclType, name: &str) -> Option<&'d FieldDecl> {
        let DeclKind::Object(object) = &decl.kind else { return None };
        object.fields.get(name).or_else(|| {
            let plain = self.compatibility >= 31 && is_reserved(name);
            plain.then(|| object.fields.get(&format!("__{name}__"))).flatten()
        })
    }

    fn syntax(&self) -> Syntax {
        let macros = MacroSet {
            optional: true,
            two_variables: self.compatibility >= 32,
            sort_by: self.compatibility >= 34,
            bind: self.is_language(),
        };
        Syntax { optionals: true, quoted_fields: self.is_language(), macros }
    }

    /// Parses, checks and compiles an expression.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let (ast, checked) = self.check(source)?;
        plan(&ast, &checked, self)
            .map_err(|error| CompileError::instantiation(source, error.to_string(), checked.type_of(ast.root).clone()))
    }

    /// Parses and checks `source`.
    pub(crate) fn check<'s>(&self, source: &'s str) -> Result<(Ast<'s>, Checked), CompileError> {
        let (ast, issues) = parse(source, self.syntax());
        if !issues.is_empty() {
            return Err(CompileError::new(source, issues));
        }
        let checked = check(&ast, source, self).map_err(|issues| CompileError::new(source, issues))?;
        let issues = if self.unchecked { Vec::new() } else { validate(&ast, &checked, source, self.is_language()) };
        if !issues.is_empty() {
            return Err(CompileError::new(source, issues));
        }
        Ok((ast, checked))
    }
}
