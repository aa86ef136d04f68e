//! Unified diff of two values for error messages.

use schema::ValueType;
use serde_json::Value;

use super::go_form::{GoLayout, go_form};

/// Lines around a difference.
const CONTEXT_LINES: usize = 3;
/// Bounds the message when a whole object differs.
const DIFF_LINES_MAX: usize = 200;

/// Both values with a line per field, from the first line that differs to the last, in the form of `diff -u`. Empty if
/// they are equal. A value whose type is not known is shown as JSON.
pub(crate) fn unified_diff(old: &Value, new: &Value, shape: Option<ValueType<'_>>) -> String {
    let [old, new] = [old, new].map(|value| {
        let form = shape.and_then(|shape| go_form(value, shape, GoLayout::Indented));
        form.unwrap_or_else(|| serde_json::to_string_pretty(value).unwrap_or_default())
    });
    diff_lines(&old, &new)
}

/// The lines that differ between two texts.
pub(crate) fn diff_lines(old: &str, new: &str) -> String {
    let [old, new]: [Vec<&str>; 2] = [old.lines().collect(), new.lines().collect()];
    let same = |(old, new): &(&&str, &&str)| old == new;
    let before = old.iter().zip(&new).take_while(same).count();
    if before == old.len() && before == new.len() {
        return String::new();
    }
    let left = |lines: &[&str]| lines.len() - before;
    let after = old.iter().rev().zip(new.iter().rev()).take_while(same).count().min(left(&old)).min(left(&new));
    let (first, last) = (before - before.min(CONTEXT_LINES), after - after.min(CONTEXT_LINES));
    let marked = |mark: char, lines: &[&str]| lines.iter().map(|line| format!("{mark}{line}\n")).collect::<Vec<_>>();
    let mut lines = marked(' ', &old[first..before]);
    lines.extend(marked('-', &old[before..old.len() - after]));
    lines.extend(marked('+', &new[before..new.len() - after]));
    lines.extend(marked(' ', &old[old.len() - after..old.len() - last]));
    lines.truncate(DIFF_LINES_MAX);
    let span = |lines: &[&str]| format!("{},{}", first + 1, lines.len() - last - first);
    format!("@@ -{} +{} @@\n{}", span(&old), span(&new), lines.concat())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn unified_diff_shows_context_lines() {
        let old = json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": [5], "f": 6, "g": 7, "h": 8, "i": 9});
        let new = json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": [6, 7], "f": 6, "g": 7, "h": 8, "i": 9});
        expect![[r#"
            @@ -4,7 +4,8 @@
               "c": 3,
               "d": 4,
               "e": [
            -    5
            +    6,
            +    7
               ],
               "f": 6,
               "g": 7,
        "#]]
        .assert_eq(&unified_diff(&old, &new, None));
    }

    #[test]
    fn unified_diff_of_unrelated_values_shows_both() {
        expect![[r#"
            @@ -1,1 +1,1 @@
            -1
            +2
        "#]]
        .assert_eq(&unified_diff(&json!(1), &json!(2), None));
        assert_eq!(unified_diff(&json!({"a": 1}), &json!({"a": 1}), None), "");
    }

    #[test]
    fn unified_diff_handles_repeated_lines() {
        expect![[r#"
            @@ -1,4 +1,5 @@
             [
               1,
            +  1,
               1
             ]
        "#]]
        .assert_eq(&unified_diff(&json!([1, 1]), &json!([1, 1, 1]), None));
    }
}
