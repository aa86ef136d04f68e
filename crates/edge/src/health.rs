//! `/healthz`, `/livez` and `/readyz`, in kube-apiserver's format.

use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::Response;
use crate::response::{page_not_found, plain_text_response};

/// A named condition of this server. Its failure reason goes to the log, and to callers who may read details.
pub struct HealthCheck {
    name: String,
    pages: HealthPages,
    probe: Box<dyn Fn() -> Result<CheckDetails, String> + Send + Sync>,
}

/// Lines about a check that passes, for verbose pages of callers who may read details. They may hold peers' addresses.
type CheckDetails = Vec<String>;

/// The pages that a check is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthPages {
    /// All three pages.
    All,
    /// `/readyz` only.
    ReadyOnly,
}

/// The checks of this server. Clones share them.
#[derive(Clone, Default)]
pub struct HealthChecks {
    checks: Arc<Vec<HealthCheck>>,
}

impl std::fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.checks.iter().map(|check| &check.name)).finish()
    }
}

impl HealthCheck {
    /// A check of this name.
    pub fn new(
        name: impl Into<String>,
        pages: HealthPages,
        test: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_details(name, pages, move || test().map(|()| CheckDetails::new()))
    }

    /// A check that has details even if it passes, for verbose pages of callers who may read them.
    pub fn with_details(
        name: impl Into<String>,
        pages: HealthPages,
        test: impl Fn() -> Result<CheckDetails, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), pages, probe: Box::new(test) }
    }
}

impl HealthChecks {
    /// These checks, shown in this order after `ping`.
    pub fn new(mut checks: Vec<HealthCheck>) -> Self {
        checks.insert(0, HealthCheck::new("ping", HealthPages::All, || Ok(())));
        Self { checks: Arc::new(checks) }
    }

    /// Registers a metric per check and page; the checks run when the metrics are collected.
    pub fn register(&self, registry: &Registry) {
        let opts =
            Opts::new("kubernetes_healthcheck", "[STABLE] This metric records the result of a single healthcheck.");
        let results = IntGaugeVec::new(opts, &["name", "type"]).expect("the name and labels are valid");
        let collector = HealthMetrics { health: self.clone(), results };
        registry.register(Box::new(collector)).expect("each name is registered once");
    }

    /// Runs the checks of a health page; `None` if the path is not one.
    pub(crate) fn serve(&self, path: &str, query: Option<&str>) -> Option<HealthPage> {
        let mut segments = path.trim_matches('/').splitn(2, '/');
        let page = HealthPageKind::from_segment(segments.next()?)?;
        Some(match segments.next() {
            None => self.summary_page(page, query.unwrap_or_default()),
            Some(name) => self.single_check_page(page, name),
        })
    }

    fn summary_page(&self, page: HealthPageKind, query: &str) -> HealthPage {
        let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let is_verbose = pairs().any(|(key, _)| key == "verbose");
        let excluded: Vec<&str> =
            pairs().filter(|(key, value)| *key == "exclude" && !value.is_empty()).map(|(_, value)| value).collect();
        let is_excluded = |check: &&HealthCheck| excluded.contains(&check.name.as_str());
        let run = |check: &HealthCheck| {
            if is_excluded(&check) { CheckOutcome::Excluded } else { CheckOutcome::from_result((check.probe)()) }
        };
        let results = PageResults {
            page,
            outcomes: self.checks_on(page).map(|check| (check.name.as_str(), run(check))).collect(),
            unmatched: excluded
                .into_iter()
                .filter(|name| !self.checks_on(page).any(|check| check.name == *name))
                .collect(),
        };
        results.log_failures();
        match (is_verbose, results.is_passed()) {
            (false, true) => HealthPage::Public(plain_text_response(StatusCode::OK, "ok".to_owned())),
            (true, _) if results.has_details() => HealthPage::Restricted {
                path: DETAILS_PAGE.to_owned(),
                public: results.render(Audience::Anyone),
                detailed: results.render(Audience::Operators),
            },
            (true, _) | (false, false) => HealthPage::Public(results.render(Audience::Anyone)),
        }
    }

