//! Mail addresses as Go's `mail.ParseAddress` accepts them: RFC 5322 with names, comments and groups of one.
//!
//! Encoded words in names are not decoded, so that unknown character sets are accepted.

use std::net::IpAddr;

pub(super) fn is_address(text: &str) -> bool {
    let mut reader = AddressReader { rest: text };
    reader.address(true) == Some(1) && reader.skip_comments() && reader.rest.is_empty()
}

struct AddressReader<'a> {
    rest: &'a str,
}

impl<'a> AddressReader<'a> {
    /// Reads an address or a group; returns how many addresses it has.
    fn address(&mut self, may_be_group: bool) -> Option<usize> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        if self.local_part_and_domain() {
            self.skip_space();
            return (!self.consume('(') || self.comment()).then_some(1);
        }
        if !self.rest.starts_with('<') && !self.phrase() {
            return None;
        }
        self.skip_space();
        if may_be_group && self.consume(':') {
            return self.group();
        }
        (self.consume('<') && self.local_part_and_domain() && self.consume('>')).then_some(1)
    }

    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        if self.consume(';') {
            return self.skip_comments().then_some(0);
        }
        let mut count = 0;
        loop {
            self.skip_space();
            count += self.address(false)?;
            if !self.skip_comments() {
                return None;
            }
            if self.consume(';') {
                return self.skip_comments().then_some(count);
            }
            if !self.consume(',') {
                return None;
            }
        }
    }

    /// Reads `local@domain`, or nothing.
    fn local_part_and_domain(&mut self) -> bool {
        let start = self.rest;
        let found = self.local_part() && self.consume('@') && self.domain();
        if !found {
            self.rest = start;
        }
        found
    }

    fn local_part(&mut self) -> bool {
        self.skip_space();
        if self.rest.starts_with('"') {
            return self.quoted().is_some_and(|is_empty| !is_empty);
        }
        self.dot_atom()
    }

    fn domain(&mut self) -> bool {
        self.skip_space();
        if !self.consume('[') {
            return self.dot_atom();
        }
        let Some((literal, rest)) = self.rest.split_once(']') else { return false };
        self.rest = rest;
        literal.parse::<IpAddr>().is_ok()
    }

    fn dot_atom(&mut self) -> bool {
        let atom = self.atom();
        !atom.is_empty() && !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..")
    }

    fn atom(&mut self) -> &'a str {
        let length = self.rest.find(|c| !is_atom_character(c)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(length);
        self.rest = rest;
        atom
    }

    /// Reads a quoted text; returns whether it is empty, and `None` if it is malformed.
    fn quoted(&mut self) -> Option<bool> {
        let mut is_empty = true;
        let mut is_escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                _ if !is_visible(c) && !matches!(c, ' ' | '\t') => return None,
                '"' if !is_escaped => {
                    self.rest = &self.rest[at + 1..];
                    return Some(is_empty);
                }
                '\\' if !is_escaped => is_escaped = true,
                _ => (is_empty, is_escaped) = (false, false),
            }
        }
        None
    }

    /// Reads the words of a name; at least one.
    fn phrase(&mut self) -> bool {
        let mut has_words = false;
        loop {
            if has_words && !self.skip_comments() {
                return false;
            }
            self.skip_space();
            if self.rest.is_empty() {
                return true;
            }
            let is_word = match self.rest.starts_with('"') {
                true => self.quoted().is_some(),
                false => !self.atom().is_empty(),
            };
            if !is_word {
                return has_words;
            }
            has_words = true;
        }
    }

    fn skip_comments(&mut self) -> bool {
        self.skip_space();
        while self.consume('(') {
            if !self.comment() {
                return false;
            }
            self.skip_space();
        }
        true
    }

    /// Reads the rest of a comment, in which others may nest.
    fn comment(&mut self) -> bool {
        let mut depth = 1_usize;
        let mut is_escaped = false;
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if at + 1 < self.rest.len() => is_escaped = true,
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &self.rest[at + 1..];
                return true;
            }
        }
        self.rest = "";
        false
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn consume(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn is_visible(c: char) -> bool {
    c.is_ascii_graphic() || !c.is_ascii()
}

fn is_atom_character(c: char) -> bool {
    is_visible(c) && !"()<>[]:;@\\,\"".contains(c)
}
