//! Function calls: arguments, cost, dispatch.

use std::ops::Deref;

use super::{Context, Evaluated};
use crate::convert;
use crate::error::EvalError;
use crate::function::Function;
use crate::library::{authorizer, lists, net, optionals, quantity, regexes, semver, sets, strings, times, url};
use crate::library::{format, text_format};
use crate::ops;
use crate::program::{CallNode, Node};
use crate::runtime_cost::of_result;
use crate::value::{List, Value};

/// Converts a constant while compiling.
pub(crate) fn convert_constant(function: Function, value: Value<'static>) -> Evaluated<'static> {
    convert::convert(function, value)
}

/// A call's arguments and what it knows from compilation.
pub(crate) struct Invocation<'c, 'a> {
    pub(crate) function: Function,
    pub(crate) overload: &'static str,
    pub(crate) args: Args<'a>,
    pub(crate) node: &'c CallNode,
}

/// The arguments of a call; usual numbers of them need no allocation.
pub(crate) enum Args<'a> {
    One([Value<'a>; 1]),
    Two([Value<'a>; 2]),
    Many(Vec<Value<'a>>),
}

impl<'a> Deref for Args<'a> {
    type Target = [Value<'a>];

    fn deref(&self) -> &[Value<'a>] {
        match self {
            Args::One(args) => args,
            Args::Two(args) => args,
            Args::Many(args) => args,
        }
    }
}

impl<'a> Invocation<'_, 'a> {
    /// The error of a function that has no overload for these values.
    pub(crate) fn no_overload(&self) -> EvalError {
        let types: Vec<String> = self.args.iter().map(Value::type_name).collect();
        EvalError::new(format!("no such overload: {}({})", self.function.name(), types.join(", ")))
    }

    pub(crate) fn text(&self, at: usize) -> Result<&str, EvalError> {
        self.args.get(at).and_then(Value::as_str).ok_or_else(|| self.no_overload())
    }

    pub(crate) fn int(&self, at: usize) -> Result<i64, EvalError> {
        match self.args.get(at) {
            Some(Value::Int(value)) => Ok(*value),
            _ => Err(self.no_overload()),
        }
    }

    pub(crate) fn list(&self, at: usize) -> Result<&List<'a>, EvalError> {
        match self.args.get(at) {
            Some(Value::List(list)) => Ok(list),
            _ => Err(self.no_overload()),
        }
    }
}

/// Calls with overloads for different numbers of arguments, like those with many arguments, end at the first error: the
/// rest is not evaluated, and the call costs nothing.
fn is_general(node: &CallNode) -> bool {
    match node.function {
        Function::IndexOf | Function::LastIndexOf => node.overload.is_empty(),
        Function::FormatString => true,
        _ => false,
    }
}

impl<'a> Context<'a> {
    pub(super) fn call(&mut self, node: &'a CallNode) -> Evaluated<'a> {
        let mut failed: Option<EvalError> = None;
        let args = match node.args.as_slice() {
            [only] => Args::One([self.argument(only, &mut failed)?]),
            [left, right] => {
                let left = self.argument(left, &mut failed)?;
                if is_general(node)
                    && let Some(error) = failed
                {
                    return Err(error);
                }
                Args::Two([left, self.argument(right, &mut failed)?])
            }
            nodes => {
                let mut args = Vec::with_capacity(nodes.len());
                for (at, arg) in nodes.iter().enumerate() {
                    args.push(self.argument(arg, &mut failed)?);
                    if at + 1 < nodes.len()
                        && let Some(error) = failed
                    {
                        return Err(error);
                    }
                }
                Args::Many(args)
            }
        };
        if let Some(error) = failed {
            // A match of a constant pattern is no call there; other calls cost what they would for a scalar.
            if node.regex.is_none() {
                self.charge(node.cost.cost(&args)?)?;
                self.charge(if node.cost.is_of_result() { of_result(node.cost, 1) } else { 0 })?;
            }
            return Err(error);
        }
        self.charge(node.cost.cost(&args)?)?;
        let invocation = Invocation { function: node.function, overload: node.overload, args, node };
        let result = self.dispatch(invocation);
        if node.cost.is_of_result() {
            let size = result.as_ref().map_or(1, Value::cost_size);
            self.charge_after(&result, of_result(node.cost, size))?;
        }
        result
    }

    /// The value of an argument; null in place of an error, of which the first is kept.
    fn argument(&mut self, node: &'a Node, failed: &mut Option<EvalError>) -> Evaluated<'a> {
        match self.eval(node) {
            Err(error) if !error.is_cost_limit() => {
                failed.get_or_insert(error);
                Ok(Value::Null)
            }
            result => result,
        }
    }

    fn dispatch(&mut self, call: Invocation<'_, 'a>) -> Evaluated<'a> {
        use Function as F;
        match call.function {
            F::Add => self.add(&call),
            F::Subtract => ops::subtract(&call.args[0], &call.args[1]),
            F::Multiply => ops::multiply(&call.args[0], &call.args[1]),
            F::Divide => ops::divide(&call.args[0], &call.args[1]),
            F::Modulo => ops::modulo(&call.args[0], &call.args[1]),
            F::Negate => ops::negate(&call.args[0]),
            F::In => self.contains(&call.args[0], &call.args[1]),
            F::Size => {
                // Code points are counted fast.
                self.burn(byte_length(&call.args[0]) / 256)?;
                size(&call)
            }
            F::ToBytes | F::ToString => {
                self.burn(byte_length(&call.args[0]) / 8)?;
                convert_call(call)
            }
            F::ToBool | F::ToDouble | F::ToDuration | F::ToDyn | F::ToInt => convert_call(call),
            F::ToTimestamp | F::ToUint | F::TypeOf => convert_call(call),
            F::Contains | F::StartsWith | F::EndsWith => strings::search(&call),
            F::Matches | F::Find | F::FindAll => regexes::call(self, &call),
            _ => self.dispatch_library(&call),
        }
    }

    fn dispatch_library(&mut self, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
        use Function as F;
        match call.function {
            F::CharAt | F::LowerAscii | F::UpperAscii | F::Replace | F::Split | F::Substring | F::Trim | F::Join => {
                strings::call(self, call)
            }
            F::StringsQuote => strings::quote(call),
            F::EscapeKey => strings::escape_key(self, call),
            F::FormatString => text_format::call(self, call),
            F::IndexOf | F::LastIndexOf if matches!(call.args[0], Value::String(_)) => strings::call(self, call),
            // No release has the overload for strings, and a dynamic operand finds the other one.
            F::Reverse if matches!(call.args[0], Value::String(_)) => {
                if call.overload == "list_reverse" {
                    return Err(call.no_overload());
                }
                strings::call(self, call)
            }
            F::IndexOf
            | F::LastIndexOf
            | F::IsSorted
            | F::Sum
            | F::ListMax
            | F::ListMin
            | F::Includes
            | F::Distinct => lists::call(self, call),
            F::Flatten | F::ListsRange | F::Reverse | F::Slice | F::Sort | F::SortByKeys | F::First | F::Last => {
                lists::call(self, call)
            }
            F::SetsContains | F::SetsEquivalent | F::SetsIntersects => sets::call(self, call),
            F::OptionalNone | F::OptionalOf | F::OptionalOfNonZeroValue | F::OptionalValue | F::HasValue => {
                optionals::call(self, call)
            }
            F::OptionalUnwrap | F::UnwrapOpt => optionals::call(self, call),
            F::ToUrl | F::IsURL | F::GetScheme | F::GetHost | F::GetHostname | F::GetPort | F::GetEscapedPath => {
                url::call(call)
            }
            F::GetQuery => url::call(call),
            F::FormatConstant => Ok(call.args[0].clone()),
            F::FormatNamed | F::Validate => format::call(call),
            F::GetDate | F::GetDayOfMonth | F::GetDayOfWeek | F::GetDayOfYear | F::GetFullYear | F::GetHours => {
                times::call(self, call)
            }
            F::GetMilliseconds | F::GetMinutes | F::GetMonth | F::GetSeconds => times::call(self, call),
            _ => self.dispatch_kubernetes(call),
        }
    }

    fn dispatch_kubernetes(&mut self, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
        use Function as F;
        match call.function {
            F::Ip | F::IpIsCanonical | F::IsIP | F::Family | F::IsUnspecified | F::IsLoopback | F::IsGlobalUnicast => {
                net::call(call)
            }
            F::IsLinkLocalMulticast | F::IsLinkLocalUnicast | F::Cidr | F::IsCIDR | F::ContainsIP | F::ContainsCIDR => {
                net::call(call)
            }
            F::Masked | F::PrefixLength => net::call(call),
            F::CompareTo | F::IsGreaterThan | F::IsLessThan if semver::is_semver(&call.args[0]) => semver::call(call),
            F::Semver | F::IsSemver | F::Major | F::Minor | F::Patch => semver::call(call),
            F::Quantity | F::IsQuantity | F::QuantityAdd | F::QuantitySub | F::Sign | F::AsInteger | F::IsInteger => {
                quantity::call(call)
            }
            F::AsApproximateFloat | F::CompareTo | F::IsGreaterThan | F::IsLessThan => quantity::call(call),
            F::Path | F::Group | F::ServiceAccount | F::Resource | F::Subresource | F::Namespace | F::ResourceName => {
                authorizer::call(self, call)
            }
            F::FieldSelector | F::LabelSelector | F::Check | F::Allowed | F::Reason | F::DecisionError | F::Errored => {
                authorizer::call(self, call)
            }
            _ => Err(call.no_overload()),
        }
    }

    fn add(&mut self, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
        match (&call.args[0], &call.args[1]) {
            (Value::List(a), Value::List(b)) => lists::add(self, a, b),
            (a, b) => {
                self.burn((byte_length(a) + byte_length(b)) / 8)?;
                ops::add(a, b)
            }
        }
    }

    fn contains(&mut self, value: &Value<'a>, container: &Value<'a>) -> Evaluated<'a> {
        match container {
            Value::Map(map) => Ok(Value::Bool(map.find(value)?.is_some())),
            Value::List(list) => self.list_contains(list, value).map(Value::Bool),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// In lists that an expression made, an error means that the element is another one.
    fn owned_contains(&mut self, list: &List<'a>, value: &Value<'a>) -> Result<bool, EvalError> {
        for item in list.iter() {
            match item.and_then(|item| self.equal(value, &item)) {
                Ok(true) => return Ok(true),
                Err(error) if error.is_cost_limit() => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(false)
    }

    /// Whether an element equals the value; an error of a comparison counts if none does.
    pub(crate) fn list_contains(&mut self, list: &List<'a>, value: &Value<'a>) -> Result<bool, EvalError> {
        if list.decl().is_none() {
            return self.owned_contains(list, value);
        }
        let mut failed = None;
        for item in list.iter() {
            match item.and_then(|item| self.equal(&item, value)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if error.is_cost_limit() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(false), Err)
    }
}

fn convert_call<'a>(call: Invocation<'_, 'a>) -> Evaluated<'a> {
    match call.args {
        Args::One([value]) => convert::convert(call.function, value),
        Args::Two(_) | Args::Many(_) => Err(call.no_overload()),
    }
}

fn size<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match &call.args[0] {
        Value::Opaque(_) => Err(EvalError::new("no such overload: size")),
        Value::Duration(_) | Value::Timestamp(_) => Err(EvalError::no_such_overload()),
        value => match value.size() {
            Some(size) => Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX))),
            None => Err(EvalError::new("no such overload: size")),
        },
    }
}

/// Bytes that an operation on text or bytes touches.
fn byte_length(value: &Value<'_>) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}
