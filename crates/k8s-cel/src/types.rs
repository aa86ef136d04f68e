//! Static types: their names, assignability and substitution of type variables.

use std::fmt;
use std::sync::Arc;

use crate::decl::DeclType;

/// A static type of the expression language.
#[derive(Clone, Debug)]
pub enum Type {
    /// Checked at run time only.
    Dyn,
    /// The type of what has an error already.
    Error,
    /// `null`.
    Null,
    /// `bool`.
    Bool,
    /// 64-bit signed integer.
    Int,
    /// 64-bit unsigned integer.
    Uint,
    /// 64-bit floating point number.
    Double,
    /// Unicode text.
    String,
    /// A sequence of bytes.
    Bytes,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// A list of one element type.
    List(Arc<Type>),
    /// A map of key and value type.
    Map(Arc<(Type, Type)>),
    /// `optional_type(T)`.
    Optional(Arc<Type>),
    /// A declared object type.
    Object(Arc<DeclType>),
    /// A type of a Kubernetes library without fields, e.g. `kubernetes.Quantity`.
    Named(&'static str),
    /// `wrapper(T)`: a scalar or null, e.g. a field of type `google.protobuf.Int64Value`.
    Wrapper(Arc<Type>),
    /// A protobuf message type of the environment, by its full name.
    Message(Arc<str>),
    /// The type of a type; without parameter the type of any type.
    Type(Option<Arc<Type>>),
    /// A type variable.
    Variable(u32),
}

impl Type {
    /// A list of `element`.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// A map from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// An optional `value`.
    pub fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The type inside an optional.
    pub(crate) fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Type::Optional(inner) => Some(inner),
            _ => None,
        }
    }

    /// The parameters: element types, key and value, and so on.
    fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(t) | Type::Optional(t) | Type::Wrapper(t) | Type::Type(Some(t)) => vec![t],
            Type::Map(kv) => vec![&kv.0, &kv.1],
            _ => Vec::new(),
        }
    }

    fn rebuilt(&self, mut change: impl FnMut(&Type) -> Type) -> Type {
        match self {
            Type::List(t) => Type::list(change(t)),
            Type::Optional(t) => Type::optional(change(t)),
            Type::Type(Some(t)) => Type::Type(Some(Arc::new(change(t)))),
            Type::Map(kv) => Type::map(change(&kv.0), change(&kv.1)),
            _ => self.clone(),
        }
    }

    /// Whether both are the same type, variables included.
    pub fn is_exactly(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || a.type_name() == b.type_name(),
            (Type::Named(a), Type::Named(b)) => a == b,
            (Type::Message(a), Type::Message(b)) => a == b,
            (Type::Variable(a), Type::Variable(b)) => a == b,
            _ => {
                std::mem::discriminant(self) == std::mem::discriminant(other) && {
                    let (a, b) = (self.parameters(), other.parameters());
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_exactly(b))
                }
            }
        }
    }

    /// Whether the type has more than `limit` parts. Looks at no more than that.
    pub(crate) fn is_larger_than(&self, limit: usize) -> bool {
        let mut left = limit;
        let mut pending = vec![self];
        while let Some(next) = pending.pop() {
            if left == 0 {
                return true;
            }
            left -= 1;
            pending.extend(next.parameters());
        }
        false
    }

    /// Types whose values may also be null.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Null
                | Type::Optional(_)
                | Type::Object(_)
                | Type::Message(_)
                | Type::Wrapper(_)
                | Type::Named(_)
                | Type::Duration
                | Type::Timestamp
        )
    }

    /// Replaces the variables of an overload's signature by `first + n`.
    pub(crate) fn instantiate(&self, first: u32) -> Type {
        match self {
            Type::Variable(n) => Type::Variable(first + n),
            _ => self.rebuilt(|t| t.instantiate(first)),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Error => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::List(t) => write!(f, "list({t})"),
            Type::Map(kv) => write!(f, "map({}, {})", kv.0, kv.1),
            Type::Optional(t) => write!(f, "optional_type({t})"),
            Type::Object(decl) => f.write_str(decl.type_name()),
            Type::Named(name) => f.write_str(name),
            Type::Message(name) => f.write_str(name),
            Type::Wrapper(t) => write!(f, "wrapper({t})"),
            Type::Type(Some(t)) => write!(f, "type({t})"),
            Type::Type(None) => f.write_str("type"),
            Type::Variable(n) => write!(f, "_var{n}"),
        }
    }
}

/// What type variables stand for. Changes can be undone, because a candidate overload may fail halfway.
#[derive(Debug, Default)]
pub(crate) struct Substitution {
    bound: Vec<Option<Type>>,
    undo: Vec<(u32, Option<Type>)>,
}

impl Substitution {
    pub(crate) fn new_variables(&mut self, count: usize) -> u32 {
        let first = u32::try_from(self.bound.len()).unwrap_or(u32::MAX);
        self.bound.resize(self.bound.len() + count, None);
        first
    }

