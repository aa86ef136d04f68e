//! The parser of paths: accepts and refuses what client-go's parser does.

use super::{Comparison, Filter, Literal, Slice, SliceEnd, Step, Template};

/// Nesting of filters in filters; only quotes that a filter and the path around it pair differently reach more than one.
const DEPTH_MAX: usize = 8;

/// A path cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonPathError;

pub(super) fn parse(text: &str) -> Result<Template, JsonPathError> {
    let blocks = parse_blocks(&format!("{{{text}}}"), 0)?;
    if blocks.has_range {
        return Ok(Template::Range);
    }
    if let [block] = &*blocks.blocks
        && let Some(names) =
            block.iter().map(|step| if let Step::Field(name) = step { Some(name.clone()) } else { None }).collect()
    {
        return Ok(Template::Fields(names));
    }
    Ok(Template::Blocks(blocks.blocks))
}

struct Blocks {
    blocks: Vec<Vec<Step>>,
    has_range: bool,
}

/// Parses text with blocks in braces; text between blocks is one block with a literal.
fn parse_blocks(text: &str, depth: usize) -> Result<Blocks, JsonPathError> {
    if depth > DEPTH_MAX {
        return Err(JsonPathError);
    }
    let mut parser = Parser { rest: text, depth, has_range: false };
    let mut blocks = Vec::new();
    while !parser.rest.is_empty() {
        match parser.rest.find('{') {
            Some(0) => {
                parser.advance(1);
                blocks.push(parser.block()?);
            }
            Some(at) => blocks.push(vec![Step::Text(parser.take(at).to_owned())]),
            None => blocks.push(vec![Step::Text(parser.take(parser.rest.len()).to_owned())]),
        }
    }
    Ok(Blocks { blocks, has_range: parser.has_range })
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
    has_range: bool,
}

