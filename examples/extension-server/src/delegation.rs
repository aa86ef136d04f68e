//! Authentication and authorization by the main cluster.
//!
//! A request that the main cluster forwards shows the front-proxy certificate and names its user in headers; both are trusted as the
//! ConfigMap `extension-apiserver-authentication` says. Tokens are verified by TokenReview. Every request is authorized by a
//! SubjectAccessReview. Results are kept for ten seconds, as in Kubernetes' own delegating servers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use access::User;
use access::authentication::{CertificateFieldSet, ClientCertificate, FrontProxy, PresentedCredentials};
use access::user::MASTERS_GROUP;
use api::{Status, Target};
use controllers::ApiClient;
use edge::audit::AuditedUsers;
use edge::certificate_verification::{CaBundles, VerificationCache};
use edge::identity_headers;
use edge::{AccessControl, CachedConnection, Error, Request, RequestRecord};
use forward::{ForwardedUser, UnsendableUser};
use http::header::AUTHORIZATION;
use membership::hop::RequestSender;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tasks::Tasks;
use tokio::time::Instant;
use transport::{ClientCaBundle, Reloading};

const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SUBJECT_ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// How often the ConfigMap is read.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(60);
/// How long the result of a review counts.
const REVIEW_AGE_MAX: Duration = Duration::from_secs(10);
/// Limit for kept results of each review; further results are not kept.
const REVIEWS_MAX: usize = 4096;

/// Access control that asks the main cluster.
#[derive(Debug)]
pub(crate) struct DelegatedAccess {
    client: ApiClient,
    bundles: CaBundles,
    front_proxy: Reloading<FrontProxy>,
    users: RecentReviews<String, Option<Arc<User>>>,
    decisions: RecentReviews<String, Option<String>>,
}

/// The trust that the main cluster publishes.
struct PublishedTrust {
    client_ca: ClientCaBundle,
    front_proxy_ca: ClientCaBundle,
    front_proxy: FrontProxy,
}

impl DelegatedAccess {
    /// Reads the published trust, and again every minute.
    pub(crate) async fn start(client: ApiClient, tasks: &Tasks) -> anyhow::Result<Self> {
        let trust = read_trust(&client).await?;
        let (client_ca, front_proxy_ca) = (Reloading::fixed(trust.client_ca), Reloading::fixed(trust.front_proxy_ca));
        let front_proxy = Reloading::fixed(trust.front_proxy);
        let parts = (client.clone(), client_ca.clone(), front_proxy_ca.clone(), front_proxy.clone());
        tasks.spawn("published-trust", |stop| async move {
            let (client, client_ca, front_proxy_ca, front_proxy) = parts;
            while stop.run_until_cancelled(tokio::time::sleep(SETTINGS_INTERVAL)).await.is_some() {
                match read_trust(&client).await {
                    Ok(trust) => {
                        client_ca.replace(trust.client_ca);
                        front_proxy_ca.replace(trust.front_proxy_ca);
                        front_proxy.replace(trust.front_proxy);
                    }
                    Err(error) => tracing::warn!(%error, "keeping the former trust"),
                }
            }
        });
        let bundles = CaBundles { client: Some(client_ca), front_proxy: Some(front_proxy_ca) };
        Ok(Self { client, bundles, front_proxy, users: RecentReviews::default(), decisions: RecentReviews::default() })
    }

    async fn review_token(&self, token: &str) -> Result<Option<Arc<User>>, Error> {
        if let Some(user) = self.users.find(&token.to_owned()) {
            return Ok(user);
        }
        let review = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}});
        let status = self.review(TOKEN_REVIEWS, &review).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
        let user = (status["authenticated"] == true).then(|| {
            let found = &status["user"];
            let extra = found["extra"].as_object().into_iter().flatten();
            Arc::new(User {
                name: text(&found["username"]),
                uid: text(&found["uid"]),
                groups: texts(&found["groups"]),
                extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
            })
        });
        self.users.insert(token.to_owned(), user.clone());
        Ok(user)
    }

    /// Why the user may not; `None` if it may.
    async fn review_access(&self, user: &User, target: &Target<'_>) -> Result<Option<String>, Error> {
        let mut spec = json!({"user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
        match target {
            Target::Resource(target) => {
                spec["resourceAttributes"] = json!({
                    "verb": target.verb.as_str(), "group": target.group, "version": target.version,
                    "resource": target.resource, "subresource": target.subresource,
                    "namespace": target.namespace, "name": target.name,
                });
            }
            Target::NonResource(page) => {
                spec["nonResourceAttributes"] = json!({"path": page.path, "verb": target.verb()});
            }
        }
        let key = spec.to_string();
        if let Some(decision) = self.decisions.find(&key) {
            return Ok(decision);
        }
        let review = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec});
        let status = self.review(SUBJECT_ACCESS_REVIEWS, &review).await?;
        let reason = || status["reason"].as_str().unwrap_or_default().to_owned();
        let decision = (status["allowed"] != true).then(reason);
        self.decisions.insert(key, decision.clone());
        Ok(decision)
    }

    /// Creates a review; returns its status.
    async fn review(&self, path: &str, review: &Value) -> Result<Value, Error> {
        let failed = |reason: String| Error::from(Status::internal_error(format!("the main cluster: {reason}")));
        let answer = self.client.create(path, review).await.map_err(|error| failed(error.to_string()))?;
        let mut answer: Value = serde_json::from_slice(&answer.body).map_err(|error| failed(error.to_string()))?;
        Ok(answer["status"].take())
    }
}

