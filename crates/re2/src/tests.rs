use super::*;

#[test]
fn patterns_match_as_in_go() {
    for (pattern, text, expected) in [
        (r"^\d+$", "١٢", false),
        (r"^\d+$", "12", true),
        (r"\bfoo\b", "a foo b", true),
        (r"\bé", "é", false),
        (r"^\Qa.b*\E$", "a.b*", true),
        (r"\Qa.b", "xa.bx", true),
        (r"a\z", "a\n", false),
        (r"^a$", "a\n", false),
        ("(?m)^a$", "b\na\nc", true),
        (r"^[\w-]+$", "a-b_c", true),
        (r"^[\w-]+$", "ü", false),
        (r"^[[:alpha:]]$", "q", true),
        (r"^[]a]+$", "]a", true),
        (r"^[a&&b]+$", "a&b", true),
        (r"^[a[b]+$", "[ab", true),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{$", "a{", true),
        (r"^\<a\>$", "<a>", true),
        (r"^\x41\x{42}\103$", "ABC", true),
        (r"^\pL+$", "äb", true),
        (r"^\p{^Greek}$", "a", true),
        (r"^[\P{^Greek}]$", "α", true),
        (r"(?P<year>\d{4})-(?<month>\d\d)", "2026-11", true),
        ("(?i)^HELLO$", "hello", true),
        (r"^[^\D]$", "5", true),
        (r"^\_$", "_", true),
        ("", "x", true),
        ("a||b", "c", true),
        ("(|a)*", "", true),
        (r"^[\d\-x]+$", "1-x", true),
        ("^[a-]+$", "a-", true),
        ("^[+-.]+$", "+,-.", true),
        ("^[a-b-c]+$", "a-c", true),
        ("(?P<n>a)(?P<n>b)", "ab", true),
        ("^*", "", true),
    ] {
        let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(regex.is_match(text), expected, "{pattern} on {text}");
    }
}

#[test]
fn largest_patterns_that_are_checked_without_compiling_compile() {
    for (part, limit) in [
        (".{1,1000}", FITTING_STATES),
        ("(?s:.){1,1000}", FITTING_STATES),
        (r"\W{1,1000}", FITTING_STATES),
        ("[^a]{1,1000}", FITTING_STATES),
        (r"[\x{80}-\x{10FFFF}]{1,1000}", FITTING_STATES),
        ("(?i)(abcdefghijklmnopqrstuvwxyz){1,1000}", FITTING_STATES),
        ("(?i)[ǅKſ]{1,1000}", FITTING_STATES),
        (r"\bx{1,1000}", FITTING_STATES),
        (r"\p{L}", FITTING_UNICODE_STATES),
        (r"(?i)[^\p{L}\p{N}\p{S}\p{M}\p{P}]", FITTING_UNICODE_STATES),
    ] {
        let states = translate(part).unwrap().states;
        let largest = part.repeat(usize::try_from(limit / states).unwrap());
        assert!(translate(&largest).unwrap().states <= limit, "{part}");
        assert!(compile(&largest).is_ok(), "{part}: {limit} states do not fit");
        assert_eq!(check(&largest), Ok(()));
    }
    let large = r"\p{L}{1,1000}\p{N}{1,1000}";
    assert_eq!(check(large), compile(large).map(drop));
    assert_eq!(check("a**"), compile("a**").map(drop));
}

#[test]
fn errors_are_gos() {
    for (pattern, error) in [
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*+", "invalid nested repetition operator: `*+`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("(+)", "missing argument to repetition operator: `+`"),
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\y", r"invalid escape sequence: `\y`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        (r"\p{Nope}", r"invalid character class range: `\p{Nope}`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        (r"[a-\d]", r"invalid escape sequence: `\d`"),
        ("a*??", "invalid nested repetition operator: `*??`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("(?P<", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
        ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
        (r"\x{", r"invalid escape sequence: `\x{`"),
        ("[^]", "missing closing ]: `[^]`"),
    ] {
        let found = translate(pattern).unwrap_err().to_string();
        assert_eq!(found, format!("error parsing regexp: {error}"), "{pattern}");
    }
}
