//! What every request pays before anything else: its line and its Accept header.

use std::hint::black_box;
use std::time::Duration;

use api::Target;
use api::media::{AggregatedVersion, DiscoveryOffer, Encodings, Offer, negotiate, negotiate_discovery};
use http::Uri;

use crate::Effort;
use crate::table::{Figure, Row, Table};
use crate::timing::median_time;

/// Lines that clients send all day.
const LINES: &[(&str, &str)] = &[
    ("get of a pod", "/api/v1/namespaces/kube-system/pods/coredns-76f75df574-abcde"),
    ("page of a list", "/apis/apps/v1/namespaces/default/replicasets?limit=500&resourceVersion=0"),
    (
        "watch with selectors",
        "/api/v1/pods?allowWatchBookmarks=true&fieldSelector=spec.nodeName%3Dnode-1%2Cstatus.phase%21%3DFailed\
         &labelSelector=app%3Dweb&resourceVersion=123456&timeoutSeconds=421&watch=true",
    ),
    (
        "watch of one object by name",
        "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt&limit=500&watch=1",
    ),
    ("scale of a custom resource", "/apis/example.com/v1alpha1/namespaces/team-a/widgets/blue%20one/scale"),
];

/// What client-go asks of discovery.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// What `kubectl get` asks for.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
     application/json";

pub(crate) fn run(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    for (name, line) in LINES {
        Target::parse("GET", line)?;
        let time = median_time(effort, || Target::parse("GET", black_box(line)));
        let uri = median_time(effort, || black_box(line).parse::<Uri>());
        table.push(
            Row::time(format!("parse the line: {name}"), time)
                .bar(Figure::Time(Duration::from_nanos(500)))
                .against("http::Uri of the same", Figure::Time(uri)),
        );
    }
    let offer = DiscoveryOffer { aggregated: Encodings::ALL, legacy: Encodings::ALL, oldest: AggregatedVersion::V2 };
    negotiate_discovery(DISCOVERY, offer)?;
    let discovery = median_time(effort, || negotiate_discovery(black_box(DISCOVERY), offer));
    table.push(negotiation("discovery for client-go", effort, DISCOVERY, discovery));
    negotiate(TABLE, Offer::BUILT_IN)?;
    let rows = median_time(effort, || negotiate(black_box(TABLE), Offer::BUILT_IN));
    table.push(negotiation("a table for kubectl", effort, TABLE, rows));
    Ok(())
}

/// The least that anybody pays who looks at every clause and parameter once.
fn negotiation(name: &str, effort: Effort, header: &str, time: Duration) -> Row {
    let split = median_time(effort, || {
        let clauses = black_box(header).split(',');
        clauses.flat_map(|clause| clause.split(';')).map(str::len).max()
    });
    Row::time(format!("negotiate {name}"), time)
        .bar(Figure::Time(Duration::from_micros(1)))
        .against("splitting the header at , and ;", Figure::Time(split))
}
