//! `/healthz`, `/livez` and `/readyz`, in kube-apiserver's words.

use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::{Body, Response};

/// One thing that must be well. Its error is for the log and for `/readyz/<name>`, not for the summary.
pub struct Check {
    name: String,
    on: Pages,
    test: Box<dyn Fn() -> Result<Details, String> + Send + Sync>,
}

/// What should be known although all is well: a line each, shown to whoever asks for a verbose page.
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

    /// The same, with something to say even if all is well.
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

    /// Answers if the path is one of the health pages.
    pub fn serve(&self, path: &str, query: Option<&str>) -> Option<Response> {
        let mut segments = path.trim_matches('/').splitn(2, '/');
        let page = Page::of(segments.next()?)?;
        Some(match segments.next() {
            None => self.summary(page, query.unwrap_or_default()),
            Some(name) => self.single(page, name),
        })
    }

    fn summary(&self, page: Page, query: &str) -> Response {
        let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let is_verbose = pairs().any(|(key, _)| key == "verbose");
        let excluded: Vec<&str> =
            pairs().filter(|(key, value)| *key == "exclude" && !value.is_empty()).map(|(_, value)| value).collect();
        let mut lines = String::new();
        let mut failed = Vec::new();
        for check in self.on(page) {
            let name = &check.name;
            if excluded.contains(&name.as_str()) {
                let _ = writeln!(lines, "[+]{name} excluded: ok");
                continue;
            }
            match (check.test)() {
                Err(reason) => {
                    let _ = writeln!(lines, "[-]{name} failed: reason withheld");
                    failed.push(format!("{name}: {reason}"));
                }
                Ok(details) => {
                    let _ = writeln!(lines, "[+]{name} ok");
                    for detail in details {
                        let _ = writeln!(lines, "   {detail}");
                    }
                }
            }
        }
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|name| !self.on(page).any(|check| check.name == **name))
            .map(|name| format!("\"{name}\""))
            .collect();
        if !unknown.is_empty() {
            let _ =
                writeln!(lines, "warn: some health checks cannot be excluded: no matches for {}", unknown.join(","));
        }
        if !failed.is_empty() {
            tracing::warn!(page = page.name(), failed = failed.join("; "), "a health check failed");
            let _ = writeln!(lines, "{} check failed", page.name());
            return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
        }
        if is_verbose {
            let _ = writeln!(lines, "{} check passed", page.name());
            return text(StatusCode::OK, lines);
        }
        text(StatusCode::OK, "ok".to_owned())
    }

    fn single(&self, page: Page, name: &str) -> Response {
        let Some(check) = self.on(page).find(|check| check.name == name) else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        };
        match (check.test)() {
            Ok(_) => text(StatusCode::OK, "ok".to_owned()),
            Err(reason) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n")),
        }
    }

    fn on(&self, page: Page) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.on == Pages::All || page == Page::Readyz)
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
        let shown = match health.serve(path, query) {
            None => "not a health page".to_owned(),
            Some(response) => {
                let (parts, body) = response.into_parts();
                let Body::Full(bytes) = body else { panic!("health pages have a body") };
                format!("{} {}", parts.status.as_u16(), String::from_utf8_lossy(&bytes))
            }
        };
        expected.assert_eq(&shown);
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
    fn a_failing_page_withholds_the_reason_and_a_single_check_tells_it() {
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
            "/readyz/informer-sync",
            None,
            &expect![[r#"
            500 internal server error: 2 caches are empty
        "#]],
        );
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
    fn details_are_told_on_verbose_pages_although_all_is_well() {
        let details = || Ok(vec!["apiserver-b is mute".to_owned()]);
        let health = Health::new(vec![Check::detailed("peers", Pages::ReadyOnly, details)]);
        let body = |query| {
            let Body::Full(bytes) = health.serve("/readyz", query).unwrap().into_body() else { panic!("it is a page") };
            String::from_utf8_lossy(&bytes).into_owned()
        };
        assert_eq!(body(None), "ok");
        assert_eq!(body(Some("verbose")), "[+]ping ok\n[+]peers ok\n   apiserver-b is mute\nreadyz check passed\n");
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
