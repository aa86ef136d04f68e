//! Credentials for webhooks, from a kubeconfig whose users are named after the webhooks.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// What a webhook is shown: a client certificate, a header, or both.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct UserCredentials {
    /// Certificate chain and key, in PEM.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
}

impl std::fmt::Debug for UserCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCredentials")
            .field("has_client_certificate", &self.client_certificate.is_some())
            .field("has_authorization", &self.authorization.is_some())
            .finish()
    }
}

/// The users of a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookCredentials {
    users: BTreeMap<String, Arc<UserCredentials>>,
    /// The user of the current context.
    current: Option<String>,
}

impl WebhookCredentials {
    /// Reads a kubeconfig. `read` returns the content of a file that it names.
    pub fn from_kubeconfig(kubeconfig: &Value, read: impl Fn(&str) -> Result<Vec<u8>, String>) -> Result<Self, String> {
        let entries = |list: &str| kubeconfig[list].as_array().into_iter().flatten();
        let mut users = BTreeMap::new();
        for entry in entries("users") {
            let name = entry["name"].as_str().unwrap_or_default();
            let user = read_user(&entry["user"], &read).map_err(|reason| format!("user {name:?}: {reason}"))?;
            users.insert(name.to_owned(), Arc::new(user));
        }
        let current = kubeconfig["current-context"].as_str().unwrap_or_default();
        let context = entries("contexts").find(|entry| entry["name"].as_str() == Some(current));
        let current = context.and_then(|entry| entry["context"]["user"].as_str()).map(str::to_owned);
        Ok(Self { users, current })
    }

    /// The user for a webhook at `host` and `port`: by that name, by `*.` and a part of it, without port if it is 443, by
    /// `*`, or that of the current context. `None`: the webhook is called without credentials.
    pub fn for_target(&self, host: &str, port: u16) -> Option<Arc<UserCredentials>> {
        let with_port = format!("{host}:{port}");
        let plain = (port == 443).then(|| host.to_owned());
        let named = std::iter::once(with_port).chain(plain).find_map(|target| self.by_name(&target));
        let fallback = || self.users.get("*").or_else(|| self.users.get(self.current.as_ref()?));
        named.or_else(fallback).cloned()
    }

    fn by_name(&self, target: &str) -> Option<&Arc<UserCredentials>> {
        let suffixes = target.match_indices('.').map(|(at, _)| format!("*{}", &target[at..]));
        std::iter::once(target.to_owned()).chain(suffixes).find_map(|name| self.users.get(&name))
    }
}

fn read_user(user: &Value, read: &impl Fn(&str) -> Result<Vec<u8>, String>) -> Result<UserCredentials, String> {
    let text = |field: &str| user[field].as_str().filter(|text| !text.is_empty());
    if let Some(unsupported) = ["exec", "auth-provider", "as"].iter().find(|field| !user[**field].is_null()) {
        return Err(format!("{unsupported} is not supported"));
    }
    let content = |field: &str| match (text(&format!("{field}-data")), text(field)) {
        (Some(data), _) => STANDARD.decode(data).map(Some).map_err(|error| format!("{field}-data: {error}")),
        (None, Some(file)) => read(file).map(Some),
        (None, None) => Ok(None),
    };
    let client_certificate = match (content("client-certificate")?, content("client-key")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("client-certificate and client-key must be given together".to_owned()),
    };
    let token = match (text("token"), text("tokenFile")) {
        (Some(token), _) => Some(token.to_owned()),
        (None, Some(file)) => Some(String::from_utf8_lossy(&read(file)?).trim().to_owned()),
        (None, None) => None,
    };
    let authorization = match (token, text("username")) {
        (Some(token), _) => Some(format!("Bearer {token}")),
        (None, Some(name)) => {
            let pair = format!("{name}:{}", text("password").unwrap_or_default());
            Some(format!("Basic {}", STANDARD.encode(pair)))
        }
        (None, None) => None,
    };
    Ok(UserCredentials { client_certificate, authorization })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn credentials() -> WebhookCredentials {
        let user = |name: &str| json!({"name": name, "user": {"token": name}});
        let kubeconfig = json!({
            "users": [user("a.ns.svc"), user("b.ns.svc:8443"), user("*.other.svc"), user("*.svc:9443"), user("me")],
            "contexts": [{"name": "c", "context": {"user": "me"}}], "current-context": "c",
        });
        WebhookCredentials::from_kubeconfig(&kubeconfig, |file| Err(format!("{file} is not read"))).unwrap()
    }

    #[test]
    fn user_is_chosen_by_name_of_webhook() {
        for (host, port, expected) in [
            ("a.ns.svc", 443, "Bearer a.ns.svc"),
            ("a.ns.svc", 8443, "Bearer me"),
            ("b.ns.svc", 8443, "Bearer b.ns.svc:8443"),
            ("x.other.svc", 443, "Bearer *.other.svc"),
            ("x.y.svc", 9443, "Bearer *.svc:9443"),
        ] {
            let chosen = credentials().for_target(host, port).and_then(|user| user.authorization.clone());
            assert_eq!(chosen.as_deref(), Some(expected), "{host}:{port}");
        }
        assert_eq!(WebhookCredentials::default().for_target("a.ns.svc", 443), None);
    }

    #[test]
    fn user_is_read_from_data_and_files() {
        let read = |user: Value| {
            let kubeconfig = json!({"users": [{"name": "*", "user": user}]});
            WebhookCredentials::from_kubeconfig(&kubeconfig, |file| Ok(format!("content of {file}\n").into_bytes()))
                .map(|read| read.for_target("h", 1).unwrap())
        };
        let user = read(json!({"client-certificate-data": "YQ==", "client-key": "k", "tokenFile": "t"})).unwrap();
        assert_eq!(user.client_certificate, Some((b"a".to_vec(), b"content of k\n".to_vec())));
        assert_eq!(user.authorization.as_deref(), Some("Bearer content of t"));
        let user = read(json!({"username": "u", "password": "p"})).unwrap();
        assert_eq!(user.authorization.as_deref(), Some("Basic dTpw"));
        for (user, expected) in [
            (json!({"client-key": "k"}), "client-certificate and client-key must be given together"),
            (json!({"exec": {}}), "exec is not supported"),
        ] {
            assert_eq!(read(user), Err(format!("user \"*\": {expected}")));
        }
    }
}
