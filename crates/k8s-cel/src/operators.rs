//! Names of operators in the syntax tree.

use crate::lexer::TokenKind;

pub(crate) const CONDITIONAL: &str = "_?_:_";
pub(crate) const AND: &str = "_&&_";
pub(crate) const OR: &str = "_||_";
pub(crate) const NOT: &str = "!_";
pub(crate) const NEGATE: &str = "-_";
pub(crate) const INDEX: &str = "_[_]";
pub(crate) const OPT_INDEX: &str = "_[?_]";
pub(crate) const OPT_SELECT: &str = "_?._";
pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
pub(crate) const ADD: &str = "_+_";
pub(crate) const EQUALS: &str = "_==_";
pub(crate) const NOT_EQUALS: &str = "_!=_";
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

/// The function of a relation operator.
pub(crate) fn relation(kind: TokenKind) -> Option<&'static str> {
    Some(match kind {
        TokenKind::Less => "_<_",
        TokenKind::LessEquals => "_<=_",
        TokenKind::Greater => "_>_",
        TokenKind::GreaterEquals => "_>=_",
        TokenKind::Equals => EQUALS,
        TokenKind::NotEquals => NOT_EQUALS,
        TokenKind::In => "@in",
        _ => return None,
    })
}

/// The function of a sum (`level` 0) or product (`level` 1) operator.
pub(crate) fn calc(kind: TokenKind, level: u8) -> Option<&'static str> {
    Some(match (level, kind) {
        (0, TokenKind::Plus) => ADD,
        (0, TokenKind::Minus) => "_-_",
        (1, TokenKind::Star) => "_*_",
        (1, TokenKind::Slash) => "_/_",
        (1, TokenKind::Percent) => "_%_",
        _ => return None,
    })
}
