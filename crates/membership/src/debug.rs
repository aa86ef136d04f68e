//! `GET /debug/peers`: the members, their states and what only they serve; and what would be lost if one of them stopped.

use std::collections::BTreeMap;

use api::Verb;
use serde::Serialize;
use tokio::time::Instant;

use crate::documents::DocumentSource;
use crate::identity::ServerId;
use crate::members::{Member, MemberState};
use crate::routing_table::{LocalSupport, MemberIndex, RequestVerbs, ResourceServers};
use crate::view::{FirstSync, Peering, View};

/// Resources that are listed per server; the rest is counted.
const LISTED_MAX: usize = 1000;

/// What this server knows of the cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeersReport<'a> {
    /// The id of this server.
    pub server: &'a str,
    /// `enabled` or `disabled`.
    pub peering: &'static str,
    /// Whether the first sync is over.
    pub synced: bool,
    /// The resources that no other server serves.
    pub only_here: ResourceListing,
    /// The other members, ordered by id.
    pub members: Vec<MemberReport<'a>>,
}

/// What is known of a member.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport<'a> {
    /// The id of the member.
    pub server: &'a str,
    /// A [`crate::members::MemberState`].
    pub state: &'static str,
    /// Seconds since the state changed.
    pub state_seconds: u64,
    /// The holder identity; absent once the lease is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<&'a str>,
    /// The `host:port` of its endpoint record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The document, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentReport>,
    /// Why requests of certificate users are not sent to it; set by a gateway, which compares settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_vouched: Option<String>,
    /// The resources that no other server serves.
    pub only_it_serves: ResourceListing,
}

/// What is known of a member's document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DocumentReport {
    /// `published` by the member itself, or `asked` for by another server.
    pub source: &'static str,
    /// True if another process than the holder of the lease served it.
    pub is_former: bool,
    /// Seconds since this content was first seen.
    pub seconds: u64,
}

/// Resources, of which at most `LISTED_MAX` are listed.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceListing {
    /// Ordered by group, version, resource and subresource.
    pub items: Vec<ReportedResource>,
    /// The number of resources that are not listed.
    pub more: usize,
}

/// A resource or subresource with some of its verbs.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedResource {
    /// The group; empty for core.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The resource name, plural.
    pub resource: String,
    /// The subresource; empty for the resource itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Verbs as in discovery documents.
    pub verbs: Vec<&'static str>,
}

/// The report of a view at this instant.
pub fn report(view: &View, now: Instant) -> PeersReport<'_> {
    let mut by_owner = uniquely_owned(view, |listed, verb| owners(listed, verb, OwnerFilter::All));
    let members = (0..).map(MemberIndex).zip(view.members());
    PeersReport {
        server: view.this_server().as_str(),
        peering: match view.peering() {
            Peering::Enabled => "enabled",
            Peering::Disabled => "disabled",
        },
        synced: view.first_sync() == FirstSync::Over,
        only_here: truncate_listing(by_owner.remove(&ResourceOwner::ThisServer)),
        members: members
            .map(|(index, member)| {
                member_report(member, truncate_listing(by_owner.remove(&ResourceOwner::Member(index))), now)
            })
            .collect(),
    }
}

