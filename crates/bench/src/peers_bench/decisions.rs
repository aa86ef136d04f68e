//! The pure part: one routing decision, and one change in a large cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::Target;
use discovery::Groups;
use peering::documents::{ServerDocument, Source, StoredDocument, Tenure};
use peering::exclusion::Exclusion;
use peering::members::{KnownDocument, Member, State};
use peering::ports::Version;
use peering::view::{FirstSync, Inputs, Peering};
use peering::{Address, HolderIdentity, Hop, Proof, ServerId, View, route};
use tokio::time::Instant;

use crate::Effort;
use crate::table::{Figure, Row, Table};
use crate::timing::{median_of, median_time};

/// What one decision may take.
const DECISION: Duration = Duration::from_nanos(200);
/// What one change may take.
const RECOMPUTED: Duration = Duration::from_millis(100);

pub(super) fn measure(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let is_quick = effort == Effort::Quick;
    let (peers, resources) = if is_quick { (3, 20) } else { (10, 4_000) };
    let view = View::new(inputs(peers, resources)?, None);
    for (what, line) in [
        ("here", "/apis/g0.example.com/v1/namespaces/default/things0-0/one"),
        ("with a peer", "/apis/g1.example.com/v1/namespaces/default/things1-7/one"),
    ] {
        let target = Target::parse("GET", line)?;
        let time = median_time(effort, || route(&target, Hop::FromClient, &view, Proof::NotAsked));
        let name = format!("route a request that is served {what}, {peers} peers × {resources} resources");
        table.push(Row::time(name, time).bar(Figure::Time(DECISION)));
    }
    let (servers, resources) = if is_quick { (10, 5) } else { (1_000, 200) };
    let before = inputs(servers, resources)?;
    let last = View::new(before.clone(), None);
    // One of them has changed; equal documents would be one, so that here all differ.
    let changed = || {
        let mut inputs = before.clone();
        let mut members = inputs.members.to_vec();
        members[0] = member(servers + 1, resources).unwrap_or_else(|_| members[0].clone());
        inputs.members = members.into();
        inputs
    };
    let time = median_of(effort, changed, |inputs| View::new(inputs.clone(), Some(&last)));
    let name = format!("recompute after a change, {servers} servers × {resources} resources, all different");
    table.push(Row::time(name, time).bar(Figure::Time(RECOMPUTED)));
    Ok(())
}

fn inputs(servers: usize, resources: usize) -> anyhow::Result<Inputs> {
    let members: Vec<Member> = (1..=servers).map(|number| member(number, resources)).collect::<Result<_, _>>()?;
    Ok(Inputs {
        me: name(0)?,
        local: Arc::new(ServerDocument::from_whole(&document(0, resources)?)),
        members: members.into(),
        exclusion: Exclusion::none(),
        first_sync: FirstSync::Over,
        peering: Peering::Enabled,
        may_be_built_in: |_| false,
    })
}

fn member(number: usize, resources: usize) -> anyhow::Result<Member> {
    let server = name(number)?;
    let holder = HolderIdentity::new(&server, number as u128);
    let stored = StoredDocument {
        holder: holder.clone(),
        source: Source::Published,
        tenure: Tenure::Staying,
        document: Arc::new(ServerDocument::from_whole(&document(number, resources)?)),
    };
    let since = Instant::now();
    Ok(Member {
        server,
        state: State::Live,
        since,
        holder: Some(holder),
        address: Address::new("127.0.0.1", 6443),
        document: Some(KnownDocument { stored, version: Version(1), since }),
    })
}

fn name(number: usize) -> anyhow::Result<ServerId> {
    ServerId::from_name(&format!("apiserver-{number:05}")).context("it is a name")
}

/// A group of the server's own.
fn document(server: usize, resources: usize) -> anyhow::Result<Arc<Groups>> {
    let resource = |number: usize| {
        serde_json::json!({
            "resource": format!("things{server}-{number}"),
            "responseKind": {"group": "", "version": "", "kind": format!("Thing{number}")},
            "scope": "Namespaced",
            "singularResource": format!("thing{server}-{number}"),
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [{
                "subresource": "status",
                "responseKind": {"group": "", "version": "", "kind": format!("Thing{number}")},
                "verbs": ["get", "patch", "update"],
            }],
        })
    };
    let list = serde_json::json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{
            "metadata": {"name": format!("g{server}.example.com")},
            "versions": [{
                "version": "v1",
                "freshness": "Current",
                "resources": (0..resources).map(resource).collect::<Vec<_>>(),
            }],
        }],
    });
    Ok(Arc::new(discovery::parse::parse_aggregated(list.to_string().as_bytes())?))
}
