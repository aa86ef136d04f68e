//! Regular expressions with the syntax and meaning of Go's `regexp` (RE2): ASCII classes, `\Q..\E`, `\z`, counted
//! repetition up to 1000. Patterns are checked here and translated for the `regex` crate, which shares the matching rules.

mod class;

use std::fmt;

use regex::{Regex, RegexBuilder};

/// Why a pattern is refused; prints as Go does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    problem: &'static str,
    at: String,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.problem, self.at)
    }
}

impl std::error::Error for PatternError {}

/// Largest count of a repetition, nested ones multiplied.
const MAX_REPEAT: u32 = 1000;
/// Deepest nesting of groups and repetitions.
const MAX_DEPTH: usize = 1000;
/// Memory that a compiled pattern may use.
const MAX_PROGRAM_BYTES: usize = 4 << 20;

/// Patterns of at most so many states fit into the memory: only larger ones must be compiled to know.
const FITTING_STATES: u64 = 20_000;
/// The same for patterns with Unicode classes, some of which have more states than they count.
const FITTING_UNICODE_STATES: u64 = 2_000;

/// A pattern that is known to be valid.
#[derive(Clone, Debug)]
pub struct Translated {
    text: String,
    /// About how many states the compiled pattern has, counted repetitions written out.
    pub states: u64,
}

/// Compiles a pattern of Go's syntax.
pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    build(pattern, &translate(pattern)?)
}

/// Checks that a pattern of Go's syntax compiles.
pub fn check(pattern: &str) -> Result<(), PatternError> {
    let translated = translate(pattern)?;
    let has_unicode_class = pattern.contains(r"\p") || pattern.contains(r"\P");
    match translated.states <= if has_unicode_class { FITTING_UNICODE_STATES } else { FITTING_STATES } {
        true => Ok(()),
        false => build(pattern, &translated).map(drop),
    }
}

/// Compiles a translated pattern; takes time in proportion to its states.
pub fn build(pattern: &str, translated: &Translated) -> Result<Regex, PatternError> {
    RegexBuilder::new(&translated.text)
        .size_limit(MAX_PROGRAM_BYTES)
        .dfa_size_limit(MAX_PROGRAM_BYTES)
        .nest_limit(2 * u32::try_from(MAX_DEPTH).unwrap_or(u32::MAX))
        .build()
        .map_err(|_| PatternError { problem: "expression too large", at: pattern.to_owned() })
}

/// Checks a pattern of Go's syntax and writes it in the `regex` crate's, without compiling it: the states of the result
/// tell what [`build`] will cost.
pub fn translate(pattern: &str) -> Result<Translated, PatternError> {
    let mut translator = Translator {
        pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len() + 8),
        groups: vec![Group::default()],
    };
    translator.run()?;
    let states = translator.group().states;
    Ok(Translated { text: translator.out, states })
}

type Checked<T = ()> = Result<T, PatternError>;

fn refuse<T>(problem: &'static str, at: &str) -> Checked<T> {
    Err(PatternError { problem, at: at.to_owned() })
}

/// What precedes a repetition operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    /// Something that can be repeated; the number multiplies nested counts.
    Atom(u32),
    Repeated(u32),
}

struct Group {
    last: Last,
    /// Where the last atom and a repetition of it begin in the pattern, for messages.
    repetition_start: usize,
    /// Product of nested counts within.
    weight: u32,
    /// States of the group so far, and of its last atom alone.
    states: u64,
    last_states: u64,
}

/// States of a Unicode class.
const UNICODE_STATES: u64 = 200;
/// States of a class that contains most of Unicode.
const ANY_STATES: u64 = 10;

impl Default for Group {
    fn default() -> Self {
        Self { last: Last::Nothing, repetition_start: 0, weight: 1, states: 0, last_states: 0 }
    }
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    groups: Vec<Group>,
}

