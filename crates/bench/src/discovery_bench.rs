//! Merging and encoding discovery documents of a large cluster.

use std::sync::Arc;
use std::time::Duration;

use api::media::AggregatedVersion;
use discovery::{GroupDiscoveryList, MergeInput, ServerLiveness, aggregated, merge};

use crate::Effort;
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::{median_time, median_time_with_input};

/// Built-in resources per server.
const BUILT_INS: usize = 80;
/// Custom resources per server.
const CUSTOM_RESOURCES: usize = 3_000;

/// How the custom resources of the servers overlap.
#[derive(Clone, Copy)]
enum CustomResourceOverlap {
    /// Every server has its own resources.
    Distinct,
    /// All servers have the same resources with different verbs, so that every one must be merged.
    Shared,
}

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    let custom = if effort == Effort::Quick { 10 } else { CUSTOM_RESOURCES };
    let documents: Vec<String> =
        (0..5).map(|server| discovery_document(server, custom, CustomResourceOverlap::Distinct)).collect();
    let parse = |text: &String| discovery::parse::parse_aggregated(text.as_bytes()).map(Arc::new);
    let parsed: Vec<Arc<GroupDiscoveryList>> = documents.iter().map(parse).collect::<Result<_, _>>()?;
    let parse_time = median_time(effort, || documents.iter().map(parse).collect::<Result<Vec<_>, _>>());
    let generic_parse = median_time(effort, || {
        documents.iter().map(|text| serde_json::from_str::<serde_json::Value>(text)).collect::<Result<Vec<_>, _>>()
    });
    let value_parse = ("serde_json Value parse of the same", Measurement::Time(generic_parse));
    table.push(
        BenchRow::time(format!("parse 5 documents of {BUILT_INS}+{custom} resources"), parse_time)
            .compared_with(value_parse.0, value_parse.1),
    );

    let five = merge_inputs(&parsed, 5);
    let merge_time = median_time(effort, || merge(&five));
    table.push(
        BenchRow::time("merge 5 servers without a common resource", merge_time)
            .with_goal(Measurement::Time(Duration::from_millis(25)))
            .compared_with(value_parse.0, value_parse.1),
    );

    let shared: Vec<String> =
        (0..5).map(|server| discovery_document(server, custom, CustomResourceOverlap::Shared)).collect();
    let shared = merge_inputs(&shared.iter().map(parse).collect::<Result<Vec<_>, _>>()?, 5);
    let merge_time = median_time(effort, || merge(&shared));
    table.push(
        BenchRow::time("merge 5 servers, every resource different", merge_time)
            .with_goal(Measurement::Time(Duration::from_millis(25)))
            .compared_with(value_parse.0, value_parse.1),
    );

    // Merge before each sample, because a document caches its ETag after the first use.
    let encode_time = median_time_with_input(
        effort,
        || merge(&five).groups,
        |merged| aggregated::encode_json(merged, AggregatedVersion::V2).gzip().cloned(),
    );
    let merged = merge(&five).groups;
    let bare_encode = median_time(effort, || serde_json::to_vec(merged.items()));
    table.push(
        BenchRow::time(format!("encode + gzip + ETag of {} resources", BUILT_INS + 5 * custom), encode_time)
            .with_goal(Measurement::Time(Duration::from_millis(60)))
            .compared_with("serde_json encode of the same", Measurement::Time(bare_encode)),
    );

    let three = merge_inputs(&parsed[..3], 3);
    let thousand = merge_inputs(&parsed[..3], 1_000);
    let of_three = median_time(effort, || merge(&three));
    let of_thousand = median_time(effort, || merge(&thousand));
    table.push(
        BenchRow::time("merge 1,000 servers in 3 versions", of_thousand)
            .with_goal(Measurement::Time(of_three + Duration::from_millis(5)))
            .compared_with("3 servers", Measurement::Time(of_three)),
    );
    Ok(())
}

fn merge_inputs(documents: &[Arc<GroupDiscoveryList>], servers: usize) -> Vec<MergeInput> {
    (0..servers)
        .map(|server| MergeInput {
            server: format!("apiserver-{server:04}").into(),
            liveness: ServerLiveness::Live,
            groups: documents[server % documents.len()].clone(),
        })
        .collect()
}

/// An aggregated discovery document with the common built-in resources and custom resources.
fn discovery_document(server: usize, custom: usize, kind: CustomResourceOverlap) -> String {
    let (prefix, verb) = match kind {
        CustomResourceOverlap::Distinct => (format!("server{server}"), String::new()),
        CustomResourceOverlap::Shared => ("shared".to_owned(), format!(r#","verb{server}""#)),
    };
    let built_ins = (0..BUILT_INS / 4).map(|at| group_json(&format!("builtin{at:02}.k8s.io"), 4, "thing", ""));
    let customs = (0..custom / 10).map(|at| group_json(&format!("{prefix}-{at:03}.example.com"), 10, "widget", &verb));
    let groups: Vec<String> = built_ins.chain(customs).collect();
    format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},"items":[{}]}}"#,
        groups.join(",")
    )
}

fn group_json(name: &str, resources: usize, kind: &str, verb: &str) -> String {
    let resources: Vec<String> = (0..resources).map(|at| resource_json(&format!("{kind}{at}"), verb)).collect();
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"versions":[{{"version":"v1","resources":[{}],"freshness":"Current"}}]}}"#,
        resources.join(",")
    )
}

fn resource_json(name: &str, verb: &str) -> String {
    let kind = format!(r#"{{"group":"","version":"","kind":"Kind-{name}"}}"#);
    format!(
        r#"{{"resource":"{name}s","responseKind":{kind},"scope":"Namespaced","singularResource":"{name}","verbs":["create","delete","deletecollection","get","list","patch","update","watch"{verb}],"subresources":[{{"subresource":"status","responseKind":{kind},"verbs":["get","patch","update"]}}]}}"#
    )
}
