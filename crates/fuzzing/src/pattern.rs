//! Regular expressions with the syntax of RE2: the first line is the pattern, the others are the text.

pub(crate) const SEEDS: &[&str] = &[
    "^[a-z]([-a-z0-9]*[a-z0-9])?$\nweb-1",
    r"(?i)\bfoo\b|(?P<name>x{2,5}?)\d+
Foo xxx12",
    "[[:alpha:]_][^[:space:]]*\\pL\\PN\\x{1F600}?\na_é",
    "(?s:.)*?(?m:^b$)|\\Qa.b\\E+|\\C\na\nb\na.b",
    "((a*)*)*b|(a|b){0,1000}c\naaaaaaaaaaaaaaaaaaaaac",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "(",
    ")",
    "(?:",
    "(?i)",
    "(?P<n>",
    "[",
    "]",
    "[^",
    "[:alpha:]",
    "{2,5}",
    "{1000}",
    "{,3}",
    "*",
    "+",
    "?",
    "|",
    "^",
    "$",
    "\\b",
    "\\B",
    "\\d",
    "\\w",
    "\\pL",
    "\\p{Greek}",
    "\\x{10FFFF}",
    "\\Q",
    "\\E",
    "\\A",
    "\\z",
    "\\C",
    "\\1",
    ".",
    "-",
    "&&",
    "\n",
    "é",
    "a",
    "(?s)",
];

/// A pattern compiles or gives an error. Whether and where it matches is consistent, on character boundaries.
pub fn pattern(input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let (pattern, text) = input.split_once('\n').unwrap_or((&input, ""));
    match re2::compile(pattern) {
        Ok(regex) => {
            let found = regex.find(text);
            assert_eq!(regex.is_match(text), found.is_some());
            if let Some(found) = found {
                assert!(text.get(found.range()).is_some());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
