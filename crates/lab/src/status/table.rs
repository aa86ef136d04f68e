//! Renders a snapshot as text for a terminal. Pure.

use std::fmt::Write as _;

use super::{LabSnapshot, RolloutStatus};

/// Longer lists are cut off and end with the number of omitted entries.
const NAMES_MAX: usize = 8;

/// Renders the whole snapshot, as `unskew status` prints it.
pub fn render_snapshot(snapshot: &LabSnapshot) -> String {
    let mut text = String::new();
    let lab = &snapshot.lab;
    if !lab.data_dir.is_empty() {
        let _ = writeln!(text, "{}  {}  {}", lab.address, lab.store, lab.data_dir);
    }
    text += &render_servers(snapshot);
    let running = snapshot.servers.iter().filter(|server| server.phase.is_running());
    for server in running.filter(|server| !server.exclusive_resources.is_empty()) {
        let _ = writeln!(text, "only {} serves {}", server.name, join_names(&server.exclusive_resources));
    }
    let _ = writeln!(text, "forwarded: {}", render_forwards(snapshot));
    let _ = writeln!(text, "storage versions: {}", render_agreement(snapshot));
    if !snapshot.stored_versions.is_empty() {
        let _ = writeln!(text, "stored: {}", render_stored(snapshot));
    }
    for migration in &snapshot.migrations {
        let message = if migration.message.is_empty() { "not started" } else { &migration.message };
        let _ = writeln!(text, "migration {} of {}: {message}", migration.name, migration.resource);
    }
    for server in snapshot.servers.iter().filter(|server| !server.problem.is_empty()) {
        let _ = writeln!(text, "{}: {}", server.name, server.problem);
    }
    if let Some(rollout) = &snapshot.rollout {
        let _ = writeln!(text, "rollout: {}", render_progress(rollout));
    }
    text
}

/// Renders what `unskew up` prints once the lab is ready. `program` is the command by which this binary was called,
/// `flags` select the lab.
pub fn render_summary(snapshot: &LabSnapshot, program: &str, flags: &str) -> String {
    let lab = &snapshot.lab;
    let mut text = format!("A control plane of {} servers is ready at {}\n\n", snapshot.servers.len(), lab.address);
    let mut rows = vec![["SERVER", "RELEASE", "ADDRESS", "RESOURCES", "ONLY IT SERVES"].map(str::to_owned)];
    for server in &snapshot.servers {
        rows.push([
            server.name.clone(),
            server.release.clone(),
            server.address.clone(),
            server.resources.to_string(),
            match &server.exclusive_resources[..] {
                [] => "nothing".to_owned(),
                [first] => first.clone(),
                [first, rest @ ..] => format!("{first} and {} more", rest.len()),
            },
        ]);
    }
    text += &align_columns(&rows);
    let _ = write!(text, "\nkubeconfig  {}\nfolder      {}\npage        {}\n", lab.kubeconfig, lab.data_dir, lab.page);
    let oldest = snapshot.servers.iter().min_by_key(|server| crate::plan::minor_version(&server.release));
    let oldest = oldest.map(|server| &*server.name).unwrap_or_default();
    let commands = [
        format!("export KUBECONFIG=$({program} kubeconfig{flags})"),
        "kubectl get namespaces".to_owned(),
        format!(
            "kubectl --kubeconfig $({program} kubeconfig --server {oldest}{flags}) api-resources   # the oldest server lists all"
        ),
        format!("{program} rollout --to 1.37{flags}   # with a probe counting errors"),
    ];
    let _ = write!(text, "\nTry, in another terminal:\n  {}", commands.join("\n  "));
    text
}

/// Renders the resources that become unavailable without a server.
pub fn render_if_stopped(server: &str, lost: &[String]) -> String {
    match lost.len() {
        0 => format!(
            "If {server} is stopped now nothing becomes unavailable: other ready servers serve all its resources."
        ),
        number => format!(
            "If {server} is stopped now {number} become unavailable (503), because no other ready server serves them:\n  {}",
            lost.join("\n  ")
        ),
    }
}

