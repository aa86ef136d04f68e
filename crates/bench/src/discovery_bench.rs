//! Merging and encoding discovery documents of a large cluster.

use std::sync::Arc;
use std::time::Duration;

use api::media::AggregatedVersion;
use discovery::{Groups, Input, Standing, aggregated, merge};

use crate::Effort;
use crate::table::{Figure, Row, Table};
use crate::timing::{median_of, median_time};

/// What one server of the benchmark serves beside its custom resources.
const BUILT_INS: usize = 80;
/// Custom resources per server, none shared with another: the worst case.
const CUSTOM: usize = 3_000;

pub(crate) fn run(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let custom = if effort == Effort::Quick { 10 } else { CUSTOM };
    let documents: Vec<String> = (0..5).map(|server| document(server, custom)).collect();
    let parse = |text: &String| discovery::parse::parse_aggregated(text.as_bytes()).map(Arc::new);
    let parsed: Vec<Arc<Groups>> = documents.iter().map(parse).collect::<Result<_, _>>()?;
    let parse_time = median_time(effort, || documents.iter().map(parse).collect::<Result<Vec<_>, _>>());
    let generic_parse = median_time(effort, || {
        documents.iter().map(|text| serde_json::from_str::<serde_json::Value>(text)).collect::<Result<Vec<_>, _>>()
    });
    let value_parse = ("serde_json Value parse of the same", Figure::Time(generic_parse));
    table.push(
        Row::time(format!("parse 5 documents of {BUILT_INS}+{custom} resources"), parse_time)
            .against(value_parse.0, value_parse.1),
    );

    let five = inputs(&parsed, 5);
    let merge_time = median_time(effort, || merge(&five));
    table.push(
        Row::time("merge 5 servers, all different", merge_time)
            .bar(Figure::Time(Duration::from_millis(25)))
            .against(value_parse.0, value_parse.1),
    );

    // Merged anew before each sample, because a document keeps its ETag once it was asked for.
    let encode_time =
        median_of(effort, || merge(&five).groups, |merged| aggregated::json(merged, AggregatedVersion::V2));
    let merged = merge(&five).groups;
    let bare_encode = median_time(effort, || serde_json::to_vec(merged.items()));
    table.push(
        Row::time("encode + gzip + ETag of that", encode_time)
            .bar(Figure::Time(Duration::from_millis(60)))
            .against("serde_json encode of the same", Figure::Time(bare_encode)),
    );

    let three = inputs(&parsed[..3], 3);
    let thousand = inputs(&parsed[..3], 1_000);
    let of_three = median_time(effort, || merge(&three));
    let of_thousand = median_time(effort, || merge(&thousand));
    table.push(
        Row::time("merge 1,000 servers in 3 versions", of_thousand)
            .bar(Figure::Time(of_three + Duration::from_millis(5)))
            .against("3 servers", Figure::Time(of_three)),
    );
    Ok(())
}

fn inputs(documents: &[Arc<Groups>], servers: usize) -> Vec<Input> {
    (0..servers)
        .map(|server| Input {
            server: format!("apiserver-{server:04}").into(),
            standing: Standing::Current,
            groups: documents[server % documents.len()].clone(),
        })
        .collect()
}

/// An aggregated document: the built-ins that every server has, and custom resources of this server alone.
fn document(server: usize, custom: usize) -> String {
    let resource = |name: String, kind: String| {
        format!(
            r#"{{"resource":"{name}","responseKind":{{"group":"","version":"","kind":"{kind}"}},"scope":"Namespaced","singularResource":"{}","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"subresources":[{{"subresource":"status","responseKind":{{"group":"","version":"","kind":"{kind}"}},"verbs":["get","patch","update"]}}]}}"#,
            kind.to_lowercase()
        )
    };
    let group = |name: String, resources: Vec<String>| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"versions":[{{"version":"v1","resources":[{}],"freshness":"Current"}}]}}"#,
            resources.join(",")
        )
    };
    let built_ins = (0..BUILT_INS / 4).map(|at| {
        group(
            format!("builtin{at:02}.k8s.io"),
            (0..4).map(|n| resource(format!("things{n}"), format!("Thing{n}"))).collect(),
        )
    });
    let customs = (0..custom / 10).map(|at| {
        group(
            format!("server{server}-{at:03}.example.com"),
            (0..10).map(|n| resource(format!("widgets{n}"), format!("Widget{n}"))).collect(),
        )
    });
    let groups: Vec<String> = built_ins.chain(customs).collect();
    format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},"items":[{}]}}"#,
        groups.join(",")
    )
}
