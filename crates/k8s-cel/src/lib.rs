//! Kubernetes' Common Expression Language as a library.
//!
#![doc = include_str!("../README.md")]
// Functions and operators are defined for a few of many types; for all others the rule is the same: no such overload.
#![allow(clippy::wildcard_enum_match_arm)]

mod ast;
mod check;
mod convert;
mod cost;
mod decl;
mod encoding;
mod env;
mod error;
mod escaping;
mod eval;
mod function;
mod functions;
mod lexer;
mod library;
mod literal;
mod macros;
mod message;
mod number;
mod operators;
mod ops;
mod parser;
mod plan;
mod program;
mod runtime_cost;
mod source;
mod time;
mod types;
mod validate;
mod value;

pub use cost::CostEstimate;
pub use decl::{DeclType, Field, ListKind};
pub use env::{Environment, Release};
pub use error::EvalError;
pub use escaping::{escape, unescape};
pub use eval::{DEFAULT_COST_LIMIT, Evaluation, Input, LazyFields, Outcome};
pub use library::Opaque;
pub use library::authorizer::{Authorization, Authorizer, AuthorizerDecision, CheckAttributes};
pub use message::MessageType;
pub use program::Program;
pub use source::{CompileError, Issue, Position};
pub use time::Timestamp;
pub use time::zone::TimeZones;
pub use types::Type;
pub use value::{Blob, List, Map, Text, Value};
