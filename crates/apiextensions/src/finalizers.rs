//! Warnings about finalizers of custom objects whose names another controller could choose, too.

use std::collections::BTreeSet;

use api::json::JsonObject;
use api::quote::Quoted;
use api::validation::validate_label_key;
use object::unstructured::texts;

/// Finalizers of Kubernetes itself, which need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// The warnings about the finalizers that a write adds to a custom object, sorted by finalizer.
pub fn finalizer_warnings(old: Option<&JsonObject>, new: &JsonObject) -> Vec<String> {
    let of = |object| texts(object, &["metadata", "finalizers"]).collect::<BTreeSet<_>>();
    let known = old.map(of).unwrap_or_default();
    of(new).difference(&known).flat_map(|finalizer| warnings_about(finalizer)).collect()
}

fn warnings_about(finalizer: &str) -> Vec<String> {
    let warning = |text: &str| format!("metadata.finalizers: {}: {text}", Quoted(finalizer));
    let mut warnings: Vec<_> = validate_label_key(finalizer).iter().map(|problem| warning(problem)).collect();
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        warnings.push(warning(&format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(old: &[&str], new: &[&str], expected: &Expect) {
        let [old, new] = [old, new].map(|names| {
            let object = json!({"metadata": {"finalizers": names}});
            object.as_object().expect("it is an object").clone()
        });
        expected.assert_eq(&finalizer_warnings(Some(&old), &new).join("\n"));
    }

    #[test]
    fn added_finalizer_without_domain_or_path_is_warned_of() {
        check(
            &["known"],
            &["known", "plain", "example.com", "example.com/path", "orphan", "foregroundDeletion"],
            &expect![[r#"
                metadata.finalizers: "example.com": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers
                metadata.finalizers: "plain": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"#]],
        );
        check(&["known"], &["known"], &expect![""]);
    }
}
