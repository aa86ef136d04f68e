//! Where Go's parser fails on a body that is no JSON, in its words.

/// The error of Go's parser; none if it would accept the text.
pub(super) fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { rest: text, open: Vec::new() };
    scanner.scan().err().map(|fault| match fault {
        Fault::End => "unexpected end of JSON input".to_owned(),
        Fault::Character(byte, context) => format!("invalid character {} {context}", quote(byte)),
    })
}

enum Fault {
    End,
    /// A byte, and what it stands in.
    Character(u8, String),
}

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    /// A comma or the end of what is open.
    Next,
}

struct Scanner<'a> {
    rest: &'a [u8],
    /// The closing bytes of what is open.
    open: Vec<u8>,
}

impl Scanner<'_> {
    fn scan(&mut self) -> Result<(), Fault> {
        let mut expected = Expected::Value;
        loop {
            while matches!(self.rest.first(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
                self.rest = &self.rest[1..];
            }
            if self.rest.is_empty() && expected == Expected::Next && self.open.is_empty() {
                return Ok(());
            }
            let byte = self.take()?;
            expected = self.step(byte, expected)?;
        }
    }

    fn step(&mut self, byte: u8, expected: Expected) -> Result<Expected, Fault> {
        let is_end = self.open.last() == Some(&byte);
        match (expected, byte) {
            (Expected::ValueOrEnd | Expected::KeyOrEnd | Expected::Next, _) if is_end => {
                self.open.pop();
                Ok(Expected::Next)
            }
            (Expected::Value | Expected::ValueOrEnd, _) => self.value(byte),
            (Expected::Key | Expected::KeyOrEnd, b'"') => self.string().map(|()| Expected::Colon),
            (Expected::Key | Expected::KeyOrEnd, _) => fail(byte, "looking for beginning of object key string"),
            (Expected::Colon, b':') => Ok(Expected::Value),
            (Expected::Colon, _) => fail(byte, "after object key"),
            (Expected::Next, _) => match (self.open.last(), byte) {
                (Some(b'}'), b',') => Ok(Expected::Key),
                (Some(_), b',') => Ok(Expected::Value),
                (Some(b'}'), _) => fail(byte, "after object key:value pair"),
                (Some(_), _) => fail(byte, "after array element"),
                (None, _) => fail(byte, "after top-level value"),
            },
        }
    }

    fn value(&mut self, byte: u8) -> Result<Expected, Fault> {
        match byte {
            b'{' | b'[' => {
                // The closing bytes come two after the opening ones.
                self.open.push(byte + 2);
                return Ok(if byte == b'{' { Expected::KeyOrEnd } else { Expected::ValueOrEnd });
            }
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(byte)?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => return fail(byte, "looking for beginning of value"),
        }
        Ok(Expected::Next)
    }

    fn take(&mut self) -> Result<u8, Fault> {
        let (first, rest) = self.rest.split_first().ok_or(Fault::End)?;
        self.rest = rest;
        Ok(*first)
    }

    fn string(&mut self) -> Result<(), Fault> {
        loop {
            match self.take()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                control @ 0..0x20 => return fail(control, "in string literal"),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.take()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.take()? {
                digit if digit.is_ascii_hexdigit() => Ok(()),
                other => fail(other, "in \\u hexadecimal character escape"),
            }),
            other => fail(other, "in string escape code"),
        }
    }

    fn number(&mut self, first: u8) -> Result<(), Fault> {
        let first = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if first != b'0' {
            self.digits();
        }
        if self.rest.first() == Some(&b'.') {
            self.rest = &self.rest[1..];
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.rest.first(), Some(b'e' | b'E')) {
            self.rest = &self.rest[1..];
            if matches!(self.rest.first(), Some(b'+' | b'-')) {
                self.rest = &self.rest[1..];
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<u8, Fault> {
        let byte = self.take()?;
        if byte.is_ascii_digit() { Ok(byte) } else { fail(byte, context) }
    }

    fn digits(&mut self) {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.rest = &self.rest[count..];
    }

    fn literal(&mut self, name: &str) -> Result<(), Fault> {
        for wanted in name.bytes().skip(1) {
            let byte = self.take()?;
            if byte != wanted {
                return fail(byte, format!("in literal {name} (expecting {})", quote(wanted)));
            }
        }
        Ok(())
    }
}

fn fail<T>(byte: u8, context: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Character(byte, context.into()))
}

/// A byte as Go quotes it: as if it were a character of its own.
fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = api::quote::Quoted(&char::from(byte).to_string()).to_string();
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_are_those_of_go() {
        for (text, expected) in [
            (r#"{"a":[1,-0.5e+3,true,false,null,"\u00e9\n"],"b":{}} "#, None),
            ("", Some("unexpected end of JSON input")),
            (r#"{"a""#, Some("unexpected end of JSON input")),
            ("}", Some("invalid character '}' looking for beginning of value")),
            ("{'a':1}", Some(r"invalid character '\'' looking for beginning of object key string")),
            (r#"{"a":1,}"#, Some("invalid character '}' looking for beginning of object key string")),
            (r#"{"a"}"#, Some("invalid character '}' after object key")),
            (r#"{"a":1 "b":2}"#, Some("invalid character '\"' after object key:value pair")),
            (r#"{"a":01}"#, Some("invalid character '1' after object key:value pair")),
            ("[1 2]", Some("invalid character '2' after array element")),
            ("[1,]", Some("invalid character ']' looking for beginning of value")),
            ("{} x", Some("invalid character 'x' after top-level value")),
            ("nan", Some("invalid character 'a' in literal null (expecting 'u')")),
            ("[tru]", Some("invalid character ']' in literal true (expecting 'e')")),
            ("\"a\nb\"", Some(r"invalid character '\n' in string literal")),
            (r#""\x""#, Some("invalid character 'x' in string escape code")),
            (r#""\u12g4""#, Some(r"invalid character 'g' in \u hexadecimal character escape")),
            ("-x", Some("invalid character 'x' in numeric literal")),
            ("1.x", Some("invalid character 'x' after decimal point in numeric literal")),
            ("1e}", Some("invalid character '}' in exponent of numeric literal")),
            ("\u{feff}{}", Some("invalid character 'ï' looking for beginning of value")),
        ] {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
