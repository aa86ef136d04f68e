//! Pure functions: one routing decision, and recomputing after a change in a large cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::Address;
use api::Target;
use api::media::AggregatedVersion;
use membership::documents::{DocumentSource, Retention, ServerDocument, StoredDocument};
use membership::exclusion::Exclusion;
use membership::members::{Member, MemberState, TrackedDocument};
use membership::ports::EntryVersion;
use membership::view::{FirstSync, Peering, ViewInputs};
use membership::{AbsenceProof, HolderIdentity, Hop, ServerId, View, route};
use tokio::time::Instant;

use crate::Effort;
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::{median_time, median_time_with_input};

/// Goal for one decision.
const ROUTING_TIME_MAX: Duration = Duration::from_nanos(200);
/// Goal for one recomputation.
const RECOMPUTE_TIME_MAX: Duration = Duration::from_millis(100);
/// Different discovery documents in a cluster during an upgrade.
const RELEASES: usize = 3;
/// Groups per release; real releases have about twenty with resources.
const GROUPS: usize = 20;

pub(super) fn measure(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    let is_quick = effort == Effort::Quick;
    let (peers, resources) = if is_quick { (3, 20) } else { (10, 4_000) };
    let view = View::new(inputs(peers, resources)?, None);
    for (what, line) in [
        ("here", "/apis/g0.example.com/v1/namespaces/default/things0-0/one"),
        ("with a peer", "/apis/g1.example.com/v1/namespaces/default/things1-7/one"),
    ] {
        let target = Target::parse("GET", line)?;
        let time = median_time(effort, || route(&target, Hop::FromClient, &view, AbsenceProof::NotRequested));
        let name = format!("route a request that is served {what}, {peers} peers × {resources} resources");
        table.push(BenchRow::time(name, time).with_goal(Measurement::Time(ROUTING_TIME_MAX)));
    }
    let (servers, resources) = if is_quick { (10, 5) } else { (1_000, 200) };
    let size = format!("{servers} servers × {resources} resources");
    measure_changes(effort, table, &format!("{size}, all different"), &inputs(servers, resources)?, || {
        member(servers + 1, document_of_server(servers + 1, resources)?)
    })?;
    // The changed member is the first one of the next release.
    let releases: Vec<_> =
        (0..RELEASES).map(|number| document_of_release(number, resources)).collect::<Result<_, _>>()?;
    let of_releases = (1..=servers).map(|number| member(number, releases[number % RELEASES].clone()));
    let of_releases = ViewInputs { members: of_releases.collect::<Result<_, _>>()?, ..inputs(0, resources)? };
    measure_changes(effort, table, &format!("{size}, {RELEASES} releases"), &of_releases, || {
        member(servers, document_of_release(RELEASES, resources)?)
    })
}

/// Measures the time from a member's change to the new routing table, and to the encoded merged document.
fn measure_changes(
    effort: Effort,
    table: &mut BenchTable,
    cluster: &str,
    before: &ViewInputs,
    changed: impl Fn() -> anyhow::Result<Member>,
) -> anyhow::Result<()> {
    let last = View::new(before.clone(), None);
    let bytes = last.merged_documents().json(AggregatedVersion::V2).identity.len();
    changed()?;
    let changed = || {
        let mut members = before.members.to_vec();
        if let (Some(last), Ok(member)) = (members.last_mut(), changed()) {
            *last = member;
        }
        ViewInputs { members: members.into(), ..before.clone() }
    };
    let time = median_time_with_input(effort, changed, |inputs| View::new(inputs.clone(), Some(&last)));
    table.push(
        BenchRow::time(format!("recompute after a change, {cluster}"), time)
            .with_goal(Measurement::Time(RECOMPUTE_TIME_MAX)),
    );
    let time = median_time_with_input(effort, changed, |inputs| {
        View::new(inputs.clone(), Some(&last)).merged_documents().json(AggregatedVersion::V2).identity.len()
    });
    let name = format!("the same with its document of {}", Measurement::Bytes(bytes as u64));
    table.push(BenchRow::time(name, time).with_goal(Measurement::Time(RECOMPUTE_TIME_MAX)));
    Ok(())
}

fn inputs(servers: usize, resources: usize) -> anyhow::Result<ViewInputs> {
    let members: Vec<Member> =
        (1..=servers).map(|number| member(number, document_of_server(number, resources)?)).collect::<Result<_, _>>()?;
    Ok(ViewInputs {
        this_server: server_id(0)?,
        local_document: document_of_server(0, resources)?,
        members: members.into(),
        exclusion: Exclusion::empty(),
        shared_groups: membership::exclusion::SharedResources::default().groups,
        first_sync: FirstSync::Over,
        peering: Peering::Enabled,
        may_be_built_in: |_| false,
    })
}

fn member(number: usize, document: Arc<ServerDocument>) -> anyhow::Result<Member> {
    let server = server_id(number)?;
    let holder = HolderIdentity::new(&server, number as u128);
    let stored = StoredDocument {
        holder: holder.clone(),
        source: DocumentSource::Published,
        retention: Retention::UntilReplaced,
        document,
    };
    let since = Instant::now();
    Ok(Member {
        server,
        state: MemberState::Live,
        state_since: since,
        holder: Some(holder),
        address: Address::new("127.0.0.1", 6443),
        document: Some(TrackedDocument { stored, version: EntryVersion(1), since }),
    })
}

fn server_id(number: usize) -> anyhow::Result<ServerId> {
    ServerId::from_name(&format!("apiserver-{number:05}")).context("a valid server identity")
}

/// Document with one group that only this server has.
fn document_of_server(server: usize, resources: usize) -> anyhow::Result<Arc<ServerDocument>> {
    let names: Vec<_> = (0..resources).map(|number| format!("things{server}-{number}")).collect();
    parse_document(&[group_json(&format!("g{server}.example.com"), &names)])
}

/// Document of a release: groups common to all releases, each with one resource more than in the release before.
fn document_of_release(number: usize, resources: usize) -> anyhow::Result<Arc<ServerDocument>> {
    let groups: Vec<_> = (0..GROUPS)
        .map(|at| {
            let names: Vec<_> = (0..resources / GROUPS + number).map(|resource| format!("things{resource}")).collect();
            group_json(&format!("g{at}.example.com"), &names)
        })
        .collect();
    parse_document(&groups)
}

fn group_json(name: &str, resources: &[String]) -> serde_json::Value {
    let resource = |name: &String| {
        serde_json::json!({
            "resource": name,
            "responseKind": {"group": "", "version": "", "kind": "Thing"},
            "scope": "Namespaced",
            "singularResource": format!("{name}-one"),
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [{
                "subresource": "status",
                "responseKind": {"group": "", "version": "", "kind": "Thing"},
                "verbs": ["get", "patch", "update"],
            }],
        })
    };
    let resources: Vec<_> = resources.iter().map(resource).collect();
    serde_json::json!({
        "metadata": {"name": name},
        "versions": [{"version": "v1", "freshness": "Current", "resources": resources}],
    })
}

fn parse_document(groups: &[serde_json::Value]) -> anyhow::Result<Arc<ServerDocument>> {
    let list = serde_json::json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups,
    });
    let groups = discovery::parse::parse_aggregated(list.to_string().as_bytes())?;
    Ok(Arc::new(ServerDocument::from_all_groups(&Arc::new(groups))))
}
