//! Label and field selectors: the first line is the selector, the others are labels.

use api::selector::{FieldSelector, FieldTerm, LabelOperator, LabelRequirement, LabelSelector};

pub(crate) const SEEDS: &[&str] = &[
    "app=web,tier in (front,back),!legacy\napp=web\ntier=front",
    "a.example.com/b notin (c,,d),e==f,g!=h,i\ni=\ne=f",
    "n>5,m<-3,in in (in,notin)\nn=6\nm=-4\nin=notin",
    "metadata.name=web,status.phase!=Running\nmetadata.name=web",
    r"a=b\,c\=d\\,e==f,=,!=x",
    "x in (),y=,z in (,)\nx=\ny=\nz=",
];
pub(crate) const DICTIONARY: &[&str] = &[
    ",",
    "=",
    "==",
    "!=",
    "!",
    ">",
    "<",
    "(",
    ")",
    " in ",
    " notin ",
    "in",
    "\\",
    "\\,",
    "\\=",
    "\\\\",
    "\n",
    " ",
    "/",
    "metadata.name=",
    "9223372036854775808",
    "-1",
    "a.b/c",
];

/// A selector parses or gives an error. Its text parses back to an equivalent selector, and from then on text and value
/// do not change.
pub fn selectors(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (selector, labels) = text.split_once('\n').unwrap_or((&text, ""));
    let labels: Vec<(&str, &str)> = labels.lines().filter_map(|line| line.split_once('=')).collect();
    let lookup = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    match LabelSelector::parse(selector) {
        Ok(parsed) => check_labels(&parsed, lookup),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match FieldSelector::parse(selector) {
        Ok(parsed) => check_fields(&parsed, lookup),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_labels<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) {
    let again = LabelSelector::parse(&selector.to_string()).expect("printed selector parses");
    assert_eq!(&again, selector);
    assert_eq!(again.to_string(), selector.to_string());
    let matches = selector.matches(&label);
    let fails = |requirement: &&LabelRequirement| !requirement.matches(label(requirement.key()));
    assert_eq!(matches, selector.requirements().iter().find(fails).is_none());
    for requirement in selector.requirements() {
        let value = label(requirement.key());
        let is_listed = value.is_some_and(|value| requirement.values().iter().any(|listed| listed == value));
        let expected = match requirement.operator() {
            LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => is_listed,
            LabelOperator::NotIn | LabelOperator::NotEquals => !is_listed,
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan | LabelOperator::LessThan => requirement.matches(value) && value.is_some(),
        };
        assert_eq!(requirement.matches(value), expected);
    }
}

fn check_fields<'a>(selector: &FieldSelector, field: impl Fn(&str) -> Option<&'a str>) {
    let again = FieldSelector::parse(&selector.to_string()).expect("printed selector parses");
    // `=` and `==` are equivalent but sort differently, so only the second text is stable.
    assert_eq!(sorted_terms(&again), sorted_terms(selector));
    let settled = FieldSelector::parse(&again.to_string()).expect("printed selector parses");
    assert_eq!(settled, again);
    assert_eq!(settled.to_string(), again.to_string());
    let matches = selector.matches(&field);
    assert_eq!(again.matches(&field), matches);
    for term in selector.terms() {
        if let Some(exact) = selector.requires_exact_match(&term.field) {
            assert!(!matches || field(&term.field).unwrap_or("") == exact);
        }
    }
}

fn sorted_terms(selector: &FieldSelector) -> Vec<&FieldTerm> {
    let mut terms: Vec<_> = selector.terms().iter().collect();
    terms.sort_unstable();
    terms
}
