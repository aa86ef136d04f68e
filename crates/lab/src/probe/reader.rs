//! Reads lists, objects and discovery from one endpoint.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ProbeState;
use super::endpoint::ProbeEndpoint;
use super::history::{ProbeOutcome, ProbedResource, classify_response};
use super::watched_object::ProbeObject;
use crate::client::AdminRequest;

/// Short enough to hit the transitions of a rollout, long enough not to load a laptop.
const READ_INTERVAL: Duration = Duration::from_millis(25);
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(200);
/// Limit for a server's resources to appear in the merged documents of all servers.
const MERGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Media type of the merged (aggregated) discovery document.
const MERGED_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Resources that every server serves, read besides the skewed ones.
const COMMON_RESOURCES: [(&str, &str); 2] = [("v1", "configmaps"), ("apps/v1", "deployments")];

/// Reads one target per interval in turn: the probe objects, the resources that differ between servers, and common
/// ones.
pub(super) async fn read_repeatedly(
    endpoint: ProbeEndpoint,
    objects: Arc<[ProbeObject]>,
    state: Arc<ProbeState>,
    stop: CancellationToken,
) {
    let mut turn = 0_usize;
    while stop.run_until_cancelled(tokio::time::sleep(READ_INTERVAL)).await.is_some() {
        let mut targets: Vec<ProbeReadTarget<'_>> = objects.iter().map(ProbeReadTarget::Object).collect();
        targets.extend(state.with_history(|history| history.skewed_resources()).into_iter().map(ProbeReadTarget::List));
        targets.extend(
            COMMON_RESOURCES
                .map(|(version, resource)| ProbeReadTarget::List((version.to_owned(), resource.to_owned()))),
        );
        turn = turn.wrapping_add(1);
        let target = targets.swap_remove(turn % targets.len());
        let from = Instant::now();
        let Some(answer) = endpoint.request_while_ready(AdminRequest::get(target.path())).await else { continue };
        let now = Instant::now();
        let code = answer.as_ref().ok().map(|answer| answer.status.as_u16());
        let was_served = match &target {
            ProbeReadTarget::Object(subject) => subject.was_served_since(&state, from),
            ProbeReadTarget::List(name) => state.with_history(|history| history.served_throughout(name, from, now)),
        };
        let verdict = classify_response(code, was_served);
        state.record_outcome(verdict);
        match verdict {
            ProbeOutcome::Good if endpoint.is_load_balancer() => state.record_success(now),
            ProbeOutcome::Good | ProbeOutcome::Unavailable => {}
            ProbeOutcome::WrongNotFound | ProbeOutcome::Failed => {
                let error = answer.err().map(|error| error.to_string()).unwrap_or_default();
                tracing::warn!(path = target.path(), ?code, error, ?verdict, "probe got an unexpected response");
            }
        }
    }
}

enum ProbeReadTarget<'a> {
    Object(&'a ProbeObject),
    List(ProbedResource),
}

impl ProbeReadTarget<'_> {
    fn path(&self) -> String {
        match self {
            Self::Object(subject) => subject.path(),
            Self::List(name) => list_path(name),
        }
    }
}

/// Fetches the merged discovery document repeatedly, with its ETag, and counts documents that lack a served resource.
pub(super) async fn check_discovery_repeatedly(
    endpoint: ProbeEndpoint,
    state: Arc<ProbeState>,
    stop: CancellationToken,
) {
    let mut known: Option<(String, BTreeSet<ProbedResource>)> = None;
    while stop.run_until_cancelled(tokio::time::sleep(DISCOVERY_INTERVAL)).await.is_some() {
        let mut ask = AdminRequest::get("/apis").with_header("accept", MERGED_DISCOVERY_ACCEPT);
        if let Some((etag, _)) = &known {
            ask = ask.with_header("if-none-match", etag.clone());
        }
        let from = Instant::now();
        let Some(Ok(answer)) = endpoint.request_while_ready(ask).await else { continue };
        if answer.status.is_success() {
            let Ok(groups) = discovery::parse::parse_aggregated(&answer.body) else { continue };
            let etag = answer.headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
            known = Some((etag, listable_resources(&groups).collect()));
        }
        let Some((_, names)) = &known else { continue };
        let missing = state.with_history(|history| missing_resources(history, names, from));
        state.update_counts(|counts| {
            counts.documents += 1;
            counts.shrunk_discovery += u64::from(!missing.is_empty());
        });
        if !missing.is_empty() {
            tracing::warn!(?missing, "resources missing in discovery");
        }
    }
}

/// Resources that the cluster served since `MERGE_TIMEOUT` before `from` and the document lacks. Skips the core
/// group, which `/apis` does not list.
fn missing_resources(
    history: &super::ServingHistory,
    names: &BTreeSet<ProbedResource>,
    from: Instant,
) -> Vec<ProbedResource> {
    let Some(settled) = from.checked_sub(MERGE_TIMEOUT) else { return Vec::new() };
    let had = history.all_served_throughout(settled, Instant::now());
    had.into_iter().filter(|name| name.0.contains('/') && !names.contains(*name)).cloned().collect()
}

/// Resources of a discovery document with the verb `list`.
pub(super) fn listable_resources(groups: &discovery::GroupDiscoveryList) -> impl Iterator<Item = ProbedResource> {
    let versions = groups.items().iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)));
    versions.flat_map(|(group, version)| {
        let name = match &*group.name {
            "" => version.name.to_string(),
            group => format!("{group}/{}", version.name),
        };
        let can_list = |verbs: &Option<discovery::groups::SharedStrList>| {
            verbs.as_ref().is_some_and(|verbs| verbs.iter().any(|verb| &**verb == "list"))
        };
        let resources = version.resources.iter().filter(move |resource| can_list(&resource.verbs));
        resources.map(move |resource| (name.clone(), resource.name.to_string()))
    })
}

fn list_path((version, resource): &ProbedResource) -> String {
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/{resource}?limit=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_path_covers_all_namespaces() {
        let path = |version: &str, resource: &str| list_path(&(version.to_owned(), resource.to_owned()));
        assert_eq!(path("v1", "pods"), "/api/v1/pods?limit=1");
        assert_eq!(path("apps/v1", "deployments"), "/apis/apps/v1/deployments?limit=1");
    }

    #[tokio::test(start_paused = true)]
    async fn resource_is_missing_only_after_the_merge_timeout() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let name = ("apps/v1".to_owned(), "deployments".to_owned());
        let mut history = super::super::ServingHistory::default();
        history.server_ready(0, BTreeSet::from([name.clone(), ("v1".to_owned(), "pods".to_owned())]), Instant::now());
        assert_eq!(missing_resources(&history, &BTreeSet::new(), Instant::now()), []);
        tokio::time::advance(MERGE_TIMEOUT).await;
        assert_eq!(missing_resources(&history, &BTreeSet::new(), Instant::now()).len(), 1);
        assert_eq!(missing_resources(&history, &BTreeSet::from([name]), Instant::now()), []);
    }
}
