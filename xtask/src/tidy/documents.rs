//! Checks links between the project's documents.

use super::{SourceFile, TidyFinding};

/// Reports links to files that do not exist. `exists` takes a path relative to the root.
pub(super) fn check_links(source: &SourceFile, exists: &dyn Fn(&str) -> bool) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (number, target) in find_links(&source.text) {
        let Some(path) = resolve_link(&source.path, &target) else { continue };
        match path {
            Some(path) if exists(&path) => (),
            Some(path) => findings.push(TidyFinding::at_line(
                &source.path,
                number,
                format!("the link target {path} does not exist"),
            )),
            None => findings.push(TidyFinding::at_line(
                &source.path,
                number,
                format!("the link {target} leads out of the checkout"),
            )),
        }
    }
    findings
}

/// Line and target of every `[text](target)` and `[name]: target` outside of code.
fn find_links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(links_in_line(&without_code(line)).into_iter().map(|target| (number + 1, target)));
        }
    }
    found
}

/// Removes the text between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

fn links_in_line(line: &str) -> Vec<String> {
    let target = |rest: &str| rest.split([' ', '"']).next().map(|target| target.trim_matches(['<', '>']).to_owned());
    let mut found = Vec::new();
    for (start, _) in line.match_indices("](") {
        if let Some((inner, _)) = line[start + 2..].split_once(')') {
            found.extend(target(inner));
        }
    }
    if line.starts_with('[')
        && let Some((_, rest)) = line.split_once("]: ")
    {
        found.extend(target(rest));
    }
    found
}

/// Resolves a link relative to its document. `None` for a web address or an anchor, `Some(None)` if it leaves the
/// checkout.
fn resolve_link(document: &str, target: &str) -> Option<Option<String>> {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." if parts.pop().is_none() => return Some(None),
            ".." => (),
            name => parts.push(name),
        }
    }
    Some(Some(parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let exists = |path: &str| ["README.md", "docs/operating.md", "docs", ""].contains(&path);
        let found = check_links(&SourceFile { path: path.to_owned(), text: text.to_owned() }, &exists);
        assert_eq!(found.iter().map(TidyFinding::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn broken_relative_links_are_reported() {
        check("README.md", "see [a](docs/operating.md#flags), [b](./docs/) and [c](#here)\n", &[]);
        check("docs/operating.md", "back to [a](../README.md \"title\") and [b](operating.md)\n", &[]);
        check(
            "docs/operating.md",
            "[a](README.md)\n",
            &["docs/operating.md:1: the link target docs/README.md does not exist"],
        );
        check(
            "docs/operating.md",
            "\n[a](../../x.md)\n",
            &["docs/operating.md:2: the link ../../x.md leads out of the checkout"],
        );
    }

    #[test]
    fn broken_reference_links_are_reported() {
        check(
            "README.md",
            "[a]: docs/operating.md\n[b]: <docs/gone.md>\n",
            &["README.md:2: the link target docs/gone.md does not exist"],
        );
    }

    #[test]
    fn web_addresses_and_code_are_ignored() {
        check(
            "README.md",
            "[a](https://kubernetes.io/x.md) [b](mailto:x@y) `[c](gone.md)`\n```\n[d](gone.md)\n```\n",
            &[],
        );
    }
}
