//! Tokens of the expression language.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclam,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscapedIdent,
    Eof,
}

impl TokenKind {
    /// The name in error messages: the quoted text of fixed tokens, the rule's name of all others.
    pub(crate) fn display(self) -> &'static str {
        use TokenKind as T;
        match self {
            T::Equals => "'=='",
            T::NotEquals => "'!='",
            T::In => "'in'",
            T::Less => "'<'",
            T::LessEquals => "'<='",
            T::GreaterEquals => "'>='",
            T::Greater => "'>'",
            T::And => "'&&'",
            T::Or => "'||'",
            T::LeftBracket => "'['",
            T::RightBracket => "']'",
            T::LeftBrace => "'{'",
            T::RightBrace => "'}'",
            T::LeftParen => "'('",
            T::RightParen => "')'",
            T::Dot => "'.'",
            T::Comma => "','",
            T::Minus => "'-'",
            T::Exclam => "'!'",
            T::Question => "'?'",
            T::Colon => "':'",
            T::Plus => "'+'",
            T::Star => "'*'",
            T::Slash => "'/'",
            T::Percent => "'%'",
            T::True => "'true'",
            T::False => "'false'",
            T::Null => "'null'",
            T::Float => "NUM_FLOAT",
            T::Int => "NUM_INT",
            T::Uint => "NUM_UINT",
            T::String => "STRING",
            T::Bytes => "BYTES",
            T::Ident => "IDENTIFIER",
            T::EscapedIdent => "ESC_IDENTIFIER",
            T::Eof => "<EOF>",
        }
    }
}

