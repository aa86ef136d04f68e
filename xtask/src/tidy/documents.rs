//! Links between the project's documents.

use super::{Finding, Source};

/// Every link to a file of the checkout must lead to one. `exists` is asked with a path relative to the root.
pub(super) fn check_links(source: &Source, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, target) in links(&source.text) {
        let Some(path) = local_path(&source.path, &target) else { continue };
        match path {
            Some(path) if exists(&path) => (),
            Some(path) => findings.push(Finding::at(
                &source.path,
                number,
                format!("the link leads to {path}, which is not there"),
            )),
            None => {
                findings.push(Finding::at(&source.path, number, format!("the link {target} leads out of the checkout")))
            }
        }
    }
    findings
}

/// Line and target of every `[text](target)` and `[name]: target` outside of code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(line_links(&without_code(line)).into_iter().map(|target| (number + 1, target)));
        }
    }
    found
}

/// The line with what is between backticks left out.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

fn line_links(line: &str) -> Vec<String> {
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

/// None if the link leaves the files: a web address, or a place in the same document. Some of none if it leaves the root.
fn local_path(document: &str, target: &str) -> Option<Option<String>> {
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
        let found = check_links(&Source { path: path.to_owned(), text: text.to_owned() }, &exists);
        assert_eq!(found.iter().map(Finding::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_are_relative_to_their_document() {
        check("README.md", "see [a](docs/operating.md#flags), [b](./docs/) and [c](#here)\n", &[]);
        check("docs/operating.md", "back to [a](../README.md \"title\") and [b](operating.md)\n", &[]);
        check(
            "docs/operating.md",
            "[a](README.md)\n",
            &["docs/operating.md:1: the link leads to docs/README.md, which is not there"],
        );
        check(
            "docs/operating.md",
            "\n[a](../../x.md)\n",
            &["docs/operating.md:2: the link ../../x.md leads out of the checkout"],
        );
    }

    #[test]
    fn named_links_count_too() {
        check(
            "README.md",
            "[a]: docs/operating.md\n[b]: <docs/gone.md>\n",
            &["README.md:2: the link leads to docs/gone.md, which is not there"],
        );
    }

    #[test]
    fn addresses_and_code_are_left_alone() {
        check(
            "README.md",
            "[a](https://kubernetes.io/x.md) [b](mailto:x@y) `[c](gone.md)`\n```\n[d](gone.md)\n```\n",
            &[],
        );
    }
}