    fn single_check_page(&self, page: HealthPageKind, name: &str) -> HealthPage {
        let Some(check) = self.checks_on(page).find(|check| check.name == name) else {
            return HealthPage::Public(page_not_found());
        };
        let failed = |reason: &str| {
            plain_text_response(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        };
        match (check.probe)() {
            Ok(_) => HealthPage::Public(plain_text_response(StatusCode::OK, "ok".to_owned())),
            Err(reason) => HealthPage::Restricted {
                path: format!("/{}/{name}", page.name()),
                public: failed(WITHHELD_REASON),
                detailed: failed(&reason),
            },
        }
    }

    fn checks_on(&self, page: HealthPageKind) -> impl Iterator<Item = &HealthCheck> {
        self.checks.iter().filter(move |check| check.pages == HealthPages::All || page == HealthPageKind::Readyz)
    }
}

/// A health page. Its status is the same for every caller; its text may not be.
pub(crate) enum HealthPage {
    /// The same text for every caller.
    Public(Response),
    /// Some of the text is for callers who may read another page.
    Restricted {
        /// The page whose readers get `detailed`.
        path: String,
        /// Names of checks and whether they pass.
        public: Response,
        /// The same with details and failure reasons.
        detailed: Response,
    },
}

/// Callers who may read it may read the details of verbose pages: it shows the same and more.
const DETAILS_PAGE: &str = crate::peer_routing::DEBUG_PAGE;
/// What kube-apiserver prints in place of a failure reason.
const WITHHELD_REASON: &str = "reason withheld";

/// The readers that a page is rendered for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    Anyone,
    Operators,
}

enum CheckOutcome {
    Excluded,
    Passed(CheckDetails),
    Failed(String),
}

impl CheckOutcome {
    fn from_result(result: Result<CheckDetails, String>) -> Self {
        result.map_or_else(Self::Failed, Self::Passed)
    }
}

/// The results of the checks of one page, in their order.
struct PageResults<'a> {
    page: HealthPageKind,
    outcomes: Vec<(&'a str, CheckOutcome)>,
    /// Excluded names that are no checks of the page.
    unmatched: Vec<&'a str>,
}

impl PageResults<'_> {
    fn is_passed(&self) -> bool {
        !self.outcomes.iter().any(|(_, outcome)| matches!(outcome, CheckOutcome::Failed(_)))
    }

    /// True if readers with more rights see more.
    fn has_details(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| match outcome {
            CheckOutcome::Excluded => false,
            CheckOutcome::Passed(details) => !details.is_empty(),
            CheckOutcome::Failed(_) => true,
        })
    }

    fn log_failures(&self) {
        if self.is_passed() {
            return;
        }
        let failed = self.outcomes.iter().filter_map(|(name, outcome)| match outcome {
            CheckOutcome::Excluded | CheckOutcome::Passed(_) => None,
            CheckOutcome::Failed(reason) => Some(format!("{name}: {reason}")),
        });
        let failed = failed.collect::<Vec<_>>().join("; ");
        tracing::warn!(page = self.page.name(), failed, "health check failed");
    }

    /// Renders the verbose form.
    fn render(&self, audience: Audience) -> Response {
        let mut lines = String::new();
        for (name, outcome) in &self.outcomes {
            // Writing to a string does not fail.
            let _ = match outcome {
                CheckOutcome::Excluded => writeln!(lines, "[+]{name} excluded: ok"),
                CheckOutcome::Passed(details) => {
                    let _ = writeln!(lines, "[+]{name} ok");
                    let shown = if audience == Audience::Operators { &details[..] } else { &[] };
                    shown.iter().try_for_each(|detail| writeln!(lines, "   {detail}"))
                }
                CheckOutcome::Failed(reason) => {
                    let reason = if audience == Audience::Operators { reason } else { WITHHELD_REASON };
                    writeln!(lines, "[-]{name} failed: {reason}")
                }
            };
        }
        if !self.unmatched.is_empty() {
            let quoted: Vec<String> = self.unmatched.iter().map(|name| format!("\"{name}\"")).collect();
            let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {}", quoted.join(","));
        }
        let (status, verdict) = match self.is_passed() {
            true => (StatusCode::OK, "passed"),
            false => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        let _ = writeln!(lines, "{} check {verdict}", self.page.name());
        plain_text_response(status, lines)
    }
}

/// The checks as metrics: 1 passed, 0 failed.
struct HealthMetrics {
    health: HealthChecks,
    results: IntGaugeVec,
}

impl Collector for HealthMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.results.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for page in [HealthPageKind::Healthz, HealthPageKind::Livez, HealthPageKind::Readyz] {
            for check in self.health.checks_on(page) {
                let result = i64::from((check.probe)().is_ok());
                self.results.with_label_values(&[&*check.name, page.name()]).set(result);
            }
        }
        self.results.collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthPageKind {
    Healthz,
    Livez,
    Readyz,
}