/// A token with its byte range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Text that is no token: byte range of what was skipped.
pub(crate) struct LexError {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Splits `source` into tokens; the last one is `Eof`.
pub(crate) fn tokenize(source: &str) -> (Vec<Token>, Vec<LexError>) {
    let mut lexer = Lexer { source, bytes: source.as_bytes(), at: 0 };
    let mut tokens = Vec::with_capacity(source.len() / 3 + 2);
    let mut errors = Vec::new();
    loop {
        lexer.skip_hidden();
        let start = lexer.at;
        if start >= lexer.bytes.len() {
            tokens.push(Token { kind: TokenKind::Eof, start, end: start });
            return (tokens, errors);
        }
        match lexer.token() {
            Ok(kind) => tokens.push(Token { kind, start, end: lexer.at }),
            Err(()) => {
                // The character at which matching failed is part of what is reported and skipped.
                lexer.at = next_boundary(source, lexer.at);
                errors.push(LexError { start, end: lexer.at });
            }
        }
    }
}

fn next_boundary(source: &str, at: usize) -> usize {
    source[at..].chars().next().map_or(source.len(), |c| at + c.len_utf8())
}

struct Lexer<'s> {
    source: &'s str,
    bytes: &'s [u8],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_hidden(&mut self) {
        loop {
            match self.peek(0) {
                b'\t' | b' ' | b'\r' | b'\n' | 0x0C => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    let rest = &self.bytes[self.at..];
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// On failure `self.at` is the index of the character that did not fit.
    fn token(&mut self) -> Result<TokenKind, ()> {
        use TokenKind as T;
        let first = self.peek(0);
        let single = match first {
            b'[' => T::LeftBracket,
            b']' => T::RightBracket,
            b'{' => T::LeftBrace,
            b'}' => T::RightBrace,
            b'(' => T::LeftParen,
            b')' => T::RightParen,
            b',' => T::Comma,
            b'-' => T::Minus,
            b'?' => T::Question,
            b':' => T::Colon,
            b'+' => T::Plus,
            b'*' => T::Star,
            b'/' => T::Slash,
            b'%' => T::Percent,
            b'=' => return self.pair(b'=', T::Equals, None),
            b'&' => return self.pair(b'&', T::And, None),
            b'|' => return self.pair(b'|', T::Or, None),
            b'!' => return self.pair(b'=', T::NotEquals, Some(T::Exclam)),
            b'<' => return self.pair(b'=', T::LessEquals, Some(T::Less)),
            b'>' => return self.pair(b'=', T::GreaterEquals, Some(T::Greater)),
            b'.' if self.peek(1).is_ascii_digit() => return Ok(self.number()),
            b'.' => T::Dot,
            b'0'..=b'9' => return Ok(self.number()),
            b'"' | b'\'' => return self.string(false).map(|()| T::String),
            b'`' => return self.escaped_ident(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => return self.word(),
            _ => return Err(()),
        };
        self.at += 1;
        Ok(single)
    }

    fn pair(&mut self, second: u8, both: TokenKind, alone: Option<TokenKind>) -> Result<TokenKind, ()> {
        self.at += 1;
        if self.peek(0) == second {
            self.at += 1;
            return Ok(both);
        }
        alone.ok_or(())
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn number(&mut self) -> TokenKind {
        if self.peek(0) == b'0' && self.peek(1) == b'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            return self.unsigned_suffix();
        }
        let leading_dot = self.peek(0) == b'.';
        self.digits();
        let mut float = false;
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            float = true;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                float = true;
                self.at += 1 + sign;
                self.digits();
            }
        }
        if float || leading_dot { TokenKind::Float } else { self.unsigned_suffix() }
    }

    fn unsigned_suffix(&mut self) -> TokenKind {
        if matches!(self.peek(0), b'u' | b'U') {
            self.at += 1;
            return TokenKind::Uint;
        }
        TokenKind::Int
    }

    fn word(&mut self) -> Result<TokenKind, ()> {
        let quote = |b: u8| matches!(b, b'"' | b'\'');
        let (first, second) = (self.peek(0) | 0x20, self.peek(1));
        let raw_prefix = first == b'b' && second | 0x20 == b'r';
        if raw_prefix && quote(self.peek(2)) {
            self.at += 2;
            return self.string(true).map(|()| TokenKind::Bytes);
        }
        if first == b'b' && quote(second) {
            self.at += 1;
            return self.string(false).map(|()| TokenKind::Bytes);
        }
        if first == b'r' && quote(second) {
            self.at += 1;
            return self.string(true).map(|()| TokenKind::String);
        }
        let start = self.at;
        while matches!(self.peek(0), b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') {
            self.at += 1;
        }
        Ok(match &self.source[start..self.at] {
            "in" => TokenKind::In,
            "true" => TokenKind::True,
            "false" => TokenKind::False,
            "null" => TokenKind::Null,
            _ => TokenKind::Ident,
        })
    }

    fn escaped_ident(&mut self) -> Result<TokenKind, ()> {
        self.at += 1;
        let start = self.at;
        while matches!(self.peek(0), b'_' | b'.' | b'-' | b'/' | b' ' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') {
            self.at += 1;
        }
        if self.peek(0) != b'`' || self.at == start {
            return Err(());
        }
        self.at += 1;
        Ok(TokenKind::EscapedIdent)
    }

    /// Reads a string from its quote on. An unterminated triple-quoted string is read as an empty string first, as the
    /// longest match is.
    fn string(&mut self, raw: bool) -> Result<(), ()> {
        let quote = self.peek(0);
        if self.peek(1) == quote && self.peek(2) == quote {
            let start = self.at;
            self.at += 3;
            while self.at < self.bytes.len() {
                if self.peek(0) == quote && self.peek(1) == quote && self.peek(2) == quote {
                    self.at += 3;
                    return Ok(());
                }
                if self.peek(0) == b'\\' && !raw {
                    if self.escape().is_err() {
                        break;
                    }
                } else {
                    self.at = next_boundary(self.source, self.at);
                }
            }
            self.at = start + 2;
            return Ok(());
        }
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b if b == quote => {
                    self.at += 1;
                    return Ok(());
                }
                b'\n' | b'\r' => return Err(()),
                b'\\' if !raw => self.escape()?,
                _ => self.at = next_boundary(self.source, self.at),
            }
        }
        Err(())
    }

    fn escape(&mut self) -> Result<(), ()> {
        self.at += 1;
        let class: fn(&u8) -> bool = u8::is_ascii_hexdigit;
        let (digits, class) = match self.peek(0) {
            b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => (0, class),
            b'x' | b'X' => (2, class),
            b'u' => (4, class),
            b'U' => (8, class),
            b'0'..=b'3' => (2, (|b: &u8| matches!(b, b'0'..=b'7')) as fn(&u8) -> bool),
            _ => return Err(()),
        };
        self.at += 1;
        for _ in 0..digits {
            if !class(&self.peek(0)) {
                return Err(());
            }
            self.at += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<TokenKind> {
        tokenize(source).0.into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn numbers_take_the_longest_match() {
        use TokenKind as T;
        for (source, expected) in [
            ("1", vec![T::Int]),
            ("0x1Fu", vec![T::Uint]),
            ("1.5e-3", vec![T::Float]),
            (".5", vec![T::Float]),
            ("1.", vec![T::Int, T::Dot]),
            ("1e", vec![T::Int, T::Ident]),
            ("1.e3", vec![T::Int, T::Dot, T::Ident]),
            ("0x", vec![T::Int, T::Ident]),
        ] {
            let mut expected = expected;
            expected.push(T::Eof);
            assert_eq!(kinds(source), expected, "{source}");
        }
    }

    #[test]
    fn strings_and_prefixes_are_told_from_identifiers() {
        use TokenKind as T;
        assert_eq!(kinds(r#"r'\d' b"x" bR'''y''' "#), [T::String, T::Bytes, T::Bytes, T::Eof]);
        assert_eq!(kinds("rb b r // c\n in"), [T::Ident, T::Ident, T::Ident, T::In, T::Eof]);
        assert_eq!(kinds("'''a'b''' ''"), [T::String, T::String, T::Eof]);
    }

    #[test]
    fn unknown_text_is_skipped_with_the_failing_character() {
        let (tokens, errors) = tokenize("a = b");
        assert_eq!(tokens.len(), 3);
        assert_eq!((errors[0].start, errors[0].end), (2, 4));
        let (_, errors) = tokenize("'a\\qb");
        assert_eq!((errors[0].start, errors[0].end), (0, 4));
    }
}
