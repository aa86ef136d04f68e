//! Costs of every request before anything else: parsing its request line and its Accept header.

use std::hint::black_box;
use std::time::Duration;

use api::Target;
use api::media::{AggregatedVersion, DiscoveryOffer, Encodings, ObjectOffer, negotiate, negotiate_discovery};
use http::Uri;

use crate::Effort;
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::median_time;

/// Request lines that clients send all day.
const REQUEST_LINES: &[(&str, &str)] = &[
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

/// Accept header of client-go's discovery client.
const CLIENT_GO_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Accept header of `kubectl get`.
const KUBECTL_TABLE_ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
     application/json";

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    for (name, line) in REQUEST_LINES {
        Target::parse("GET", line)?;
        let time = median_time(effort, || Target::parse("GET", black_box(line)));
        let uri = median_time(effort, || black_box(line).parse::<Uri>());
        table.push(
            BenchRow::time(format!("parse the line: {name}"), time)
                .with_goal(Measurement::Time(Duration::from_nanos(500)))
                .compared_with("http::Uri of the same", Measurement::Time(uri)),
        );
    }
    let offer =
        DiscoveryOffer { aggregated: Encodings::ALL, legacy: Encodings::ALL, oldest_version: AggregatedVersion::V2 };
    negotiate_discovery(CLIENT_GO_DISCOVERY_ACCEPT, offer)?;
    let discovery = median_time(effort, || negotiate_discovery(black_box(CLIENT_GO_DISCOVERY_ACCEPT), offer));
    table.push(negotiation_row("discovery for client-go", effort, CLIENT_GO_DISCOVERY_ACCEPT, discovery));
    negotiate(KUBECTL_TABLE_ACCEPT, ObjectOffer::BUILT_IN)?;
    let rows = median_time(effort, || negotiate(black_box(KUBECTL_TABLE_ACCEPT), ObjectOffer::BUILT_IN));
    table.push(negotiation_row("a table for kubectl", effort, KUBECTL_TABLE_ACCEPT, rows));
    Ok(())
}

/// Compares negotiation with looking at every clause and parameter of the header once.
fn negotiation_row(name: &str, effort: Effort, header: &str, time: Duration) -> BenchRow {
    let split = median_time(effort, || {
        let clauses = black_box(header).split(',');
        clauses.flat_map(|clause| clause.split(';')).map(str::len).max()
    });
    BenchRow::time(format!("negotiate {name}"), time)
        .with_goal(Measurement::Time(Duration::from_micros(1)))
        .compared_with("splitting the header at , and ;", Measurement::Time(split))
}
