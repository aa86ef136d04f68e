//! Expected tokens and the texts of syntax errors.

use super::{Bail, Parsed, Parser};
use crate::ast::{ExprId, ExprKind};
use crate::lexer::{Token, TokenKind};

/// What encloses the expression being parsed, and so what may follow it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Closer {
    Paren,
    Arguments,
    Index,
    List,
    Braces,
    Key,
    Conditional,
}

/// The tokens an operand begins with, in the order of error messages.
const OPERAND: [TokenKind; 15] = [
    TokenKind::LeftBracket,
    TokenKind::LeftBrace,
    TokenKind::LeftParen,
    TokenKind::Dot,
    TokenKind::Minus,
    TokenKind::Exclam,
    TokenKind::True,
    TokenKind::False,
    TokenKind::Null,
    TokenKind::Float,
    TokenKind::Int,
    TokenKind::Uint,
    TokenKind::String,
    TokenKind::Bytes,
    TokenKind::Ident,
];

fn begins_operand(kind: TokenKind) -> bool {
    OPERAND.contains(&kind)
}

/// `{'a', 'b'}` in the grammar's order, or the token alone.
fn expected_text(kinds: &[TokenKind]) -> String {
    let mut kinds = kinds.to_vec();
    kinds.sort_by_key(|&kind| kind as u8);
    let names: Vec<&str> = kinds.iter().map(|kind| kind.display()).collect();
    if names.len() == 1 { names[0].to_owned() } else { format!("{{{}}}", names.join(", ")) }
}

impl Parser<'_> {
    fn shown(&self, token: Token) -> String {
        if token.kind == TokenKind::Eof { "'<EOF>'".to_owned() } else { format!("'{}'", self.text(token)) }
    }

    fn complain(&mut self, problem: &str, expected: &[TokenKind]) {
        let token = self.tokens[self.at];
        let message =
            format!("Syntax error: {problem} input {} expecting {}", self.shown(token), expected_text(expected));
        self.report(token.start, message);
    }

    /// Consumes `kind`. One superfluous token is skipped, one missing token is assumed; both are reported.
    pub(super) fn expect(&mut self, kind: TokenKind) -> Parsed<Token> {
        let token = self.tokens[self.at];
        if token.kind == kind {
            return Ok(self.bump());
        }
        if self.ahead(1) == kind && token.kind != TokenKind::Eof {
            self.complain("extraneous", &[kind]);
            self.bump();
            return Ok(self.bump());
        }
        if self.may_follow(kind, token.kind) {
            let message = format!("Syntax error: missing {} at {}", kind.display(), self.shown(token));
            self.report(token.start, message);
            return Ok(Token { kind, start: token.start, end: token.start });
        }
        self.complain("mismatched", &[kind]);
        Err(Bail)
    }

    /// Whether `found` could stand after an assumed `missing` token here.
    fn may_follow(&self, missing: TokenKind, found: TokenKind) -> bool {
        use TokenKind as T;
        match missing {
            T::Colon => begins_operand(found),
            T::Ident => found == T::Colon,
            T::Eof => false,
            _ => {
                let operator = crate::operators::relation(found).is_some()
                    || crate::operators::calc(found, 0).is_some()
                    || crate::operators::calc(found, 1).is_some();
                operator
                    || matches!(found, T::And | T::Or | T::Dot | T::LeftBracket | T::Question)
                    || self.closes(found)
            }
        }
    }

    fn closes(&self, kind: TokenKind) -> bool {
        use TokenKind as T;
        match self.closers.last() {
            None => kind == T::Eof,
            Some(Closer::Paren) => kind == T::RightParen,
            Some(Closer::Arguments) => matches!(kind, T::RightParen | T::Comma),
            Some(Closer::Index) => kind == T::RightBracket,
            Some(Closer::List) => matches!(kind, T::RightBracket | T::Comma),
            Some(Closer::Braces) => matches!(kind, T::RightBrace | T::Comma),
            Some(Closer::Key | Closer::Conditional) => kind == T::Colon,
        }
    }

    /// Checks that an operand (or one of `also`) begins here; one superfluous token before it is reported and skipped.
    pub(super) fn require_operand(&mut self, also: &[TokenKind]) -> Parsed<()> {
        let kind = self.kind();
        if begins_operand(kind) || also.contains(&kind) {
            return Ok(());
        }
        let expected: Vec<TokenKind> = OPERAND.iter().chain(also).copied().collect();
        let next = self.ahead(1);
        if kind != TokenKind::Eof && (begins_operand(next) || also.contains(&next)) {
            self.complain("extraneous", &expected);
            self.bump();
            return Ok(());
        }
        self.complain("mismatched", &expected);
        Err(Bail)
    }

    /// Checks that a member follows the unary operator.
    pub(super) fn require_member(&mut self, operator: TokenKind) -> Parsed<()> {
        if self.kind() != TokenKind::Eof {
            return self.require_operand(&[]);
        }
        let end = self.tokens[self.at].start;
        if operator == TokenKind::Exclam {
            self.complain("extraneous", &OPERAND);
        } else {
            self.report(end, "Syntax error: no viable alternative at input '-'");
            self.complain("mismatched", &OPERAND);
        }
        Err(Bail)
    }

    /// Reports that no field name follows the dot.
    /// Before an operator the parser goes on as if the field were there.
    pub(super) fn no_field(&mut self, dot: Token) -> Parsed {
        let token = self.tokens[self.at];
        let message = match token.kind {
            TokenKind::True | TokenKind::False | TokenKind::Null => {
                format!("Syntax error: mismatched input '{}' expecting IDENTIFIER", self.text(token))
            }
            _ => {
                let input = &self.source[dot.start..token.end];
                format!("Syntax error: no viable alternative at input '{input}'")
            }
        };
        self.report(token.start, message);
        if token.kind == TokenKind::In { Ok(self.ast.add(token.start, ExprKind::Invalid)) } else { Err(Bail) }
    }

    /// Consumes a comma between elements. False means that the closing token is next.
    pub(super) fn separator(&mut self, close: TokenKind) -> Parsed<bool> {
        let kind = self.kind();
        if kind == TokenKind::Comma {
            self.bump();
            return Ok(true);
        }
        if kind == close {
            return Ok(false);
        }
        let next = self.ahead(1);
        if kind != TokenKind::Eof && (next == close || next == TokenKind::Comma) {
            self.complain("extraneous", &[close, TokenKind::Comma]);
            self.bump();
            return self.separator(close);
        }
        self.complain("mismatched", &[close, TokenKind::Comma]);
        Err(Bail)
    }

    /// Reports a second comma after the one that may end a list.
    pub(super) fn after_comma_mismatch(&mut self, elements: &[ExprId], close: TokenKind) -> bool {
        let second = !elements.is_empty() && self.kind() == TokenKind::Comma;
        if second {
            self.complain("mismatched", &[close]);
        }
        second
    }
}