impl HealthPageKind {
    fn from_segment(segment: &str) -> Option<Self> {
        match segment {
            "healthz" => Some(Self::Healthz),
            "livez" => Some(Self::Livez),
            "readyz" => Some(Self::Readyz),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::Body;

    #[track_caller]
    fn check(path: &str, query: Option<&str>, expected: &Expect) {
        let health = HealthChecks::new(vec![
            HealthCheck::new("etcd", HealthPages::All, || Ok(())),
            HealthCheck::new("informer-sync", HealthPages::ReadyOnly, || Err("2 caches are empty".to_owned())),
        ]);
        expected.assert_eq(&describe_page(&health, path, query));
    }

    /// What every caller gets, and after it what readers of another page get if that differs.
    fn describe_page(health: &HealthChecks, path: &str, query: Option<&str>) -> String {
        let text_of = |response: Response| {
            let (parts, body) = response.into_parts();
            let Body::Full(bytes) = body else { panic!("health pages have a body") };
            format!("{} {}", parts.status.as_u16(), String::from_utf8_lossy(&bytes))
        };
        match health.serve(path, query) {
            None => "not a health page".to_owned(),
            Some(HealthPage::Public(response)) => text_of(response),
            Some(HealthPage::Restricted { path, public, detailed }) => {
                format!("{}for readers of {path}: {}", text_of(public), text_of(detailed))
            }
        }
    }

    #[test]
    fn passing_page_is_ok_and_verbose_lists_checks() {
        check("/livez", None, &expect!["200 ok"]);
        check(
            "/healthz/",
            Some("verbose"),
            &expect![[r#"
            200 [+]ping ok
            [+]etcd ok
            healthz check passed
        "#]],
        );
    }

    #[test]
    fn failing_page_withholds_reason_from_unprivileged_callers() {
        check(
            "/readyz",
            None,
            &expect![[r#"
            500 [+]ping ok
            [+]etcd ok
            [-]informer-sync failed: reason withheld
            readyz check failed
        "#]],
        );
        check(
            "/readyz",
            Some("verbose"),
            &expect![[r#"
            500 [+]ping ok
            [+]etcd ok
            [-]informer-sync failed: reason withheld
            readyz check failed
            for readers of /debug/peers: 500 [+]ping ok
            [+]etcd ok
            [-]informer-sync failed: 2 caches are empty
            readyz check failed
        "#]],
        );
    }

    #[test]
    fn single_check_shows_reason_to_readers_of_its_path() {
        check(
            "/readyz/informer-sync",
            None,
            &expect![[r#"
            500 internal server error: reason withheld
            for readers of /readyz/informer-sync: 500 internal server error: 2 caches are empty
        "#]],
        );
        check("/readyz/etcd", None, &expect!["200 ok"]);
        check(
            "/livez/informer-sync",
            None,
            &expect![[r#"
            404 404 page not found
        "#]],
        );
    }

    #[test]
    fn checks_can_be_excluded_by_name() {
        check("/readyz", Some("exclude=informer-sync"), &expect!["200 ok"]);
        check(
            "/readyz",
            Some("verbose=1&exclude=informer-sync&exclude=nothing"),
            &expect![[r#"
            200 [+]ping ok
            [+]etcd ok
            [+]informer-sync excluded: ok
            warn: some health checks cannot be excluded: no matches for "nothing"
            readyz check passed
        "#]],
        );
    }

    #[test]
    fn details_are_on_verbose_pages_of_privileged_callers_only() {
        let details = || Ok(vec!["apiserver-10.0.0.1:6443 is mute".to_owned()]);
        let health = HealthChecks::new(vec![HealthCheck::with_details("peers", HealthPages::ReadyOnly, details)]);
        assert_eq!(describe_page(&health, "/readyz", None), "200 ok");
        assert_eq!(describe_page(&health, "/readyz/peers", None), "200 ok");
        expect![[r#"
            200 [+]ping ok
            [+]peers ok
            readyz check passed
            for readers of /debug/peers: 200 [+]ping ok
            [+]peers ok
               apiserver-10.0.0.1:6443 is mute
            readyz check passed
        "#]]
        .assert_eq(&describe_page(&health, "/readyz", Some("verbose")));
    }

    #[test]
    fn other_paths_are_no_health_pages() {
        check("/metrics", None, &expect!["not a health page"]);
    }

    #[test]
    fn checks_are_exported_as_metrics() {
        let health = HealthChecks::new(vec![
            HealthCheck::new("etcd", HealthPages::All, || Ok(())),
            HealthCheck::new("informer-sync", HealthPages::ReadyOnly, || Err("2 caches are empty".to_owned())),
        ]);
        let registry = Registry::new();
        health.register(&registry);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        expect![[r#"
            # HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.
            # TYPE kubernetes_healthcheck gauge
            kubernetes_healthcheck{name="etcd",type="healthz"} 1
            kubernetes_healthcheck{name="etcd",type="livez"} 1
            kubernetes_healthcheck{name="etcd",type="readyz"} 1
            kubernetes_healthcheck{name="informer-sync",type="readyz"} 0
            kubernetes_healthcheck{name="ping",type="healthz"} 1
            kubernetes_healthcheck{name="ping",type="livez"} 1
            kubernetes_healthcheck{name="ping",type="readyz"} 1
        "#]]
        .assert_eq(&text);
    }
}