/// Renders one line of rollout progress.
pub fn render_progress(rollout: &RolloutStatus) -> String {
    let bar =
        format!("{}{}", "#".repeat(rollout.steps_done), "-".repeat(rollout.steps.saturating_sub(rollout.steps_done)));
    let doing = if rollout.current_action.is_empty() { &rollout.outcome } else { &rollout.current_action };
    let probe = &rollout.probe;
    format!(
        "[{bar}] {}/{} {doing} | {} requests, {} wrong 404, {} 503, {} of {} events lost",
        rollout.steps_done,
        rollout.steps,
        probe.requests,
        probe.wrong_not_found,
        probe.unavailable,
        probe.lost_events,
        probe.writes
    )
}

/// Joins names with commas, up to `NAMES_MAX`.
pub fn join_names(all: &[String]) -> String {
    match all.len().checked_sub(NAMES_MAX) {
        None | Some(0) => all.join(", "),
        Some(more) => format!("{} and {more} more", all[..NAMES_MAX].join(", ")),
    }
}

/// Formats a duration as kubectl formats ages.
pub fn format_age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn render_servers(snapshot: &LabSnapshot) -> String {
    let head = ["SERVER", "RELEASE", "PROCESS", "MEMBER", "AGE", "PID", "ADDRESS", "IDENTITY"].map(str::to_owned);
    let mut rows = vec![head];
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    for server in &snapshot.servers {
        rows.push([
            server.name.clone(),
            or_dash(&server.release),
            server.phase.as_str().to_owned(),
            or_dash(&server.member_state),
            format_age(server.phase_seconds),
            server.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            or_dash(&server.address),
            or_dash(&server.identity),
        ]);
    }
    align_columns(&rows)
}

fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

fn render_forwards(snapshot: &LabSnapshot) -> String {
    match &snapshot.forwards[..] {
        [] => "nothing yet".to_owned(),
        pairs => {
            let pair = |pair: &super::ForwardedRequests| format!("{} → {} {}", pair.from, pair.to, pair.requests);
            pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
        }
    }
}

