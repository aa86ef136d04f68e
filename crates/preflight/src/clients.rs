//! Which clients use which versions, from an audit log of kube-apiservers.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Clients, resources and versions that are told apart; a cluster has some hundred.
const USES_MAX: usize = 10_000;

/// The requests of one client for one resource in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientUse {
    /// The API group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// The user name.
    pub user: String,
    /// The `User-Agent`, up to the first space.
    pub user_agent: String,
    /// The number of requests.
    pub requests: u64,
}

/// Counts the requests in an audit log, line by line.
#[derive(Debug, Default)]
pub struct AuditLogReader {
    uses: BTreeMap<[String; 5], u64>,
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

impl AuditLogReader {
    /// Counts one line. Lines that are not audit events of resource requests are ignored, and so are all stages but the
    /// last of a request.
    pub fn add_line(&mut self, line: &[u8]) {
        let Ok(AuditLine { stage, object_ref: Some(reference), user, user_agent }) = serde_json::from_slice(line)
        else {
            return;
        };
        if stage.as_deref().is_some_and(|stage| stage != "ResponseComplete") || reference.resource.is_empty() {
            return;
        }
        let user = user.and_then(|user| user.username).unwrap_or_default();
        let user_agent = user_agent.unwrap_or_default();
        let user_agent = user_agent.split(' ').next().unwrap_or_default().to_owned();
        let key = [reference.api_group, reference.api_version, reference.resource, user, user_agent];
        if self.uses.len() < USES_MAX || self.uses.contains_key(&key) {
            *self.uses.entry(key).or_default() += 1;
        }
    }

    /// The uses, by group, version, resource and client.
    pub fn finish(self) -> Vec<ClientUse> {
        let client_use = |([group, version, resource, user, user_agent], requests): ([String; 5], u64)| ClientUse {
            group,
            version,
            resource,
            user,
            user_agent,
            requests,
        };
        self.uses.into_iter().map(client_use).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_once_per_client_and_version() {
        let mut reader = AuditLogReader::default();
        for line in [
            r#"{"stage":"RequestReceived","objectRef":{"resource":"pods","apiVersion":"v1"},"user":{"username":"jane"}}"#,
            r#"{"stage":"ResponseComplete","objectRef":{"resource":"pods","apiVersion":"v1"},"user":{"username":"jane"},"userAgent":"kubectl/v1.37 (linux)"}"#,
            r#"{"stage":"ResponseComplete","objectRef":{"resource":"pods","apiVersion":"v1"},"user":{"username":"jane"},"userAgent":"kubectl/v1.37 (other)"}"#,
            r#"{"stage":"ResponseComplete","objectRef":{"resource":"jobs","apiGroup":"batch","apiVersion":"v1"},"user":{"username":"bob"}}"#,
            r#"{"stage":"ResponseComplete","requestURI":"/healthz"}"#,
            "not json",
        ] {
            reader.add_line(line.as_bytes());
        }
        let shown: Vec<String> = reader
            .finish()
            .iter()
            .map(|found| {
                format!(
                    "{}/{}/{} {} {} {}",
                    found.group, found.version, found.resource, found.user, found.user_agent, found.requests
                )
            })
            .collect();
        assert_eq!(shown, ["/v1/pods jane kubectl/v1.37 2", "batch/v1/jobs bob  1"]);
    }
}
