//! `/healthz`, `/livez` and `/readyz`, in kube-apiserver's words.

use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::{Body, Response};

/// A named condition of this server. Its failure reason goes to the log, and to callers who may read details.
pub struct Check {
    name: String,
    on: Pages,
    test: Box<dyn Fn() -> Result<Details, String> + Send + Sync>,
}

/// Lines about a check that passes, for verbose pages of callers who may read details. They may hold peers' addresses.
type Details = Vec<String>;

/// On which pages a check counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// All three.
    All,
    /// Only whether the server is ready.
    ReadyOnly,
}

/// The checks of this server. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Vec<Check>>,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.checks.iter().map(|check| &check.name)).finish()
    }
}

impl Check {
    /// A check of this name.
    pub fn new(
        name: impl Into<String>,
        on: Pages,
        test: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::detailed(name, on, move || test().map(|()| Details::new()))
    }

    /// A check that has details even if it passes.
    pub fn detailed(
        name: impl Into<String>,
        on: Pages,
        test: impl Fn() -> Result<Details, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), on, test: Box::new(test) }
    }
}

impl Health {
    /// These checks, shown in this order after `ping`.
    pub fn new(mut checks: Vec<Check>) -> Self {
        checks.insert(0, Check::new("ping", Pages::All, || Ok(())));
        Self { checks: Arc::new(checks) }
    }

    /// Shows every check of every page as a figure too; they are made when somebody looks.
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
        let page = Page::of(segments.next()?)?;
        Some(match segments.next() {
            None => self.summary(page, query.unwrap_or_default()),
            Some(name) => self.single(page, name),
        })
    }

    fn summary(&self, page: Page, query: &str) -> HealthPage {
        let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let is_verbose = pairs().any(|(key, _)| key == "verbose");
        let excluded: Vec<&str> =
            pairs().filter(|(key, value)| *key == "exclude" && !value.is_empty()).map(|(_, value)| value).collect();
        let is_excluded = |check: &&Check| excluded.contains(&check.name.as_str());
        let run = |check: &Check| if is_excluded(&check) { Outcome::Excluded } else { Outcome::of((check.test)()) };
        let results = Results {
            page,
            outcomes: self.on(page).map(|check| (check.name.as_str(), run(check))).collect(),
            unmatched: excluded.into_iter().filter(|name| !self.on(page).any(|check| check.name == *name)).collect(),
        };
        results.log_failures();
        match (is_verbose, results.is_passed()) {
            (false, true) => HealthPage::Public(text(StatusCode::OK, "ok".to_owned())),
            (true, _) if results.has_details() => HealthPage::Restricted {
                path: DETAILS_PAGE.to_owned(),
                public: results.render(Audience::Anyone),
                detailed: results.render(Audience::Operators),
            },
            (true, _) | (false, false) => HealthPage::Public(results.render(Audience::Anyone)),
        }
    }

    fn single(&self, page: Page, name: &str) -> HealthPage {
        let Some(check) = self.on(page).find(|check| check.name == name) else {
            return HealthPage::Public(text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()));
        };
        let failed =
            |reason: &str| text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"));
        match (check.test)() {
            Ok(_) => HealthPage::Public(text(StatusCode::OK, "ok".to_owned())),
            Err(reason) => HealthPage::Restricted {
                path: format!("/{}/{name}", page.name()),
                public: failed(WITHHELD),
                detailed: failed(&reason),
            },
        }
    }

    fn on(&self, page: Page) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.on == Pages::All || page == Page::Readyz)
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
const DETAILS_PAGE: &str = crate::peers::DEBUG_PAGE;
/// What kube-apiserver prints in place of a failure reason.
const WITHHELD: &str = "reason withheld";

/// Who reads a rendered page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    Anyone,
    Operators,
}

enum Outcome {
    Excluded,
    Passed(Details),
    Failed(String),
}

impl Outcome {
    fn of(result: Result<Details, String>) -> Self {
        result.map_or_else(Self::Failed, Self::Passed)
    }
}