impl AccessControl for DelegatedAccess {
    type Caller = Arc<User>;
    type ConnectionCache = VerificationCache<()>;

    async fn authenticate(
        &self,
        connection: &CachedConnection<VerificationCache<()>>,
        request: &mut Request,
        _record: &RequestRecord,
    ) -> Result<Arc<User>, Error> {
        let unauthorized = |reason: String| Error::Unauthorized { reason };
        let verification = self.bundles.verify(connection);
        let front_proxy = self.front_proxy.get();
        let headers: Vec<(&str, &[u8])> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let named = front_proxy.authenticate(&PresentedCredentials {
            client_certificate: ClientCertificate::Absent,
            front_proxy_certificate: verification.front_proxy_certificate(),
            headers: headers.iter().copied(),
            path: request.uri().path(),
        });
        let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let user = match (named, verification.client_certificate(), token.map(str::to_owned)) {
            (Ok(Some(user)), _, _) => Some(Arc::new(user)),
            (_, ClientCertificate::Verified(subject), _) => {
                subject.user(CertificateFieldSet::ALL).map_err(|error| unauthorized(error.to_string()))?.map(Arc::new)
            }
            (_, _, Some(token)) => {
                let user = self.review_token(&token).await?;
                Some(user.ok_or_else(|| unauthorized("the main cluster does not know the token".to_owned()))?)
            }
            (Ok(None) | Err(_), ClientCertificate::Absent | ClientCertificate::Untrusted(_), None) => None,
        };
        request.headers_mut().remove(AUTHORIZATION);
        identity_headers::remove_headers(request.headers_mut(), |name| front_proxy.headers.contains(name));
        Ok(user.unwrap_or_else(|| Arc::new(User::anonymous())))
    }

    /// The main cluster has applied impersonation before it forwards a request.
    fn impersonate(&self, caller: Arc<User>, _request: &mut Request) -> Result<Arc<User>, Error> {
        Ok(caller)
    }

    async fn authorize(&self, caller: &Arc<User>, target: &Target<'_>, _record: &RequestRecord) -> Result<(), Error> {
        let is_health = matches!(target, Target::NonResource(page)
            if ["/healthz", "/livez", "/readyz"].contains(&&*page.path));
        if is_health || caller.groups.iter().any(|group| group == MASTERS_GROUP) {
            return Ok(());
        }
        match self.review_access(caller, target).await? {
            None => Ok(()),
            Some(reason) => {
                let denied = match target {
                    Target::Resource(resource) => {
                        let text = format!("User \"{}\" cannot {} it: {reason}", caller.name, resource.verb.as_str());
                        Status::forbidden(resource.group_resource(), &resource.name, text)
                    }
                    Target::NonResource(page) => {
                        let path = api::GroupResource { group: "", resource: &*page.path };
                        Status::forbidden(path, "", format!("User \"{}\" cannot get it: {reason}", caller.name))
                    }
                };
                Err(denied.into())
            }
        }
    }

    fn audited_users(&self, caller: &Arc<User>) -> AuditedUsers {
        AuditedUsers { user: Some(caller.clone()), impersonated: None }
    }

    fn request_sender(&self, _caller: &Arc<User>) -> RequestSender {
        RequestSender::Other
    }

    fn forwarded_user(&self, caller: &Arc<User>) -> Result<ForwardedUser, UnsendableUser> {
        identity_headers::to_forwarded_user(caller)
    }
}

async fn read_trust(client: &ApiClient) -> anyhow::Result<PublishedTrust> {
    let answer = client.get(CONFIG_MAP, "application/json").await?;
    let config_map: Value = serde_json::from_slice(&answer.body)?;
    let text = |key: &str| config_map["data"][key].as_str().unwrap_or_default();
    let bundle = |key: &str| ClientCaBundle::from_pem(text(key).as_bytes(), key).map_err(anyhow::Error::msg);
    let allowed = Some(text("requestheader-allowed-names")).filter(|text| !text.is_empty()).unwrap_or("[]");
    Ok(PublishedTrust {
        client_ca: bundle("client-ca-file")?,
        front_proxy_ca: bundle("requestheader-client-ca-file")?,
        front_proxy: FrontProxy {
            allowed_names: serde_json::from_str(allowed)?,
            headers: gateway::vouching::parse_header_names(&answer.body).map_err(anyhow::Error::msg)?,
        },
    })
}

/// Results of reviews by what was asked, for [`REVIEW_AGE_MAX`].
#[derive(Debug)]
struct RecentReviews<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for RecentReviews<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> RecentReviews<K, V> {
    fn find(&self, key: &K) -> Option<V> {
        let reviews = self.0.lock();
        reviews.get(key).filter(|(since, _)| since.elapsed() < REVIEW_AGE_MAX).map(|(_, value)| value.clone())
    }

    fn insert(&self, key: K, value: V) {
        let mut reviews = self.0.lock();
        if reviews.len() >= REVIEWS_MAX {
            reviews.retain(|_, (since, _)| since.elapsed() < REVIEW_AGE_MAX);
        }
        if reviews.len() < REVIEWS_MAX {
            reviews.insert(key, (Instant::now(), value));
        }
    }
}