impl<'p> Translator<'p> {
    fn at(&self) -> usize {
        self.pattern.len() - self.rest.len()
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn atom(&mut self, weight: u32, states: u64) {
        let group = self.group();
        group.last = Last::Atom(weight);
        group.weight = group.weight.max(weight);
        group.last_states = states;
        group.states = group.states.saturating_add(states);
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.atom(1, 1);
    }

    fn run(&mut self) -> Checked {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.rest = &self.rest[1..];
                    self.out.push('|');
                    self.group().last = Last::Nothing;
                }
                '[' => {
                    let end = class::translate(self.rest, &mut self.out)?;
                    let unicode = self.rest[..end].contains("\\p") || self.rest[..end].contains("\\P");
                    self.rest = &self.rest[end..];
                    self.atom(1, if unicode { UNICODE_STATES } else { ANY_STATES + end as u64 });
                }
                '*' | '+' | '?' => self.repeat_simple(c)?,
                '{' => self.repeat_counted()?,
                '\\' => self.escape()?,
                '.' | '^' | '$' => {
                    self.rest = &self.rest[1..];
                    self.out.push(c);
                    self.atom(1, ANY_STATES);
                }
                _ => {
                    self.rest = &self.rest[c.len_utf8()..];
                    self.literal(c);
                }
            }
        }
        if self.groups.len() > 1 {
            return refuse("missing closing )", self.pattern);
        }
        Ok(())
    }

    fn open(&mut self) -> Checked {
        if self.groups.len() > MAX_DEPTH {
            return refuse("expression nests too deeply", self.pattern);
        }
        if self.rest.starts_with("(?") {
            return self.open_flags();
        }
        self.rest = &self.rest[1..];
        self.out.push('(');
        self.groups.push(Group::default());
        Ok(())
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`.
    fn open_flags(&mut self) -> Checked {
        const UNSUPPORTED: &str = "invalid or unsupported Perl syntax";
        let named = self.rest.strip_prefix("(?P<").or_else(|| self.rest.strip_prefix("(?<"));
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let Some(end) = named.find('>') else {
                return refuse("invalid named capture", self.rest);
            };
            let (name, start) = (&named[..end], self.rest.len() - named.len());
            if name.is_empty() || !name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
                return refuse("invalid named capture", &self.rest[..start + end + 1]);
            }
            // Nothing asks for groups by name.
            self.out.push('(');
            self.rest = &named[end + 1..];
            self.groups.push(Group::default());
            return Ok(());
        }
        let (mut negative, mut any) = (false, false);
        for (at, c) in self.rest.char_indices().skip(2) {
            match c {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if !negative => (negative, any) = (true, false),
                ':' | ')' if !negative || any => {
                    self.out.push_str(&self.rest[..=at]);
                    self.rest = &self.rest[at + 1..];
                    if c == ':' {
                        self.groups.push(Group::default());
                    } else {
                        self.group().last = Last::Nothing;
                    }
                    return Ok(());
                }
                _ => return refuse(UNSUPPORTED, &self.rest[..at + c.len_utf8()]),
            }
        }
        refuse(UNSUPPORTED, self.rest)
    }

    fn close(&mut self) -> Checked {
        if self.groups.len() < 2 {
            return refuse("unexpected )", self.pattern);
        }
        let group = self.groups.pop().unwrap_or_default();
        self.rest = &self.rest[1..];
        self.out.push(')');
        self.atom(group.weight, group.states.saturating_add(1));
        Ok(())
    }

    /// Checks that a repetition may stand here and returns the weight of what is repeated.
    fn repeatable(&mut self, operator: &str) -> Checked<u32> {
        let at = self.at();
        let group = self.group();
        match group.last {
            Last::Nothing => refuse("missing argument to repetition operator", operator),
            Last::Repeated(_) => {
                let start = group.repetition_start;
                refuse("invalid nested repetition operator", &self.pattern[start..at + operator.len()])
            }
            Last::Atom(weight) => {
                group.repetition_start = at;
                Ok(weight)
            }
        }
    }

    /// Copies an operator of `length` bytes with its lazy mark.
    fn finish_repeat(&mut self, length: usize, weight: u32) {
        let lazy = usize::from(self.rest[length..].starts_with('?'));
        self.out.push_str(&self.rest[..length + lazy]);
        self.rest = &self.rest[length + lazy..];
        let group = self.group();
        group.last = Last::Repeated(weight);
        group.weight = group.weight.max(weight);
    }

    /// `*`, `+` or `?`.
    fn repeat_simple(&mut self, c: char) -> Checked {
        let mut operator = [0; 4];
        let weight = self.repeatable(c.encode_utf8(&mut operator))?;
        self.finish_repeat(1, weight);
        Ok(())
    }

    fn repeat_counted(&mut self) -> Checked {
        let Some((low, high, length)) = parse_repeat(self.rest) else {
            self.rest = &self.rest[1..];
            self.literal('{');
            return Ok(());
        };
        let operator = &self.rest[..length];
        let invalid = low > MAX_REPEAT || high.is_some_and(|high| high > MAX_REPEAT || high < low);
        if invalid {
            return refuse("invalid repeat count", operator);
        }
        let weight = self.repeatable(operator)?;
        let product = weight.saturating_mul(high.unwrap_or(low).max(1));
        if product > MAX_REPEAT {
            return refuse("invalid repeat count", operator);
        }
        let group = self.group();
        let copies = u64::from(high.unwrap_or(low).max(1)) - 1;
        group.states = group.states.saturating_add(group.last_states.saturating_mul(copies));
        self.finish_repeat(length, product);
        Ok(())
    }

    fn escape(&mut self) -> Checked {
        let after = &self.rest[1..];
        let Some(c) = after.chars().next() else {
            return refuse("trailing backslash at end of expression", "");
        };
        match c {
            'A' | 'z' => {
                self.out.push_str(&self.rest[..2]);
                self.rest = &after[1..];
                self.atom(1, ANY_STATES);
            }
            'b' | 'B' => {
                self.out.push_str(if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" });
                self.rest = &after[1..];
                self.atom(1, ANY_STATES);
            }
            'Q' => self.quoted(&after[1..]),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => {
                self.out.push_str(class::perl(c));
                self.rest = &after[1..];
                self.atom(1, ANY_STATES);
            }
            'p' | 'P' => {
                let length = class::unicode_class(self.rest, &mut self.out)?;
                self.rest = &self.rest[length..];
                self.atom(1, UNICODE_STATES);
            }
            _ => {
                let (literal, length) = escaped_char(self.rest)?;
                self.rest = &self.rest[length..];
                self.literal(literal);
            }
        }
        Ok(())
    }

    /// Text up to `\E` or the end is taken as it is.
    fn quoted(&mut self, text: &'p str) {
        let (literal, rest) = text.split_once(r"\E").unwrap_or((text, ""));
        for c in literal.chars() {
            self.literal(c);
        }
        self.rest = rest;
    }
}

/// Reads `{n}`, `{n,}` or `{n,m}`: the counts and the length. Other braces are literals.
fn parse_repeat(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let end = text.find('}')?;
    let body = &text[1..end];
    let count = |digits: &str| {
        let plain = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        // Too many digits are too large in any case.
        plain.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (low, high) = match body.split_once(',') {
        None => (count(body)?, Some(count(body)?)),
        Some((low, "")) => (count(low)?, None),
        Some((low, high)) => (count(low)?, Some(count(high)?)),
    };
    Some((low, high, end + 1))
}

/// The character an escape like `\n`, `\x41` or `\.` stands for, and the length of the escape.
fn escaped_char(text: &str) -> Checked<(char, usize)> {
    let after = &text[1..];
    let Some(c) = after.chars().next() else {
        return refuse("trailing backslash at end of expression", "");
    };
    let invalid = |length: usize| refuse("invalid escape sequence", text.get(..length).unwrap_or(text));
    let literal = match c {
        'a' => '\x07',
        'f' => '\x0C',
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'v' => '\x0B',
        '0'..='7' => {
            let digits = after.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            // One digit other than 0 would be a back reference.
            if c != '0' && digits == 1 {
                return invalid(2);
            }
            let value = u32::from_str_radix(&after[..digits], 8).unwrap_or(0);
            return char::from_u32(value).map_or_else(|| invalid(1 + digits), |c| Ok((c, 1 + digits)));
        }
        'x' => return hex_char(text),
        _ if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return invalid(1 + c.len_utf8()),
    };
    Ok((literal, 1 + c.len_utf8()))
}

fn hex_char(text: &str) -> Checked<(char, usize)> {
    let body = &text[2..];
    let (digits, length) = match body.strip_prefix('{') {
        Some(braced) => {
            let end = braced.find('}').unwrap_or(0);
            (&braced[..end], 2 + end + 2)
        }
        None => (body.get(..2).unwrap_or(""), 4),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let value = if plain { u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) } else { None };
    match value {
        Some(c) => Ok((c, length)),
        None => refuse("invalid escape sequence", text.get(..length.min(text.len())).unwrap_or(text)),
    }
}

/// Writes a character so that it stands for itself.
fn push_literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        out.push_str(&format!(r"\x{:02X}", c as u32));
    } else {
        out.push(c);
    }
}

#[cfg(test)]
mod tests;