/// What the checks of one page found, in their order.
struct Results<'a> {
    page: Page,
    outcomes: Vec<(&'a str, Outcome)>,
    /// Names that were to be excluded and are no checks of the page.
    unmatched: Vec<&'a str>,
}

impl Results<'_> {
    fn is_passed(&self) -> bool {
        !self.outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
    }

    /// True if readers with more rights see more.
    fn has_details(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| match outcome {
            Outcome::Excluded => false,
            Outcome::Passed(details) => !details.is_empty(),
            Outcome::Failed(_) => true,
        })
    }

    fn log_failures(&self) {
        if self.is_passed() {
            return;
        }
        let failed = self.outcomes.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Excluded | Outcome::Passed(_) => None,
            Outcome::Failed(reason) => Some(format!("{name}: {reason}")),
        });
        let failed = failed.collect::<Vec<_>>().join("; ");
        tracing::warn!(page = self.page.name(), failed, "a health check failed");
    }

    /// The verbose form.
    fn render(&self, audience: Audience) -> Response {
        let mut lines = String::new();
        for (name, outcome) in &self.outcomes {
            // Writing to a string does not fail.
            let _ = match outcome {
                Outcome::Excluded => writeln!(lines, "[+]{name} excluded: ok"),
                Outcome::Passed(details) => {
                    let _ = writeln!(lines, "[+]{name} ok");
                    let shown = if audience == Audience::Operators { &details[..] } else { &[] };
                    shown.iter().try_for_each(|detail| writeln!(lines, "   {detail}"))
                }
                Outcome::Failed(reason) => {
                    let reason = if audience == Audience::Operators { reason } else { WITHHELD };
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
        text(status, lines)
    }
}

/// The checks as figures: 1 is well, 0 is not.
struct HealthMetrics {
    health: Health,
    results: IntGaugeVec,
}

impl Collector for HealthMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.results.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for page in [Page::Healthz, Page::Livez, Page::Readyz] {
            for check in self.health.on(page) {
                let result = i64::from((check.test)().is_ok());
                self.results.with_label_values(&[&*check.name, page.name()]).set(result);
            }
        }
        self.results.collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Healthz,
    Livez,
    Readyz,
}

impl Page {
    fn of(segment: &str) -> Option<Self> {
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

/// A plain text page.
pub(crate) fn text(status: StatusCode, content: String) -> Response {
    let mut response = Response::new(Body::from(content));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(path: &str, query: Option<&str>, expected: &Expect) {
        let health = Health::new(vec![
            Check::new("etcd", Pages::All, || Ok(())),
            Check::new("informer-sync", Pages::ReadyOnly, || Err("2 caches are empty".to_owned())),
        ]);
        expected.assert_eq(&shown(&health, path, query));
    }

    /// What every caller gets, and after it what readers of another page get if that differs.
    fn shown(health: &Health, path: &str, query: Option<&str>) -> String {
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
    fn a_passing_page_says_ok_and_more_if_asked() {
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
    fn single_check_tells_its_reason_to_readers_of_its_path() {
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
        let health = Health::new(vec![Check::detailed("peers", Pages::ReadyOnly, details)]);
        assert_eq!(shown(&health, "/readyz", None), "200 ok");
        assert_eq!(shown(&health, "/readyz/peers", None), "200 ok");
        expect![[r#"
            200 [+]ping ok
            [+]peers ok
            readyz check passed
            for readers of /debug/peers: 200 [+]ping ok
            [+]peers ok
               apiserver-10.0.0.1:6443 is mute
            readyz check passed
        "#]]
        .assert_eq(&shown(&health, "/readyz", Some("verbose")));
    }

    #[test]
    fn other_paths_are_left_alone() {
        check("/metrics", None, &expect!["not a health page"]);
    }

    #[test]
    fn checks_are_figures_too() {
        let health = Health::new(vec![
            Check::new("etcd", Pages::All, || Ok(())),
            Check::new("informer-sync", Pages::ReadyOnly, || Err("2 caches are empty".to_owned())),
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
