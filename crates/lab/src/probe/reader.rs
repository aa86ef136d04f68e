//! Asks for lists and for discovery, one way or the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::history::{Name, Verdict, judge};
use super::stream::Subject;
use super::way::Way;
use crate::client::Ask;

/// How often one way is asked: often enough to meet the moments between, seldom enough for a laptop.
const ASK_INTERVAL: Duration = Duration::from_millis(25);
const DISCOVER_INTERVAL: Duration = Duration::from_millis(200);
/// How long a server's document may take to be in everybody's: a watch event and a merge.
const MERGE_PATIENCE: Duration = Duration::from_secs(2);
/// The merged document.
const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Asked for beside what differs, because every server has them.
const COMMON: [(&str, &str); 2] = [("v1", "configmaps"), ("apps/v1", "deployments")];

/// Asks for one after another of the objects that the probe writes, and of the lists that differ between the servers.
pub(super) async fn ask(way: Way, objects: Arc<[Subject]>, shared: Arc<Shared>, stop: CancellationToken) {
    let mut turn = 0_usize;
    while stop.run_until_cancelled(tokio::time::sleep(ASK_INTERVAL)).await.is_some() {
        let mut targets: Vec<Target<'_>> = objects.iter().map(Target::Object).collect();
        targets.extend(shared.history(|history| history.skewed()).into_iter().map(Target::List));
        targets.extend(COMMON.map(|(version, resource)| Target::List((version.to_owned(), resource.to_owned()))));
        turn = turn.wrapping_add(1);
        let target = targets.swap_remove(turn % targets.len());
        let from = Instant::now();
        let Some(answer) = way.ask(Ask::get(target.path())).await else { continue };
        let now = Instant::now();
        let code = answer.as_ref().ok().map(|answer| answer.status.as_u16());
        let had = match &target {
            Target::Object(subject) => subject.is_had(&shared, from),
            Target::List(name) => shared.history(|history| history.has(name, from, now)),
        };
        let verdict = judge(code, had);
        shared.judge(verdict);
        match verdict {
            Verdict::Good if way.is_door() => shared.good(now),
            Verdict::Good | Verdict::Unavailable => {}
            Verdict::WrongNotFound | Verdict::Failed => {
                let error = answer.err().map(|error| error.to_string()).unwrap_or_default();
                tracing::warn!(path = target.path(), ?code, error, ?verdict, "the probe noticed");
            }
        }
    }
}

/// What is asked for.
enum Target<'a> {
    Object(&'a Subject),
    List(Name),
}

impl Target<'_> {
    fn path(&self) -> String {
        match self {
            Self::Object(subject) => subject.path(),
            Self::List(name) => list_path(name),
        }
    }
}

/// Reads the merged document again and again, and looks for what is missing in it.
pub(super) async fn discover(way: Way, shared: Arc<Shared>, stop: CancellationToken) {
    let mut known: Option<(String, BTreeSet<Name>)> = None;
    while stop.run_until_cancelled(tokio::time::sleep(DISCOVER_INTERVAL)).await.is_some() {
        let mut ask = Ask::get("/apis").with("accept", MERGED);
        if let Some((etag, _)) = &known {
            ask = ask.with("if-none-match", etag.clone());
        }
        let from = Instant::now();
        let Some(Ok(answer)) = way.ask(ask).await else { continue };
        if answer.status.is_success() {
            let Ok(groups) = discovery::parse::parse_aggregated(&answer.body) else { continue };
            let etag = answer.headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
            known = Some((etag, listable(&groups).collect()));
        }
        let Some((_, names)) = &known else { continue };
        let missing = shared.history(|history| missing(history, names, from));
        shared.count(|counts| {
            counts.documents += 1;
            counts.shrunk_discovery += u64::from(!missing.is_empty());
        });
        if !missing.is_empty() {
            tracing::warn!(?missing, "the probe misses this in discovery");
        }
    }
}

/// What the cluster had for a while, and the document lacks. The core group is not in `/apis`.
fn missing(history: &super::History, names: &BTreeSet<Name>, from: Instant) -> Vec<Name> {
    let Some(settled) = from.checked_sub(MERGE_PATIENCE) else { return Vec::new() };
    let had = history.all(settled, Instant::now());
    had.into_iter().filter(|name| name.0.contains('/') && !names.contains(*name)).cloned().collect()
}

/// The resources of a document that can be listed.
pub(super) fn listable(groups: &discovery::Groups) -> impl Iterator<Item = Name> {
    let versions = groups.items().iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)));
    versions.flat_map(|(group, version)| {
        let name = match &*group.name {
            "" => version.name.to_string(),
            group => format!("{group}/{}", version.name),
        };
        let can_list = |verbs: &Option<discovery::groups::Names>| {
            verbs.as_ref().is_some_and(|verbs| verbs.iter().any(|verb| &**verb == "list"))
        };
        let resources = version.resources.iter().filter(move |resource| can_list(&resource.verbs));
        resources.map(move |resource| (name.clone(), resource.name.to_string()))
    })
}

fn list_path((version, resource): &Name) -> String {
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/{resource}?limit=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_asked_for_over_all_namespaces() {
        let path = |version: &str, resource: &str| list_path(&(version.to_owned(), resource.to_owned()));
        assert_eq!(path("v1", "pods"), "/api/v1/pods?limit=1");
        assert_eq!(path("apps/v1", "deployments"), "/apis/apps/v1/deployments?limit=1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_may_lag_a_moment_but_not_longer() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let name = ("apps/v1".to_owned(), "deployments".to_owned());
        let mut history = super::super::History::default();
        history.ready(0, BTreeSet::from([name.clone(), ("v1".to_owned(), "pods".to_owned())]), Instant::now());
        assert_eq!(missing(&history, &BTreeSet::new(), Instant::now()), []);
        tokio::time::advance(MERGE_PATIENCE).await;
        assert_eq!(missing(&history, &BTreeSet::new(), Instant::now()).len(), 1);
        assert_eq!(missing(&history, &BTreeSet::from([name]), Instant::now()), []);
    }
}