    fn find(&self, t: &Type) -> Option<&Type> {
        match t {
            Type::Variable(n) => self.bound.get(*n as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: u32, t: Type) {
        let old = self.bound[variable as usize].replace(t);
        self.undo.push((variable, old));
    }

    /// Runs `attempt`; if it fails, its bindings are undone.
    fn attempt(&mut self, attempt: impl FnOnce(&mut Self) -> bool) -> bool {
        let mark = self.undo.len();
        if attempt(self) {
            if mark == 0 {
                self.undo.clear();
            }
            return true;
        }
        for (variable, old) in self.undo.drain(mark..).rev() {
            self.bound[variable as usize] = old;
        }
        false
    }

    pub(crate) fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        self.attempt(|s| s.unify(a, b))
    }

    pub(crate) fn all_assignable(&mut self, a: &[Type], b: &[Type]) -> bool {
        a.len() == b.len() && self.attempt(|s| a.iter().zip(b).all(|(a, b)| s.unify(a, b)))
    }

    /// Replaces bound variables, unbound ones by `dyn` if asked to.
    pub(crate) fn apply(&self, t: &Type, unbound_to_dyn: bool) -> Type {
        if let Some(bound) = self.find(t) {
            return self.apply(bound, unbound_to_dyn);
        }
        match t {
            Type::Variable(_) if unbound_to_dyn => Type::Dyn,
            Type::List(_) | Type::Map(_) | Type::Optional(_) | Type::Type(Some(_)) => {
                t.rebuilt(|t| self.apply(t, unbound_to_dyn))
            }
            _ => t.clone(),
        }
    }

    fn unify(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Variable(n) = b {
            match self.substitute(a, *n) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Variable(n) = a {
            return self.substitute(b, *n).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        if matches!(a, Type::Null) {
            return b.is_nullable();
        }
        if matches!(b, Type::Null) {
            return a.is_nullable();
        }
        match (a, b) {
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a), Type::Map(b)) => self.unify(&a.0, &b.0) && self.unify(&a.1, &b.1),
            (Type::Wrapper(a), b) | (b, Type::Wrapper(a)) if !matches!(b, Type::Wrapper(_)) => a.is_exactly(b),
            _ => a.is_exactly(b),
        }
    }

    /// Whether variable `n` can stand for `t`, and whether it was bound before.
    fn substitute(&mut self, t: &Type, n: u32) -> (bool, bool) {
        let variable = Type::Variable(n);
        if t.is_exactly(&variable) {
            return (true, true);
        }
        if let Some(bound) = self.find(&variable).cloned() {
            if t.is_exactly(&bound) {
                return (true, true);
            }
            if !self.unify(t, &bound) {
                return (false, true);
            }
            let general = most_general(t, &bound).clone();
            if !self.occurs(&variable, &general) {
                self.bind(n, general);
            }
            return (true, true);
        }
        if self.occurs(&variable, t) {
            return (false, false);
        }
        self.bind(n, t.clone());
        (true, false)
    }

    fn occurs(&self, variable: &Type, within: &Type) -> bool {
        if variable.is_exactly(within) {
            return true;
        }
        match within {
            Type::Variable(_) => self.find(within).is_some_and(|bound| self.occurs(variable, bound)),
            _ => within.parameters().iter().any(|t| self.occurs(variable, t)),
        }
    }
}

/// The more general of two types that unify.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if is_equal_or_less_specific(a, b) { a } else { b }
}

fn is_equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Variable(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Variable(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => is_equal_or_less_specific(&a.0, &b.0) && is_equal_or_less_specific(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        (Type::Wrapper(a), b) if !matches!(b, Type::Wrapper(_)) => a.is_exactly(b),
        _ => a.is_exactly(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bound_once_and_undone_on_failure() {
        let mut s = Substitution::default();
        let a = Type::Variable(s.new_variables(1));
        let two = [a.clone(), a.clone()];
        assert!(!s.all_assignable(&[Type::Int, Type::String], &two));
        assert!(s.all_assignable(&[Type::list(Type::Int), Type::list(Type::Dyn)], &two));
        assert_eq!(s.apply(&a, false).to_string(), "list(dyn)");
    }

    #[test]
    fn null_is_assignable_to_objects_and_wrappers_only() {
        let mut s = Substitution::default();
        assert!(s.assignable(&Type::Null, &Type::Named("kubernetes.Quantity")));
        assert!(s.assignable(&Type::Timestamp, &Type::Null));
        assert!(!s.assignable(&Type::Null, &Type::Int));
        assert!(s.assignable(&Type::Null, &Type::Null));
    }

    #[test]
    fn variable_does_not_contain_itself() {
        let mut s = Substitution::default();
        let a = Type::Variable(s.new_variables(1));
        assert!(!s.assignable(&Type::list(a.clone()), &a));
    }
}
