//! Regular expressions with the syntax of RE2: the first line is the pattern, the others are the text.

pub(crate) const SEEDS: &[&str] = &[
    "^[a-z]([-a-z0-9]*[a-z0-9])?$\nweb-1",
    r"(?i)\bfoo\b|(?P<name>x{2,5}?)\d+
Foo xxx12",
    "[[:alpha:]_][^[:space:]]*\\pL\\PN\\x{1F600}?\na_é",
    "(?s:.)*?(?m:^b$)|\\Qa.b\\E+|\\C\na\nb\na.b",
    "((a*)*)*b|(a|b){0,40}c\naaaaaaaaaaaaaaaaaaaaac",
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
    "{50}",
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

/// Larger patterns are only checked: an unoptimised build takes seconds to compile the largest that expressions can have.
const STATES_MAX: u64 = 300;
/// Bytes of a pattern; nesting beyond the limit of the syntax fits.
const BYTES_MAX: usize = 10_000;

/// A pattern compiles or gives an error. Whether and where it matches is consistent, on character boundaries.
pub fn pattern(input: &[u8]) {
    let input = String::from_utf8_lossy(&input[..input.len().min(BYTES_MAX)]);
    let (pattern, text) = input.split_once('\n').unwrap_or((&input, ""));
    match re2::translate(pattern) {
        Ok(translated) if translated.states <= STATES_MAX => {
            if let Ok(regex) = re2::build(pattern, &translated) {
                let found = regex.find(text);
                assert_eq!(regex.is_match(text), found.is_some());
                assert!(found.is_none_or(|found| text.get(found.range()).is_some()));
            }
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
