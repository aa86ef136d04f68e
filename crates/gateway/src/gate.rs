//! Who comes in: those whose certificate we verified, by their names; everybody else as whoever the upstream takes them for.
//!
//! The gateway judges certificates and nothing else. A token is passed on untouched, and what anybody may do is for the
//! upstream that answers to decide.

use std::net::IpAddr;

use access::User;
use access::authenticate::{AuthenticationError, Certificate, CertificateParts, FrontProxy, HeaderNames, Shown};
use access::user::ANONYMOUS;
use api::headers::BEARER_PROTOCOL_PREFIX;
use api::{Status, Target};
use edge::audit::{Actors, Trail};
use edge::certificates::{Bundles, Judged};
use edge::claims;
use edge::{Connection, Error, Gate, Request};
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use peering::forward::{Identity, UnsendableUser};
use peering::hop::Sender;
use smallvec::SmallVec;

use crate::reviews::Reviews;

/// The gate of a gateway.
#[derive(Debug)]
pub struct GatewayGate {
    /// By which authorities certificates are judged.
    pub bundles: Bundles,
    /// Which proxies before us may name users, if any.
    pub front_proxy: Option<FrontProxy>,
    /// Headers, beside those that are always removed, in which somebody may be named. An upstream that reads them would believe
    /// them, because it believes us.
    pub claims: Option<HeaderNames>,
    /// Who may see our own pages.
    pub reviews: Reviews,
}

/// Somebody who comes in.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who they are to an upstream.
    pub identity: Identity,
    /// Where they connect from.
    pub client: IpAddr,
}

impl Gate for GatewayGate {
    type Caller = Caller;

    async fn identify(&self, connection: &Connection, request: &mut Request) -> Result<Caller, Error> {
        let identity = match self.vouch(connection, request) {
            Ok(Some(identity)) => identity?,
            Ok(None) => Identity::as_shown(),
            // A certificate that is not believed is no reason to refuse somebody who shows something better.
            Err(_) if shows_token(request.headers()) => Identity::as_shown(),
            Err(error) => return Err(Error::Unauthorized { reason: error.to_string() }),
        };
        if let Some(names) = &self.claims {
            claims::remove(request.headers_mut(), |name| names.contains(name));
        }
        Ok(Caller { identity, client: connection.peer.ip() })
    }

    /// The wish travels on, for the upstream to judge.
    fn act_as(&self, caller: Caller, _request: &mut Request) -> Result<Caller, Error> {
        Ok(caller)
    }

    fn authorize(&self, _caller: &Caller, _target: &Target<'_>, _trail: Option<&Trail>) -> Result<(), Error> {
        Ok(())
    }

    async fn shows(&self, caller: &Caller, request: &Request, path: &str) -> bool {
        // What a browser asks before it asks: which pages may read answers is for the upstreams to say.
        if request.method() == Method::OPTIONS {
            return false;
        }
        self.reviews.allow(caller, path, request.headers()).await
    }

    fn actors(&self, _caller: &Caller) -> Actors {
        Actors::default()
    }

    /// Whose a token is, only the upstream can tell.
    fn named(&self, caller: &Caller, request: &Request) -> Option<String> {
        let name = caller.identity.name().map(str::to_owned);
        name.or_else(|| (!shows_token(request.headers())).then(|| ANONYMOUS.to_owned()))
    }

    /// Nobody forwards to a gateway: a mark is a client's own invention.
    fn sender(&self, _caller: &Caller) -> Sender {
        Sender::Other
    }

    fn identity(&self, caller: &Caller) -> Result<Identity, UnsendableUser> {
        Ok(caller.identity.clone())
    }
}

impl GatewayGate {
    /// The user that a certificate names: that of a proxy before us another one, any other its own.
    fn vouch(&self, connection: &Connection, request: &Request) -> Vouched {
        if connection.certificates.is_empty() {
            return Ok(None);
        }
        let judged = self.bundles.judge(connection);
        let named = match &self.front_proxy {
            None => Ok(None),
            Some(front_proxy) => {
                let lines: SmallVec<[(&str, &[u8]); 16]> =
                    request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
                let (client, path) = (Certificate::Absent, request.uri().path());
                let headers = lines.iter().copied();
                front_proxy.user(&Shown { client, front_proxy: judged.front_proxy(), headers, path })
            }
        };
        match (named, judged.client()) {
            (Ok(Some(user)), _) => Ok(Some(identity_of(&user))),
            (_, Certificate::Verified(_) | Certificate::Untrusted(_)) => (*judged.derived(vouch_for_own)).clone(),
            (Ok(None), Certificate::Absent) => Ok(None),
            (Err(error), Certificate::Absent) => Err(error),
        }
    }
}

/// Whom we vouch for, if that can be said to a peer; nobody, if there is nothing to go by.
type Vouched = Result<Option<Result<Identity, Status>>, AuthenticationError>;

/// The user that a certificate itself names: the same for every request of a connection.
fn vouch_for_own(judged: &Judged) -> Vouched {
    match judged.client() {
        Certificate::Absent => Ok(None),
        Certificate::Untrusted(reason) => Err(AuthenticationError::Certificate(reason.to_owned())),
        Certificate::Verified(subject) => Ok(subject.user(CertificateParts::ALL)?.map(|user| identity_of(&user))),
    }
}

/// Impersonation is for the upstream to judge, as everything is that people may do.
fn identity_of(user: &User) -> Result<Identity, Status> {
    let unsendable = |error: UnsendableUser| Status::service_unavailable(error.to_string());
    Ok(claims::named(user).map_err(unsendable)?.with_impersonation_open())
}

fn shows_token(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    let mut offered = protocols.flat_map(|line| line.split(',')).map(str::trim);
    headers.contains_key(AUTHORIZATION) || offered.any(|protocol| protocol.starts_with(BEARER_PROTOCOL_PREFIX))
}
