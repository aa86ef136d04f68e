//! Literals: numbers, text, bytes.

use std::borrow::Cow;

use super::Parser;
use crate::ast::{ExprId, ExprKind, Literal};
use crate::lexer::TokenKind;
use crate::literal::unescape;

impl Parser<'_> {
    pub(super) fn literal(&mut self) -> ExprId {
        let start = self.tokens[self.at].start;
        let negative = self.eat(TokenKind::Minus).is_some();
        let token = self.bump();
        let text = self.text(token);
        let literal = match token.kind {
            TokenKind::Int => parse_int(text, negative).map(Literal::Int).ok_or("invalid int literal"),
            TokenKind::Uint => parse_uint(text).map(Literal::Uint).ok_or("invalid uint literal"),
            TokenKind::Float => parse_float(text, negative).map(Literal::Double).ok_or("invalid double literal"),
            TokenKind::String => unescape(text, false).and_then(string_literal),
            TokenKind::Bytes => unescape(&text[1..], true).map(Literal::Bytes),
            TokenKind::True => Ok(Literal::Bool(true)),
            TokenKind::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        let kind = match literal {
            Ok(literal) => ExprKind::Literal(literal),
            Err(message) => {
                self.report(start, message);
                ExprKind::Invalid
            }
        };
        self.ast.add(start, kind)
    }
}

fn string_literal(bytes: Cow<'_, [u8]>) -> Result<Literal<'_>, &'static str> {
    const INVALID: &str = "unable to unescape string";
    Ok(Literal::String(match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).map_err(|_| INVALID)?),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).map_err(|_| INVALID)?),
    }))
}

fn parse_int(text: &str, negative: bool) -> Option<i64> {
    let magnitude = parse_magnitude(text)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

fn parse_uint(text: &str) -> Option<u64> {
    parse_magnitude(&text[..text.len() - 1])
}

fn parse_magnitude(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_float(text: &str, negative: bool) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    // Out of range is an error, not infinity.
    value.is_finite().then_some(if negative { -value } else { value })
}
