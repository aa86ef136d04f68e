//! Which clients use which versions, from audit logs of kube-apiservers and access logs of the gateway.

use std::collections::BTreeMap;

use api::Target;
use serde::Deserialize;

use crate::verdict::count_of;

/// Clients, resources and versions that are told apart; a cluster has some hundred.
const USES_MAX: usize = 10_000;
/// The longest line that is read: an audit event with a request and a response object of the largest size.
pub const LINE_BYTES_MAX: usize = 8 << 20;

/// The requests of one client for one resource in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientUse {
    /// The API group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// The user name; empty if the log does not say it.
    pub user: String,
    /// The `User-Agent`, up to the first space; empty in access logs.
    pub user_agent: String,
    /// The number of requests.
    pub requests: u64,
}

/// What the logs say about clients.
#[derive(Debug, Default)]
pub struct ClientUses {
    /// By group, version, resource and client.
    pub uses: Vec<ClientUse>,
    has_logs: bool,
    /// Lines that are no events, or too long.
    unread_lines: u64,
    /// Requests of clients beyond the number that is told apart.
    uncounted: u64,
}

/// Counts the requests in logs, line by line.
#[derive(Debug, Default)]
pub struct ClientUseCounter {
    uses: BTreeMap<[String; 5], u64>,
    found: ClientUses,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditLine {
    stage: Option<String>,
    object_ref: Option<ObjectReference>,
    user: Option<AuditUser>,
    user_agent: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectReference {
    api_group: String,
    api_version: String,
    resource: String,
}

#[derive(Deserialize)]
struct AuditUser {
    username: Option<String>,
}

#[derive(Deserialize)]
struct AccessLine {
    method: String,
    path: String,
    user: Option<String>,
}

impl ClientUseCounter {
    /// Counts one line of an audit log. Events without a resource are ignored, and so are all stages but the last of a
    /// request.
    pub fn add_audit_line(&mut self, line: &[u8]) {
        let Some(AuditLine { stage, object_ref, user, user_agent }) = self.parse(line) else { return };
        let Some(reference) = object_ref.filter(|reference| !reference.resource.is_empty()) else { return };
        if stage.is_some_and(|stage| stage != "ResponseComplete") {
            return;
        }
        let user = user.and_then(|user| user.username).unwrap_or_default();
        let user_agent = user_agent.unwrap_or_default();
        let user_agent = user_agent.split(' ').next().unwrap_or_default().to_owned();
        self.count([reference.api_group, reference.api_version, reference.resource, user, user_agent]);
    }

    /// Counts one line of an access log of the gateway. Requests without a resource are ignored.
    pub fn add_access_line(&mut self, line: &[u8]) {
        let Some(AccessLine { method, path, user }) = self.parse(line) else { return };
        let Ok(Target::Resource(target)) = Target::parse(&method, &path) else { return };
        let [group, version, resource] = [&target.group, &target.version, &target.resource].map(ToString::to_string);
        self.count([group, version, resource, user.unwrap_or_default(), String::new()]);
    }

    /// Counts a line that is longer than [`LINE_BYTES_MAX`].
    pub fn skip_line(&mut self) {
        (self.found.has_logs, self.found.unread_lines) = (true, self.found.unread_lines + 1);
    }

    fn parse<'l, Line: Deserialize<'l>>(&mut self, line: &'l [u8]) -> Option<Line> {
        self.found.has_logs = true;
        let parsed = serde_json::from_slice(line).ok();
        if parsed.is_none() && !line.trim_ascii().is_empty() {
            self.found.unread_lines += 1;
        }
        parsed
    }

    fn count(&mut self, client: [String; 5]) {
        if self.uses.len() < USES_MAX || self.uses.contains_key(&client) {
            *self.uses.entry(client).or_default() += 1;
        } else {
            self.found.uncounted += 1;
        }
    }

    /// The uses, by group, version, resource and client.
    pub fn finish(self) -> ClientUses {
        let client_use = |([group, version, resource, user, user_agent], requests): ([String; 5], u64)| ClientUse {
            group,
            version,
            resource,
            user,
            user_agent,
            requests,
        };
        ClientUses { uses: self.uses.into_iter().map(client_use).collect(), ..self.found }
    }
}

impl ClientUses {
    /// What the logs do not show, one sentence each.
    pub(crate) fn not_known(&self) -> Vec<String> {
        if !self.has_logs {
            return vec!["Clients: give --audit-log or --access-log to see which use versions that go.".to_owned()];
        }
        let mut sentences = vec!["Clients that sent no request in the time of the logs.".to_owned()];
        if self.unread_lines > 0 {
            let lines = count_of(self.unread_lines, "line");
            sentences.push(format!("{lines} of the logs: too long, or in another format."));
        }
        if self.uncounted > 0 {
            let requests = count_of(self.uncounted, "request");
            sentences.push(format!("{requests} of further clients than the first {USES_MAX} in the logs."));
        }
        sentences
    }
}

impl ClientUse {
    /// `jane (kubectl/v1.37)`, as far as the log says it.
    pub(crate) fn client(&self) -> String {
        let user = if self.user.is_empty() { "a user that the log does not name" } else { &self.user };
        match self.user_agent.is_empty() {
            true => user.to_owned(),
            false => format!("{user} ({})", self.user_agent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uses: &ClientUses, expected: &[&str]) {
        let shown = |found: &ClientUse| {
            let ClientUse { group, version, resource, user, user_agent, requests } = found;
            format!("{group}/{version}/{resource} {user} {user_agent} {requests}")
        };
        assert_eq!(uses.uses.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn requests_are_counted_once_per_client_and_version() {
        let mut counter = ClientUseCounter::default();
        for line in [
            r#"{"stage":"RequestReceived","objectRef":{"resource":"pods","apiVersion":"v1"},"user":{"username":"jane"}}"#,
            r#"{"stage":"ResponseComplete","objectRef":{"resource":"pods","apiVersion":"v1"},"user":{"username":"jane"},"userAgent":"kubectl/v1.37 (linux)"}"#,
            r#"{"stage":"ResponseComplete","objectRef":{"resource":"pods","apiVersion":"v1"},"user":{"username":"jane"},"userAgent":"kubectl/v1.37 (other)"}"#,
            r#"{"stage":"ResponseComplete","objectRef":{"resource":"jobs","apiGroup":"batch","apiVersion":"v1"},"user":{"username":"bob"}}"#,
            r#"{"stage":"ResponseComplete","requestURI":"/healthz"}"#,
            "not json",
            "",
        ] {
            counter.add_audit_line(line.as_bytes());
        }
        let uses = counter.finish();
        check(&uses, &["/v1/pods jane kubectl/v1.37 2", "batch/v1/jobs bob  1"]);
        assert_eq!(
            uses.not_known(),
            [
                "Clients that sent no request in the time of the logs.",
                "1 line of the logs: too long, or in another format."
            ]
        );
    }

    #[test]
    fn access_logs_are_read_by_path() {
        let mut counter = ClientUseCounter::default();
        for line in [
            r#"{"time":"x","user":"jane","verb":"list","method":"GET","path":"/apis/apps/v1/namespaces/default/deployments","status":200}"#,
            r#"{"user":"jane","method":"PUT","path":"/apis/apps/v1/namespaces/n/deployments/d/status","status":200}"#,
            r#"{"method":"GET","path":"/api/v1/pods","status":200}"#,
            r#"{"user":"jane","method":"GET","path":"/apis","status":200}"#,
            r#"{"user":"jane","method":"GET","path":"/%zz","status":400}"#,
        ] {
            counter.add_access_line(line.as_bytes());
        }
        counter.skip_line();
        let uses = counter.finish();
        check(&uses, &["/v1/pods   1", "apps/v1/deployments jane  2"]);
        assert_eq!(uses.uses[0].client(), "a user that the log does not name");
        assert_eq!(uses.not_known().len(), 2);
    }

    #[test]
    fn clients_beyond_the_limit_are_said() {
        let mut counter = ClientUseCounter::default();
        for number in 0..=USES_MAX {
            let line = format!(r#"{{"user":"u{number}","method":"GET","path":"/api/v1/pods"}}"#);
            counter.add_access_line(line.as_bytes());
        }
        let uses = counter.finish();
        assert_eq!(uses.uses.len(), USES_MAX);
        assert!(uses.not_known()[1].starts_with("1 request of further clients"), "{:?}", uses.not_known());
    }
}