impl<'t> Parser<'t> {
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Takes the text before the first character that `is_end` accepts, or all.
    fn take_until(&mut self, is_end: impl Fn(char) -> bool) -> &'t str {
        self.take(self.rest.find(is_end).unwrap_or(self.rest.len()))
    }

    /// Parses a block up to its closing brace.
    fn block(&mut self) -> Result<Vec<Step>, JsonPathError> {
        let mut steps = Vec::new();
        loop {
            if self.rest.starts_with('}') {
                self.advance(1);
                return Ok(steps);
            }
            if self.rest.starts_with("[?(") {
                self.advance(3);
                steps.push(self.filter()?);
                continue;
            }
            if self.rest.starts_with("..") {
                if matches!(steps.last(), Some(Step::Descend)) {
                    return Err(JsonPathError);
                }
                self.advance(2);
                steps.push(Step::Descend);
                if self.rest.starts_with(is_alphanumeric) {
                    steps.push(self.field());
                }
                continue;
            }
            match self.rest.chars().next() {
                Some(' ' | '@' | '$') => self.advance(1),
                Some('[') => self.array(&mut steps)?,
                Some(quote @ ('"' | '\'')) => steps.push(self.quoted(quote)?),
                Some('.') => {
                    self.advance(1);
                    steps.push(self.field());
                }
                Some(first) if matches!(first, '+' | '-') || first.is_numeric() => steps.push(self.number()?),
                Some(first) if is_alphanumeric(first) => steps.push(self.identifier()),
                Some(_) | None => return Err(JsonPathError),
            }
        }
    }

    fn field(&mut self) -> Step {
        let mut escaped = false;
        let end = self.rest.find(|char| {
            if std::mem::take(&mut escaped) {
                return false;
            }
            escaped = char == '\\';
            is_terminator(char)
        });
        match self.take(end.unwrap_or(self.rest.len())) {
            "*" => Step::Wildcard,
            name => Step::Field(name.replace('\\', "")),
        }
    }

    fn identifier(&mut self) -> Step {
        match self.take_until(is_terminator) {
            "true" => Step::Literal(Literal::Bool(true)),
            "false" => Step::Literal(Literal::Bool(false)),
            "end" => Step::End,
            "range" => {
                self.has_range = true;
                Step::UnknownIdentifier
            }
            _ => Step::UnknownIdentifier,
        }
    }

    fn number(&mut self) -> Result<Step, JsonPathError> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest[sign..].find(|char: char| char != '.' && !char.is_numeric());
        let text = self.take(digits.map_or(self.rest.len(), |digits| sign + digits));
        if let Ok(value) = text.parse() {
            return Ok(Step::Literal(Literal::Int(value)));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Step::Literal(Literal::Float(value))),
            Ok(_) | Err(_) => Err(JsonPathError),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Step, JsonPathError> {
        let mut previous = quote;
        for (at, char) in self.rest.char_indices().skip(1) {
            match char {
                '\n' => return Err(JsonPathError),
                _ if char == quote && previous != '\\' => {
                    let text = self.take(at + 1);
                    return unquote(&text[1..at], quote).map(Step::Text);
                }
                _ => previous = char,
            }
        }
        Err(JsonPathError)
    }

    /// Parses a bracket: an index, a slice, a quoted field or a union of these.
    fn array(&mut self, steps: &mut Vec<Step>) -> Result<(), JsonPathError> {
        let end = self.rest.find([']', '\n']).ok_or(JsonPathError)?;
        let text = self.take(end + 1).strip_suffix(']').ok_or(JsonPathError)?;
        let text = match &text[1..] {
            "*" => ":",
            text => text,
        };
        if text.contains(',') {
            let parse_part = |part: &str| self.nested(&format!("[{}]", part.trim_matches(' ')));
            steps.push(Step::Union(text.split(',').map(parse_part).collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        match key.filter(|key| !key.contains('\'')) {
            Some(key) => steps.extend(self.nested(&format!(".{key}"))?),
            None => steps.push(Step::Slice(parse_slice(text)?)),
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<Step, JsonPathError> {
        let end = self.filter_end()?;
        let text = self.take(end);
        self.advance(1);
        if !self.rest.starts_with(']') {
            return Err(JsonPathError);
        }
        self.advance(1);
        let is_operator = |char: char| matches!(char, '!' | '<' | '>' | '=');
        let compared = text.find(is_operator).filter(|&at| at > 0).and_then(|at| {
            let (left, rest) = text.split_at(at);
            // The right side has at least one character, if need be the last one of the operator.
            let longest = rest.find(|char| !is_operator(char)).unwrap_or(rest.len() - 1);
            (longest > 0).then(|| (left, rest.split_at(longest)))
        });
        let filter = match compared {
            None => Filter { left: self.nested(text)?, comparison: None },
            Some((left, (operator, right))) => {
                let comparison = match operator {
                    "==" => Comparison::Equal,
                    "!=" => Comparison::NotEqual,
                    "<" => Comparison::Less,
                    "<=" => Comparison::LessOrEqual,
                    ">" => Comparison::Greater,
                    ">=" => Comparison::GreaterOrEqual,
                    _ => Comparison::Unknown,
                };
                Filter { left: self.nested(left)?, comparison: Some((comparison, self.nested(right)?)) }
            }
        };
        Ok(Step::Filter(Box::new(filter)))
    }

    /// Where the closing parenthesis is: the first one outside of the one pair of quotes that the scan knows.
    fn filter_end(&self) -> Result<usize, JsonPathError> {
        let (mut opened, mut is_closed) = (None, false);
        let mut previous = '(';
        for (at, char) in self.rest.char_indices() {
            match (char, opened) {
                ('\n', _) => return Err(JsonPathError),
                ('"' | '\'', None) => opened = Some(char),
                ('"' | '\'', Some(quote)) if previous != '\\' && char == quote => is_closed = true,
                (')', _) if opened.is_some() == is_closed => return Ok(at),
                _ => {}
            }
            previous = char;
        }
        Err(JsonPathError)
    }

    /// Parses the text as a block of its own; text after a closing brace is parsed and ignored.
    fn nested(&mut self, text: &str) -> Result<Vec<Step>, JsonPathError> {
        let parsed = parse_blocks(&format!("{{{text}}}"), self.depth + 1)?;
        self.has_range |= parsed.has_range;
        parsed.blocks.into_iter().next().ok_or(JsonPathError)
    }
}

fn parse_slice(text: &str) -> Result<Slice, JsonPathError> {
    let mut parts = text.split(':');
    let [start, end, step] = [(); 3].map(|()| parts.next());
    if parts.next().is_some() {
        return Err(JsonPathError);
    }
    let parse_index = |text: Option<&str>| match text {
        None | Some("") => Ok(None),
        Some(text) if text.starts_with('+') => Err(JsonPathError),
        Some(text) => text.parse::<i64>().map(Some).map_err(|_| JsonPathError),
    };
    let start = parse_index(start)?;
    let end = match (end, parse_index(end)?) {
        (None, _) => SliceEnd::Derived(start.unwrap_or(0).wrapping_add(1)),
        (Some(_), None) => SliceEnd::Open,
        (Some(_), Some(end)) => SliceEnd::At(end),
    };
    Ok(Slice { start, end, step: parse_index(step)? })
}

/// Replaces Go's escapes; the text is without its quotes.
fn unquote(text: &str, quote: char) -> Result<String, JsonPathError> {
    if !text.contains(['\\', quote]) {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut encoded = [0; 4];
    while let Some(char) = chars.next() {
        if char == quote {
            return Err(JsonPathError);
        }
        if char != '\\' {
            bytes.extend_from_slice(char.encode_utf8(&mut encoded).as_bytes());
            continue;
        }
        let escape = chars.next().ok_or(JsonPathError)?;
        let mut number = |radix: u32, digits: usize| {
            let mut digit = || chars.next().and_then(|char| char.to_digit(radix)).ok_or(JsonPathError);
            (0..digits).try_fold(0_u32, |value, _| Ok(value.wrapping_mul(radix).wrapping_add(digit()?)))
        };
        let byte = match escape {
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 0x0b,
            'x' => u8::try_from(number(16, 2)?).map_err(|_| JsonPathError)?,
            '0'..='7' => {
                let first = escape.to_digit(8).unwrap_or_default() * 64;
                u8::try_from(first + number(8, 2)?).map_err(|_| JsonPathError)?
            }
            'u' | 'U' => {
                let code = number(16, if escape == 'u' { 4 } else { 8 })?;
                let char = char::from_u32(code).ok_or(JsonPathError)?;
                bytes.extend_from_slice(char.encode_utf8(&mut encoded).as_bytes());
                continue;
            }
            '\\' => b'\\',
            '\'' | '"' if escape == quote => u8::try_from(quote).unwrap_or_default(),
            _ => return Err(JsonPathError),
        };
        bytes.push(byte);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_alphanumeric(char: char) -> bool {
    char == '_' || char.is_alphanumeric()
}

/// Ends a field name or an identifier.
fn is_terminator(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