fn render_agreement(snapshot: &LabSnapshot) -> String {
    let apart: Vec<String> = snapshot
        .storage_versions
        .iter()
        .filter(|version| version.common_encoding_version.is_empty())
        .map(|version| {
            // `version.name` already includes the group.
            let short = |writes: &str| writes.rsplit('/').next().unwrap_or_default().to_owned();
            let writes =
                version.encoding_versions.iter().map(|(server, writes)| format!("{server} writes {}", short(writes)));
            format!("{}: {}", version.name, writes.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let agreed = snapshot.storage_versions.len() - apart.len();
    match (agreed, apart.len()) {
        (0, 0) => "not known".to_owned(),
        (_, 0) => format!("all {agreed} agree"),
        (_, number) => format!("{agreed} agree, {number} do not\n  {}", join_lines(&apart)),
    }
}

/// The resources whose objects are stored in another version than the one that all servers write.
fn render_stored(snapshot: &LabSnapshot) -> String {
    let outdated: Vec<String> = snapshot
        .stored_versions
        .iter()
        .filter_map(|stored| {
            let written = snapshot.storage_versions.iter().find(|version| version.name == stored.name)?;
            let agreed = &written.common_encoding_version;
            let others: Vec<String> = stored
                .versions
                .iter()
                .filter(|(version, _)| version != agreed && !agreed.is_empty())
                .map(|(version, objects)| format!("{objects} as {version}"))
                .collect();
            (!others.is_empty()).then(|| format!("{}: {}, servers write {agreed}", stored.name, others.join(", ")))
        })
        .collect();
    let number = snapshot.stored_versions.len();
    match outdated.len() {
        0 => format!("{number} resources, none in another version than servers write"),
        count => {
            format!("{number} resources, {count} in another version than servers write\n  {}", join_lines(&outdated))
        }
    }
}

/// Joins lines, up to `NAMES_MAX`.
fn join_lines(all: &[String]) -> String {
    match all.len().checked_sub(NAMES_MAX) {
        None | Some(0) => all.join("\n  "),
        Some(more) => format!("{}\n  and {more} more", all[..NAMES_MAX].join("\n  ")),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::status::compose::tests::test_snapshot;
    use crate::status::{ForwardedRequests, MigrationSummary, StorageVersionSummary, StoredVersionsSummary};

    #[test]
    fn snapshot_is_rendered_as_a_table() {
        let mut snapshot =
            test_snapshot("a ready: v1 pods; b ready: v1 pods nodes | batch/v1 jobs; c stopped: v1 pods");
        let migration = |name: &str, message: &str| MigrationSummary {
            name: name.to_owned(),
            resource: "secrets".to_owned(),
            message: message.to_owned(),
        };
        snapshot.migrations = vec![migration("m1", "The migration is running"), migration("m2", "")];
        snapshot.forwards = vec![ForwardedRequests { from: "a".to_owned(), to: "b".to_owned(), requests: 3 }];
        let version = |name: &str, agreed: &str, b: &str| StorageVersionSummary {
            name: name.to_owned(),
            common_encoding_version: agreed.to_owned(),
            encoding_versions: vec![("a".to_owned(), "v1".to_owned()), ("b".to_owned(), b.to_owned())],
        };
        snapshot.storage_versions = vec![version("core.pods", "v1", "v1"), version("x.ys", "", "v2")];
        let stored = |name: &str, versions: &[(&str, u64)]| StoredVersionsSummary {
            name: name.to_owned(),
            versions: versions.iter().map(|(version, objects)| ((*version).to_owned(), *objects)).collect(),
        };
        snapshot.stored_versions = vec![
            stored("core.pods", &[("v1", 4), ("v1beta1", 2)]),
            stored("x.ys", &[("v1", 1)]),
            stored("y.zs", &[("v1", 1)]),
        ];
        snapshot.servers[2].problem = "killed".to_owned();
        expect![[r#"
            SERVER  RELEASE  PROCESS  MEMBER  AGE  PID  ADDRESS                 IDENTITY
            a       1.30     ready    -       0s   -    https://127.0.0.1:7001  apiserver-a
            b       1.30     ready    -       0s   -    https://127.0.0.1:7001  apiserver-b
            c       1.32     stopped  -       0s   -    https://127.0.0.1:7001  apiserver-c
            only b serves v1/nodes, batch/v1/jobs
            forwarded: a → b 3
            storage versions: 1 agree, 1 do not
              x.ys: a writes v1, b writes v2
            stored: 3 resources, 1 in another version than servers write
              core.pods: 2 as v1beta1, servers write v1
            migration m1 of secrets: The migration is running
            migration m2 of secrets: not started
            c: killed
        "#]]
        .assert_eq(&render_snapshot(&snapshot));
    }

    #[test]
    fn summary_names_address_resources_and_commands() {
        let mut snapshot = test_snapshot("a ready: v1 pods; b ready: v1 pods nodes | batch/v1 jobs");
        snapshot.lab.address = "https://127.0.0.1:7100".to_owned();
        snapshot.lab.kubeconfig = "/lab/kubeconfig".to_owned();
        let text = render_summary(&snapshot, "target/release/unskew", " --data-dir /lab");
        for part in [
            "2 servers is ready at https://127.0.0.1:7100",
            "v1/nodes and 1 more",
            "$(target/release/unskew kubeconfig --server a --data-dir /lab)",
            "target/release/unskew rollout --to 1.37 --data-dir /lab",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn join_names_counts_names_beyond_the_limit() {
        let all: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        assert_eq!(join_names(&all[..8]), "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(join_names(&all), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }

    #[test]
    fn render_if_stopped_lists_unavailable_resources() {
        assert!(render_if_stopped("a", &[]).contains("nothing becomes unavailable"));
        assert!(render_if_stopped("a", &["v1/x".to_owned()]).ends_with("serves them:\n  v1/x"));
    }

    #[test]
    fn ages_are_formatted_like_kubectl() {
        let ages = [0, 119, 120, 7199, 7200, 172_800].map(format_age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
