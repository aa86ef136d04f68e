//! Checks that metrics in alerts and dashboards exist, and that deployment examples use existing flags.

use std::collections::BTreeSet;

use super::flags::{FlagsByCommand, flags_in_text};
use super::{SourceFile, TidyFinding};

/// Alerts, dashboards and the manual that explains metrics.
const MONITORING: [&str; 2] = ["docs/monitoring/", "docs/operating.md"];

/// Units, manifests and configuration files.
const DEPLOY: &str = "docs/deploy/";

/// Labels that Prometheus itself adds.
const COMMON_LABELS: [&str; 3] = ["instance", "job", "le"];

/// Suffixes of the series of a histogram.
const HISTOGRAM_SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Reports metrics and labels that no source file of a crate names.
pub(super) fn check_metrics(sources: &[SourceFile]) -> Vec<TidyFinding> {
    let product: Vec<&SourceFile> = sources.iter().filter(|source| is_product_source(source)).collect();
    let mut findings = Vec::new();
    let speaks = |source: &&SourceFile| MONITORING.iter().any(|place| source.path.starts_with(place));
    for document in sources.iter().filter(speaks) {
        for (number, line) in document.text.lines().enumerate() {
            for (metric, labels) in metrics_in_line(line) {
                let quoted = |name: &str| format!("\"{name}\"");
                // A counter may end like a histogram's series.
                let names = [quoted(&metric), quoted(metric_base_name(&metric))];
                let defining =
                    product.iter().filter(|source| names.iter().any(|name| source.text.contains(name.as_str())));
                let labels = labels.iter().filter(|label| !COMMON_LABELS.contains(&label.as_str()));
                let mut defining = defining.peekable();
                if defining.peek().is_none() {
                    let message = format!("no server has the metric `{metric}`");
                    findings.push(TidyFinding::at_line(&document.path, number + 1, message));
                    continue;
                }
                let defining: Vec<_> = defining.collect();
                let missing =
                    labels.filter(|label| !defining.iter().any(|source| source.text.contains(&quoted(label))));
                findings.extend(missing.map(|label| {
                    TidyFinding::at_line(
                        &document.path,
                        number + 1,
                        format!("the metric `{metric}` has no label `{label}`"),
                    )
                }));
            }
        }
    }
    findings
}

fn is_product_source(source: &SourceFile) -> bool {
    source.is_rust() && source.path.starts_with("crates/") && source.path.contains("/src/")
}

/// Name under which a metric is registered, without the suffix of a histogram series.
fn metric_base_name(metric: &str) -> &str {
    HISTOGRAM_SUFFIXES.iter().find_map(|part| metric.strip_suffix(part)).unwrap_or(metric)
}

/// Metric names with one of our prefixes, and the labels in the braces after them.
fn metrics_in_line(line: &str) -> Vec<(String, BTreeSet<String>)> {
    /// Prefixes of the program's metrics; other names are Prometheus' own.
    const PREFIXES: [&str; 6] =
        ["aggregator_", "apiserver_", "kubernetes_", "leader_election_", "unskew_", "workqueue_"];
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_part) {
        let name: String = rest[start..].chars().take_while(|c| is_part(*c)).collect();
        rest = &rest[start + name.len()..];
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let braces = rest.strip_prefix('{').and_then(|inside| inside.split('}').next()).unwrap_or_default();
        let labels = braces.split(',').filter_map(|part| part.split(['=', '!']).next());
        found.push((name, labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect()));
    }
    found
}

/// Reports flags in examples, and keys in configuration files, that the program lacks.
pub(super) fn check_deploy(sources: &[SourceFile], helps: &FlagsByCommand) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for document in sources.iter().filter(|source| source.path.starts_with(DEPLOY)) {
        for (number, line) in document.text.lines().enumerate() {
            let mut used = flags_in_text(line);
            if document.path.ends_with(".json") {
                let key = line.trim().strip_prefix('"').and_then(|rest| rest.split_once("\":"));
                used.extend(key.map(|(name, _)| format!("--{name}")));
            }
            let unknown = used.into_iter().filter(|flag| !helps.values().any(|flags| flags.contains(flag)));
            findings.extend(unknown.map(|flag| {
                TidyFinding::at_line(&document.path, number + 1, format!("no command of unskew has `{flag}`"))
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[track_caller]
    fn check_line(line: &str, expected: &[&str]) {
        let sources = [
            source("docs/monitoring/alerts.yaml", line),
            source(
                "crates/a/src/metrics.rs",
                r#"counters("unskew_gears_total", &["size"]); histogram("apiserver_wait")"#,
            ),
            source("crates/a/tests/it/main.rs", r#"has("unskew_only_in_tests")"#),
        ];
        let found: Vec<String> = check_metrics(&sources).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn unknown_metric_is_reported() {
        check_line(r#"expr: sum by (instance) (rate(unskew_gears_total{job="x",size=~"1|2"}[5m])) > up"#, &[]);
        check_line(r#""expr": "apiserver_wait_bucket{le=\"1\"} / apiserver_wait_count""#, &[]);
        check_line("expr: unskew_gear_total", &["no server has the metric `unskew_gear_total`"]);
        check_line("expr: unskew_only_in_tests", &["no server has the metric `unskew_only_in_tests`"]);
    }

    #[test]
    fn unknown_metric_label_is_reported() {
        check_line(r#"unskew_gears_total{colour!="red"}"#, &["the metric `unskew_gears_total` has no label `colour`"]);
    }

    #[test]
    fn unknown_flag_in_deploy_example_is_reported() {
        let helps = FlagsByCommand::from([("unskew serve".to_owned(), BTreeSet::from(["--port".to_owned()]))]);
        let sources = [
            source("docs/deploy/a.service", "ExecStart=unskew serve --port=1 \\\n  --prot=2\n"),
            source("docs/deploy/a.json", "{\n  \"port\": \"1\",\n  \"pork\": \"2\"\n}\n"),
            source("docs/lab.md", "--other\n"),
        ];
        let found: Vec<String> = check_deploy(&sources, &helps).iter().map(TidyFinding::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/deploy/a.service:2: no command of unskew has `--prot`",
                "docs/deploy/a.json:3: no command of unskew has `--pork`",
            ]
        );
    }
}