/// The resources that would be answered with 503 if this server stopped, because no other live server serves them. `None` if
/// there is no such server; empty for one that is not live.
pub fn resources_lost_if_stopped(view: &View, server: &ServerId) -> Option<Vec<ReportedResource>> {
    let owner = if server == view.this_server() {
        ResourceOwner::ThisServer
    } else {
        let position = view.members().iter().position(|member| member.server == *server)?;
        ResourceOwner::Member(MemberIndex(u32::try_from(position).ok()?))
    };
    let mut by_owner = uniquely_owned(view, |listed, verb| owners(listed, verb, OwnerFilter::LiveOnly));
    let mut items = by_owner.remove(&owner).unwrap_or_default();
    items.sort();
    Some(items)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ResourceOwner {
    ThisServer,
    Member(MemberIndex),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerFilter {
    LiveOnly,
    All,
}

/// The servers that serve a verb of an entry.
fn owners(resource_servers: ResourceServers<'_>, verb: Verb, filter: OwnerFilter) -> Vec<ResourceOwner> {
    let here = match resource_servers.local {
        LocalSupport::Serves(verbs) if verbs.contains(verb) => Some(ResourceOwner::ThisServer),
        LocalSupport::NotListed | LocalSupport::NotImplemented | LocalSupport::Serves(_) => None,
    };
    let away = if filter == OwnerFilter::All { resource_servers.unreachable.with_verb(verb) } else { None };
    let members =
        [resource_servers.live.with_verb(verb), away].into_iter().flatten().flat_map(|members| members.iter());
    here.into_iter().chain(members.map(|member| ResourceOwner::Member(*member))).collect()
}

/// The resources with a single owner, by owner.
fn uniquely_owned(
    view: &View,
    owners: impl Fn(ResourceServers<'_>, Verb) -> Vec<ResourceOwner>,
) -> BTreeMap<ResourceOwner, Vec<ReportedResource>> {
    let mut by_owner: BTreeMap<ResourceOwner, Vec<ReportedResource>> = BTreeMap::new();
    for (names, listed) in view.routing_table().iter() {
        let mut verbs: BTreeMap<ResourceOwner, RequestVerbs> = BTreeMap::new();
        for verb in Verb::NAMED {
            if let [owner] = owners(listed, verb)[..] {
                let known = verbs.entry(owner).or_default();
                *known = known.with(verb);
            }
        }
        for (owner, verbs) in verbs {
            by_owner.entry(owner).or_default().push(reported_resource(names, verbs));
        }
    }
    by_owner
}

fn reported_resource([group, version, resource, subresource]: [&str; 4], verbs: RequestVerbs) -> ReportedResource {
    ReportedResource {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        verbs: verbs.iter().map(Verb::as_str).collect(),
    }
}

fn truncate_listing(items: Option<Vec<ReportedResource>>) -> ResourceListing {
    let mut items = items.unwrap_or_default();
    items.sort();
    let more = items.len().saturating_sub(LISTED_MAX);
    items.truncate(LISTED_MAX);
    ResourceListing { items, more }
}

fn member_report(member: &Member, only_it_serves: ResourceListing, now: Instant) -> MemberReport<'_> {
    let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
    MemberReport {
        server: member.server.as_str(),
        state: member.state.as_str(),
        state_seconds: seconds(member.state_since),
        holder: member.holder.as_ref().map(|holder| holder.as_str()),
        address: member.address.as_ref().map(ToString::to_string),
        document: member.document.as_ref().map(|document| DocumentReport {
            source: match document.stored.source {
                DocumentSource::Published => "published",
                DocumentSource::Fetched { .. } => "asked",
            },
            is_former: member.state != MemberState::Left && member.may_serve_more(),
            seconds: seconds(document.since),
        }),
        not_vouched: None,
        only_it_serves,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;

    use super::*;
    use crate::testing::{server_id, view_from_notation};

    #[test]
    #[expect(clippy::too_many_lines, reason = "most of it is the expected document")]
    fn report_lists_members_and_their_exclusive_resources() {
        let view = view_from_notation(
            "here: v1 pods:get,list; b live: v1 pods:get,patch | batch/v1 jobs:get; c suspect former: batch/v1 jobs:list; d mute",
        );
        let report = report(&view, view.members()[0].state_since + Duration::from_secs(7));
        expect![[r#"
            {
              "server": "apiserver-me",
              "peering": "enabled",
              "synced": true,
              "onlyHere": {
                "items": [
                  {
                    "group": "",
                    "version": "v1",
                    "resource": "pods",
                    "verbs": [
                      "list"
                    ]
                  }
                ],
                "more": 0
              },
              "members": [
                {
                  "server": "apiserver-b",
                  "state": "live",
                  "stateSeconds": 7,
                  "holder": "apiserver-b_00000000-0000-4000-8000-000000000002",
                  "address": "b.example:6443",
                  "document": {
                    "source": "published",
                    "isFormer": false,
                    "seconds": 7
                  },
                  "onlyItServes": {
                    "items": [
                      {
                        "group": "",
                        "version": "v1",
                        "resource": "pods",
                        "verbs": [
                          "patch"
                        ]
                      },
                      {
                        "group": "batch",
                        "version": "v1",
                        "resource": "jobs",
                        "verbs": [
                          "get"
                        ]
                      }
                    ],
                    "more": 0
                  }
                },
                {
                  "server": "apiserver-c",
                  "state": "suspect",
                  "stateSeconds": 7,
                  "holder": "apiserver-c_00000000-0000-4000-8000-000000000002",
                  "document": {
                    "source": "published",
                    "isFormer": true,
                    "seconds": 7
                  },
                  "onlyItServes": {
                    "items": [
                      {
                        "group": "batch",
                        "version": "v1",
                        "resource": "jobs",
                        "verbs": [
                          "list"
                        ]
                      }
                    ],
                    "more": 0
                  }
                },
                {
                  "server": "apiserver-d",
                  "state": "mute",
                  "stateSeconds": 7,
                  "holder": "apiserver-d_00000000-0000-4000-8000-000000000002",
                  "onlyItServes": {
                    "items": [],
                    "more": 0
                  }
                }
              ]
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&report).unwrap());
    }

    #[test]
    fn report_truncates_long_listings_and_counts_the_rest() {
        let resources: Vec<_> = (0..LISTED_MAX + 5).map(|number| format!("r{number:05}:get")).collect();
        let view = view_from_notation(&format!("here: a/v1 {}", resources.join(" ")));
        let report = report(&view, Instant::now());
        assert_eq!((report.only_here.items.len(), report.only_here.more), (LISTED_MAX, 5));
    }

    #[track_caller]
    fn check(cluster: &str, stopped: &str, expected: Option<&str>) {
        let view = view_from_notation(cluster);
        let items = resources_lost_if_stopped(&view, &server_id(stopped));
        let shown = items.map(|items| {
            let items = items.iter().map(|item| {
                format!(
                    "{}/{}/{}{}:{}",
                    item.group,
                    item.version,
                    item.resource,
                    item.subresource,
                    item.verbs.join(",")
                )
            });
            items.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(shown.as_deref(), expected, "{stopped} in {cluster}");
    }

    #[test]
    fn resources_lost_if_stopped_are_those_without_other_live_server() {
        let cluster = "here: v1 pods:get; b live: v1 pods:get,list | a/v1 xs:get ys:get; \
                       c live: a/v1 xs:get; d suspect: a/v1 ys:get; e left: a/v1 zs:get";
        check(cluster, "b", Some("/v1/pods:list a/v1/ys:get"));
        check(cluster, "c", Some(""));
        check(cluster, "d", Some(""));
        check(cluster, "e", Some(""));
        check(cluster, "me", Some(""));
        check(cluster, "missing", None);
        check("here: v1 pods:get; b suspect: v1 pods:get", "me", Some("/v1/pods:get"));
    }
}
