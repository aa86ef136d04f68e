//! Errors of evaluation.

use std::fmt;

/// Why an expression has no value. `Display` prints cel-go's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(Box<Kind>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Message(String),
    CostLimit,
}

impl EvalError {
    /// An error of a value that was made elsewhere.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Message(message.into())))
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    pub(crate) fn index_out_of_bounds(index: impl fmt::Display) -> Self {
        Self::new(format!("index out of bounds: {index}"))
    }

    /// The evaluation used up its budget. `&&` and `||` do not absorb this error.
    pub(crate) fn cost_limit() -> Self {
        Self(Box::new(Kind::CostLimit))
    }

    /// True if the evaluation was cancelled because it exceeded its cost limit.
    pub fn is_cost_limit(&self) -> bool {
        *self.0 == Kind::CostLimit
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Message(message) => f.write_str(message),
            Kind::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

impl std::error::Error for EvalError {}
