//! The lexer of label selectors.

use super::super::requirement::LabelOperator;

/// A token; identifiers borrow from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Identifier(&'a str),
    In,
    NotIn,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Comma,
    OpeningParenthesis,
    ClosingParenthesis,
    End,
}

impl<'a> Token<'a> {
    /// Returns the token as a key or value, which may be spelled like an operator.
    pub(super) fn as_identifier(self) -> Option<&'a str> {
        matches!(self, Self::Identifier(_) | Self::In | Self::NotIn).then(|| self.text())
    }

    /// Returns the token as an operator.
    pub(super) fn as_operator(self) -> Option<LabelOperator> {
        match self {
            Self::In => Some(LabelOperator::In),
            Self::NotIn => Some(LabelOperator::NotIn),
            Self::Equals => Some(LabelOperator::Equals),
            Self::DoubleEquals => Some(LabelOperator::DoubleEquals),
            Self::NotEquals => Some(LabelOperator::NotEquals),
            Self::Greater => Some(LabelOperator::GreaterThan),
            Self::Less => Some(LabelOperator::LessThan),
            Self::Identifier(_)
            | Self::Not
            | Self::Comma
            | Self::OpeningParenthesis
            | Self::ClosingParenthesis
            | Self::End => None,
        }
    }

    /// Returns the token's text; empty at the end.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Identifier(text) => text,
            Self::In => "in",
            Self::NotIn => "notin",
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Comma => ",",
            Self::OpeningParenthesis => "(",
            Self::ClosingParenthesis => ")",
            Self::End => "",
        }
    }
}

/// A lexer with one token of lookahead.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    lookahead: Token<'a>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut lexer = Self { rest: text, lookahead: Token::End };
        lexer.next();
        lexer
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.lookahead
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let next = self.scan();
        std::mem::replace(&mut self.lookahead, next)
    }

    fn scan(&mut self) -> Token<'a> {
        let text = self.rest.trim_start_matches(is_blank);
        let (token, length) = match text.as_bytes() {
            [] => (Token::End, 0),
            [b'=', b'=', ..] => (Token::DoubleEquals, 2),
            [b'!', b'=', ..] => (Token::NotEquals, 2),
            [b'=', ..] => (Token::Equals, 1),
            [b'!', ..] => (Token::Not, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'(', ..] => (Token::OpeningParenthesis, 1),
            [b')', ..] => (Token::ClosingParenthesis, 1),
            _ => {
                let length = text.find(ends_identifier).unwrap_or(text.len());
                (identifier_or_keyword(&text[..length]), length)
            }
        };
        self.rest = &text[length..];
        token
    }
}

fn identifier_or_keyword(text: &str) -> Token<'_> {
    match text {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Identifier(text),
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

/// Reports whether a character ends an identifier. NUL does not: in Kubernetes it ends the text, so that `%00` would
/// match everything. Here it makes the identifier invalid.
fn ends_identifier(character: char) -> bool {
    is_blank(character) || matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
